"""The one pass over the vocabulary: reference and candidates on the same states, tile by tile.

Time goes into one matrix product per head; memory is the weights as stored, at most 192 MiB of
decoded tiles, two logit buffers of 40 MiB (four with KL), and the states as float32 (4 N d bytes
per input).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.errors import UnreadableError
from audit.lockstep.divergence import Divergence, RefProbabilities
from audit.lockstep.parts import Parts, assemble
from audit.lockstep.plan import plan_pass
from audit.lockstep.running import RowsOfRef, Running, Tile, buffer_for, check_weights

Progress = Callable[[int, int], None]

NARROW_TIE = 8
"""A head that rates more ids than this exactly equal does not know the token; such a tie excuses
nothing, or a dead head, to which all ids are equal, would agree with every other."""


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """What one head said at N positions; all tensors are [N] on the CPU."""

    proposal: Tensor
    """int64, target ids."""
    margin: Tensor
    """float32, best minus second logit after the post-head rule; 0 on a tie."""
    tied: Tensor
    """bool: the two best logits are equal, before the post-head rule."""
    ties: Tensor
    """int64: how many ids share the best logit."""
    saturated: Tensor
    """bool: they differ before the post-head rule and are equal after it."""
    oracle_rank: Tensor
    """int64, 1 for the best id; 0 where the head has no row for the oracle."""
    pad_would_win: Tensor
    """bool: a padding row beats every real one."""
    kl_nats: Tensor | None = None
    """float64, KL(ref || this head)."""
    tie_flip: Tensor | None = None
    """bool: proposes another id than the reference, but one of the two heads rates them equal, in
    a tie of at most NARROW_TIE ids."""
    same_weights: bool = False
    """Every weight decoded to the same float as the reference's, on the same states and under the
    same post-head rule."""


class Pass:
    """The state of one streamed comparison."""

    def __init__(
        self, ref: Running, cands: Sequence[Running], vocabulary: int, valid: int, kl: bool
    ) -> None:
        """Prepare.

        Args:
            ref, cands: the heads at work, all on the same N positions.
            vocabulary: number of target ids, padding included.
            valid: ids from here on are padding: masked, and their would-be wins counted.
            kl: also accumulate KL, for candidates with a row for every id (it is infinite else).
        """
        self.ref, self.cands, self.valid, self.vocabulary = ref, list(cands), valid, vocabulary
        n, device = len(ref.states), ref.device
        trims = [cand for cand in cands if isinstance(cand, RowsOfRef)]
        self.parts = Parts(ref, trims)
        columns = max(running.states.shape[1] for running in (ref, *cands))
        several = len(self.parts.running) > 1
        heads = 1 + len(cands) - len(trims)
        self.plan = plan_pass(n, valid, columns, heads, in_parts=several)
        self.buffers = buffer_for(self.plan, device), buffer_for(self.plan, device)
        self.same = [_may_be_same(cand, ref) for cand in cands]
        self.ref_kl = RefProbabilities(n, buffer_for(self.plan, device)) if kl else None
        self.whole = buffer_for(self.plan, device) if kl and several else None
        complete = [_covers(ref, valid) and _covers(cand, valid) for cand in cands]
        self.divergence = [Divergence(n, device) if kl and full else None for full in complete]

    def run(self, progress: Progress | None = None) -> None:
        """Stream all tiles, then look at the padding rows."""
        tiles = self.plan.tiles
        for done, (lo, hi) in enumerate(tiles):
            if progress:
                progress(done, len(tiles))
            self._tile(lo, hi)
        if self.vocabulary > self.valid:
            self._padding()
        self.parts.merge()
        if progress:
            progress(len(tiles), len(tiles))
        for running in (self.ref, *self.cands):
            _check_finite(running, tiles)

    def _tile(self, lo: int, hi: int) -> None:
        parts = self.parts.tiles(lo, hi)
        cand_tiles = {
            i: cand.tile(lo, hi)
            for i, cand in enumerate(self.cands)
            if not isinstance(cand, RowsOfRef)
        }
        for i, tile in cand_tiles.items():
            self.same[i] = self.same[i] and _equal_tiles(parts, tile)
        for at in self.plan.chunks:
            self._reference(parts, at)
            for i, tile in cand_tiles.items():
                self._candidate(i, tile, at)

    def _reference(self, parts: Sequence[Tile], at: slice) -> None:
        """One chunk of the reference: every part's lane, and its probabilities where KL is due."""
        ids = _ids_of(parts) if self.whole is not None else parts[0].ids
        n, peaks = at.stop - at.start, []
        for part, tile in zip(self.parts.running, parts, strict=True):
            if len(tile.ids) == 0:
                continue
            logits = part.logits(tile, at, self.buffers[0])
            peaks.append(part.lane.update(at, logits, tile.ids))
            if self.whole is not None:
                whole = self.whole[: n * len(ids)].view(n, len(ids))
                assemble(whole, ids, tile, logits)
                logits = whole
        if self.ref_kl and peaks:
            post = self.ref.head.post
            peak = torch.stack(peaks).amax(0)
            self.ref_kl.update(at, post(logits[:, : len(ids)]), post(peak))

    def _candidate(self, i: int, tile: Tile, at: slice) -> None:
        if len(tile.ids) == 0:
            return
        cand = self.cands[i]
        logits = cand.logits(tile, at, self.buffers[1])
        peak = cand.lane.update(at, logits, tile.ids)
        divergence = self.divergence[i]
        if self.ref_kl and divergence:
            post = cand.head.post
            divergence.update(at, post(logits[:, : len(tile.ids)]), post(peak), self.ref_kl)

    def _padding(self) -> None:
        for running in (*self.parts.running, *self.cands):
            if isinstance(running, RowsOfRef):
                continue
            for lo in range(self.valid, self.vocabulary, self.plan.tile):
                tile = running.tile(lo, min(lo + self.plan.tile, self.vocabulary))
                for at in self.plan.chunks if len(tile.ids) else ():
                    logits = running.logits(tile, at, self.buffers[1])
                    running.lane.update_padding(at, logits)

    def answers(self) -> tuple[Answers, list[Answers]]:
        """The reference's answers and each candidate's."""
        ref = _answers(self.ref)
        out = []
        for i, cand in enumerate(self.cands):
            divergence = self.divergence[i]
            kl = divergence.kl_nats(self.ref_kl).cpu() if self.ref_kl and divergence else None
            out.append(_answers(cand, kl, self._tie_flips(cand), self.same[i]))
        return ref, out

    def _tie_flips(self, cand: Running) -> Tensor:
        """bool [N]: the two heads' proposals are rated equal by either head.

        The few logits in question are evaluated again in exactly the shapes of the first pass:
        another shape could round differently and miss an exact tie.
        """
        ref = self.ref.lane
        differ = ref.best_id != cand.lane.best_id
        flip = torch.zeros_like(differ)
        for lane, running, other in ((ref, self.ref, cand.lane), (cand.lane, cand, ref)):
            rows = (differ & lane.tied & (lane.ties <= NARROW_TIE)).nonzero().squeeze(1)
            if len(rows):
                ids = other.best_id[rows]
                of_ref = running is self.ref or isinstance(running, RowsOfRef)
                for source in self.parts.running if of_ref else [running]:
                    flip[rows] |= self._logits_at(source, rows, ids) == lane.best[rows]
        return flip.cpu()

    def _logits_at(self, running: Running, rows: Tensor, ids: Tensor) -> Tensor:
        """float32 [m]: raw logits of `ids` at positions `rows`; -inf where there is no such row."""
        found = torch.full((len(rows),), -torch.inf, device=rows.device)
        for lo, hi in self.plan.tiles:
            wanted = (ids >= lo) & (ids < hi)
            if not bool(wanted.any()):
                continue
            tile = running.tile(lo, hi)
            for at in self.plan.chunks:
                mine = (wanted & (rows >= at.start) & (rows < at.stop)).nonzero().squeeze(1)
                if len(mine) == 0 or len(tile.ids) == 0:
                    continue
                logits = running.logits(tile, at, self.buffers[0])
                column = torch.searchsorted(tile.ids, ids[mine]).clamp_(max=len(tile.ids) - 1)
                value = logits[rows[mine] - at.start, column]
                found[mine] = torch.where(tile.ids[column] == ids[mine], value, -torch.inf)
        return found


