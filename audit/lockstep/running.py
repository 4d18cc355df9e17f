"""A head at work: its states, its weights tile by tile, and the logits of one tile and chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.errors import UnreadableError
from audit.heads.head import Head
from audit.heads.rows import SelectedRows
from audit.lockstep.lane import Lane
from audit.lockstep.plan import Plan
from audit.logits import padded_view
from audit.words import count

_ESTIMATE_ROWS = 1024


@dataclass(frozen=True, slots=True)
class Tile:
    """Decoded weights of one range of target ids."""

    weight: Tensor
    """float32 [t, k]."""
    bias: Tensor | None
    ids: Tensor
    """int64 [t], the target ids that have a row in this range."""


class Running:
    """One head on the states of one trace."""

    def __init__(
        self,
        head: Head,
        states: Tensor,
        oracle: Tensor,
        device: torch.device,
        estimate: Tensor | None = None,
    ) -> None:
        """Set up, and estimate the oracle's logits.

        Args:
            head: the head to run.
            states: float32 [N, k] on `device`, already through `head.project_in`.
            oracle: int64 [N] on `device`, -1 where there is none.
            device: where the products run.
            estimate: the oracle's logits float32 [N], where they are known already.
        """
        self.head, self.states, self.device = head, states, device
        self.ids = head.ids.to(device)
        known = self._estimate_oracle(oracle) if estimate is None else estimate
        self.lane = Lane(oracle, known)

    def tile(self, lo: int, hi: int) -> Tile:
        """Decode the rows whose target id is in lo..hi-1."""
        start, stop = self._row_range(lo, hi)
        weight = self.head.rows.tile(start, stop).to(self.device)
        bias = None if self.head.bias is None else self.head.bias[start:stop].to(self.device)
        return Tile(weight, bias, self.ids[start:stop])

    def logits(self, tile: Tile, at: slice, buffer: Tensor) -> Tensor:
        """Raw logits of one chunk and tile, written into `buffer`.

        Returns:
            float32 [n, width], width the next multiple of BLOCK; the columns beyond the tile's ids
            are -inf.
        """
        out, inner = padded_view(buffer, at.stop - at.start, len(tile.ids))
        torch.mm(self.states[at], tile.weight.t(), out=inner)
        if tile.bias is not None:
            inner += tile.bias
        return out

    def _row_range(self, lo: int, hi: int) -> tuple[int, int]:
        edges = torch.searchsorted(self.head.ids, torch.tensor([lo, hi]))
        return int(edges[0]), int(edges[1])

    def _estimate_oracle(self, oracle: Tensor) -> Tensor:
        """float32 [N]: the oracle's logit by a plain dot product, -inf where it has no row."""
        estimate = torch.full((len(oracle),), -torch.inf, device=self.device)
        slot = torch.searchsorted(self.ids, oracle).clamp_(max=len(self.ids) - 1)
        known = (self.ids[slot] == oracle).nonzero().squeeze(1)
        for rows in known.split(_ESTIMATE_ROWS):
            wanted, inverse = slot[rows].cpu().unique(return_inverse=True)
            weight = self.head.rows.gather(wanted).to(self.device)[inverse.to(self.device)]
            estimate[rows] = (self.states[rows] * weight).sum(-1)
            if self.head.bias is not None:
                estimate[rows] += self.head.bias.to(self.device)[slot[rows]]
        return estimate


class RowsOfRef(Running):
    """A candidate whose rows are rows of the reference, on the same states: no product of its own.

    Its lane is merged from those of the reference's parts (see `parts`), so an exact row subset
    can never differ by rounding.
    """

    def __init__(self, head: Head, ref: Running) -> None:
        super().__init__(head, ref.states, ref.lane.oracle, ref.device, ref.lane.oracle_estimate)


def takes_rows_of(cand: Head, ref: Head) -> bool:
    """True when each row of the candidate is the reference's very row for the same id."""
    rows = cand.rows
    if not isinstance(rows, SelectedRows) or rows.base is not ref.rows:
        return False
    return cand.adapt is ref.adapt and torch.equal(ref.ids[rows.index], cand.ids)


def buffer_for(plan: Plan, device: torch.device) -> Tensor:
    """A flat float32 buffer that any chunk and tile of the plan fits into."""
    return torch.empty(plan.chunk * plan.tile, device=device)


def check_weights(running: Running, tiles: Sequence[tuple[int, int]]) -> None:
    """Refuse weights that are NaN or infinite, by row.

    Called once logits were found not to be finite: looking at every weight beforehand would cost
    as much as reading all of them again, and the preflight has done it in a whole audit.
    """
    for lo, hi in tiles:
        tile = running.tile(lo, hi)
        bad = (~torch.isfinite(tile.weight).flatten(1).all(1)).nonzero().squeeze(1)
        if len(bad):
            raise UnreadableError(
                f"{count(len(bad), 'row')} of {running.head.record.name} with NaN or infinity, "
                f"the first for id {int(tile.ids[bad[0]])}",
                hint="the file or its scales are damaged: export the head again",
                where=running.head.record.path,
                code="NON_FINITE",
            )
