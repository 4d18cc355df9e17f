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
from audit.heads.head import find_ids
from audit.lockstep.divergence import Divergence, RefProbabilities
from audit.lockstep.order import parts_of
from audit.lockstep.plan import plan_pass
from audit.lockstep.running import Running, Tile, buffer_for, check_weights
from audit.lockstep.subset import RowsOfRef

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
        self.ref, self.cands = ref, list(cands)
        n, device = len(ref.states), ref.device
        self.trims = [cand for cand in cands if isinstance(cand, RowsOfRef)]
        self.own = [i for i, cand in enumerate(cands) if not isinstance(cand, RowsOfRef)]
        """Which candidates have weights of their own."""
        columns = max(running.states.shape[1] for running in (ref, *cands))
        self.plan = plan_pass(n, columns, 1 + len(self.own))
        kept = [trim.head.ids for trim in self.trims]
        self.parts = parts_of(vocabulary, kept, valid=valid, tile=self.plan.tile)
        self.tiles = [ids for part in self.parts for ids in part.tiles]
        self.buffers = buffer_for(self.plan, device), buffer_for(self.plan, device)
        self.same = [_may_be_same(cand, ref) for cand in cands]
        self.ref_kl = RefProbabilities(n, buffer_for(self.plan, device)) if kl else None
        complete = [_covers(ref, valid) and _covers(cand, valid) for cand in cands]
        self.divergence = [Divergence(n, device) if kl and full else None for full in complete]

    def run(self, progress: Progress | None = None) -> None:
        """Stream all tiles, part by part."""
        done = 0
        for part in self.parts:
            keepers = [trim for trim, keeps in zip(self.trims, part.keepers, strict=True) if keeps]
            self.ref.start_part([self.ref, *keepers])
            for cand in self.own:
                self.cands[cand].start_part([self.cands[cand]])
            for ids in part.tiles:
                if progress:
                    progress(done, len(self.tiles))
                self._tile(ids)
                done += 1
            for ids in part.padding:
                self._padding(ids)
            for trim in keepers:
                trim.finish_part(self.ref.part)
            for running in self._at_work:
                running.finish_part(running.part)
        if progress:
            progress(len(self.tiles), len(self.tiles))
        for running in (self.ref, *self.cands):
            _check_finite(running, self.tiles)

    @property
    def _at_work(self) -> list[Running]:
        """The heads with products of their own, the reference first."""
        return [self.ref, *(self.cands[i] for i in self.own)]

    def _tile(self, ids: Tensor) -> None:
        ref_tile = self.ref.tile(ids)
        cand_tiles = {i: self.cands[i].tile(ids) for i in self.own}
        for i, tile in cand_tiles.items():
            self.same[i] = self.same[i] and _equal_tiles(ref_tile, tile)
        for at in self.plan.chunks:
            self._reference(ref_tile, at)
            for i, tile in cand_tiles.items():
                self._candidate(i, tile, at)

    def _reference(self, tile: Tile, at: slice) -> None:
        if len(tile.ids) == 0:
            return
        logits = self.ref.logits(tile, at, self.buffers[0])
        peak = self.ref.part.update(at, logits, tile.ids)
        if self.ref_kl:
            post = self.ref.head.post
            self.ref_kl.update(at, post(logits[:, : len(tile.ids)]), post(peak))

    def _candidate(self, i: int, tile: Tile, at: slice) -> None:
        if len(tile.ids) == 0:
            return
        cand = self.cands[i]
        logits = cand.logits(tile, at, self.buffers[1])
        peak = cand.part.update(at, logits, tile.ids)
        divergence = self.divergence[i]
        if self.ref_kl and divergence:
            post = cand.head.post
            divergence.update(at, post(logits[:, : len(tile.ids)]), post(peak), self.ref_kl)

    def _padding(self, ids: Tensor) -> None:
        for running in self._at_work:
            tile = running.tile(ids)
            for at in self.plan.chunks if len(tile.ids) else ():
                running.part.update_padding(at, running.logits(tile, at, self.buffers[1]))

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
        """bool [N]: the two heads' proposals are rated equal by either head, and both heads have
        rows for both: a trim that lost the one id always proposes the other, and not by chance.

        The few logits in question are evaluated again in exactly the shapes of the first pass:
        another shape could round differently and miss an exact tie.
        """
        ref = self.ref.lane
        differ = ref.best_id != cand.lane.best_id
        differ &= cand.has(ref.best_id) & self.ref.has(cand.lane.best_id)
        flip = torch.zeros_like(differ)
        for lane, running, other in ((ref, self.ref, cand.lane), (cand.lane, cand, ref)):
            rows = (differ & lane.tied & (lane.ties <= NARROW_TIE)).nonzero().squeeze(1)
            if len(rows):
                ids = other.best_id[rows]
                source = self.ref if isinstance(running, RowsOfRef) else running
                flip[rows] = flip[rows] | (self._logits_at(source, rows, ids) == lane.best[rows])
        return flip.cpu()

    def _logits_at(self, running: Running, rows: Tensor, ids: Tensor) -> Tensor:
        """float32 [m]: raw logits of `ids` at positions `rows`; -inf where there is no such row."""
        found = torch.full((len(rows),), -torch.inf, device=rows.device)
        for together in self.tiles:
            wanted = torch.isin(ids, together.to(ids.device))
            if not bool(wanted.any()):
                continue
            tile = running.tile(together)
            for at in self.plan.chunks:
                mine = (wanted & (rows >= at.start) & (rows < at.stop)).nonzero().squeeze(1)
                if len(mine) == 0 or len(tile.ids) == 0:
                    continue
                logits = running.logits(tile, at, self.buffers[0])
                column, known = find_ids(tile.ids, ids[mine])
                value = logits[rows[mine] - at.start, column]
                found[mine] = torch.where(known, value, -torch.inf)
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


def _equal_tiles(ref: Tile, cand: Tile) -> bool:
    """True when both heads have the very same rows."""
    if not torch.equal(ref.ids, cand.ids) or ref.weight.shape[1] != cand.weight.shape[1]:
        return False
    if (ref.bias is None) != (cand.bias is None):
        return False
    if ref.bias is not None and cand.bias is not None and not torch.equal(ref.bias, cand.bias):
        return False
    return torch.equal(ref.weight, cand.weight)


def _check_finite(running: Running, tiles: Sequence[Tensor]) -> None:
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