def _answers(
    running: Running,
    kl_nats: Tensor | None = None,
    tie_flip: Tensor | None = None,
    same_weights: bool = False,
) -> Answers:
    lane, post = running.lane, running.head.post
    best, second = post(lane.best), post(lane.second)
    # A head with a single row has no second logit: an unbounded margin says so to nobody.
    margin = torch.where(torch.isfinite(second), best - second, torch.zeros_like(best))
    return Answers(
        proposal=lane.best_id.cpu(),
        margin=margin.cpu(),
        tied=lane.tied.cpu(),
        ties=lane.ties.cpu(),
        saturated=((best == second) & ~lane.tied).cpu(),
        oracle_rank=lane.oracle_rank.cpu(),
        pad_would_win=(lane.pad_best > lane.best).cpu(),
        kl_nats=kl_nats,
        tie_flip=tie_flip,
        same_weights=same_weights,
    )


def _may_be_same(cand: Running, ref: Running) -> bool:
    """Same states and same rule after the product; the weights are compared tile by tile."""
    if cand.head.post != ref.head.post:
        return False
    return cand.head.is_full if isinstance(cand, RowsOfRef) else cand.states is ref.states


def _covers(running: Running, valid: int) -> bool:
    return int((running.ids < valid).sum()) == valid


def _ids_of(parts: Sequence[Tile]) -> Tensor:
    """All ids of a range, ascending, int64."""
    return torch.cat([part.ids for part in parts]).sort().values


def _equal_tiles(parts: Sequence[Tile], cand: Tile) -> bool:
    """True when the candidate's rows are the reference's, which are given in parts."""
    if not torch.equal(_ids_of(parts), cand.ids):
        return False
    return all(_equal_rows(part, cand) for part in parts)


def _equal_rows(part: Tile, cand: Tile) -> bool:
    if part.weight.shape[1] != cand.weight.shape[1] or (part.bias is None) != (cand.bias is None):
        return False
    whole = len(part.ids) == len(cand.ids)
    place = slice(None) if whole else torch.searchsorted(cand.ids, part.ids)
    if (
        part.bias is not None
        and cand.bias is not None
        and not torch.equal(part.bias, cand.bias[place])
    ):
        return False
    return torch.equal(part.weight, cand.weight[place])


def _check_finite(running: Running, tiles: list[tuple[int, int]]) -> None:
    """Refuse logits that are NaN or infinite, blaming the weights where they are."""
    bad = (~running.lane.finite).nonzero().squeeze(1)
    if len(bad) == 0:
        return
    if not isinstance(running, RowsOfRef):
        check_weights(running, tiles)
    some = ", ".join(str(int(row)) for row in bad[:5])
    raise UnreadableError(
        f"the logits of {running.head.record.name} are NaN or infinite at {len(bad)} of "
        f"{len(running.states)} positions (rows {some}{', …' if len(bad) > 5 else ''})",
        hint="the states or the weights are damaged; no position is left out silently",
        where=running.head.record.path,
        code="NON_FINITE",
    )
