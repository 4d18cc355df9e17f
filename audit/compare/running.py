"""A head at work: its states, its weights tile by tile, and the logits of one tile and chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.compare.lane import Lane
from audit.compare.plan import BLOCK, Plan
from audit.errors import UnreadableError
from audit.heads.head import Head
from audit.heads.rows import SelectedRows
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

    def __init__(self, head: Head, states: Tensor, oracle: Tensor, device: torch.device) -> None:
        """Set up, and estimate the oracle's logits.

        Args:
            head: the head to run.
            states: float32 [N, k] on `device`, already through `head.project_in`.
            oracle: int64 [N] on `device`, -1 where there is none.
            device: where the products run.
        """
        self.head, self.states, self.device = head, states, device
        self.ids = head.ids.to(device)
        self.lane = Lane(oracle, self._estimate_oracle(oracle))

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

    Its logits are columns of the reference's, so an exact row subset can never differ by rounding.
    """

    def __init__(self, head: Head, ref: Running, oracle: Tensor) -> None:
        super().__init__(head, ref.states, oracle, ref.device)

    def tile(self, lo: int, hi: int) -> Tile:
        start, stop = self._row_range(lo, hi)
        return Tile(torch.empty(0, device=self.device), None, self.ids[start:stop])

    def columns(self, tile: Tile, ref_tile: Tile, ref_logits: Tensor, buffer: Tensor) -> Tensor:
        """The reference's logits at this head's ids, padded as `logits` pads them."""
        out, inner = padded_view(buffer, len(ref_logits), len(tile.ids))
        columns = torch.searchsorted(ref_tile.ids, tile.ids)
        inner.copy_(ref_logits.index_select(1, columns))
        return out


def takes_rows_of(cand: Head, ref: Head) -> bool:
    """True when each row of the candidate is the reference's very row for the same id."""
    rows = cand.rows
    if not isinstance(rows, SelectedRows) or rows.base is not ref.rows:
        return False
    return cand.adapt is ref.adapt and torch.equal(ref.ids[rows.index], cand.ids)


def padded_view(buffer: Tensor, n: int, t: int) -> tuple[Tensor, Tensor]:
    """A [n, width] view of a flat buffer and its first t columns; the rest is filled with -inf."""
    width = -(-t // BLOCK) * BLOCK
    out = buffer[: n * width].view(n, width)
    if width > t:
        out[:, t:] = -torch.inf
    return out, out[:, :t]


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
