"""The reference in parts, so that trims of it cost no product and hardly any time of their own.

Ids that are kept by the very same trims form one *part* of the reference: parts are disjoint and
together they are the reference. Its product runs part by part, each part has a lane, and both the
reference's answer and every trim's are merged from lanes at the end. Nested trims, as prefixes of
one ranks card are, make one part more than there are trims; k unrelated ones up to 2^k.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

from audit.heads.head import trim_rows
from audit.lockstep.lane import Lane
from audit.lockstep.running import RowsOfRef, Running, Tile


class Parts:
    """The reference at work, in as many parts as the trims tell apart."""

    def __init__(self, ref: Running, trims: Sequence[RowsOfRef]) -> None:
        """Sort the reference's ids by which of `trims` keep them."""
        self.ref, self.trims = ref, list(trims)
        kept = [torch.isin(ref.head.ids, trim.head.ids) for trim in self.trims]
        self.running, self._keepers = [ref], [tuple(True for _ in kept)]
        if all(bool(row.all()) for row in kept):
            return
        place = _places(kept)
        first = [int((place == i).nonzero()[0]) for i in range(int(place.max()) + 1)]
        self._keepers = [tuple(bool(row[at]) for row in kept) for at in first]
        self.running = [self._part(place == i) for i in range(len(first))]

    def _part(self, mine: Tensor) -> Running:
        ref = self.ref
        head = trim_rows(ref.head, ref.head.ids[mine], ref.head.record)
        lane = ref.lane
        return Running(head, ref.states, lane.oracle, ref.device, lane.oracle_estimate)

    def tiles(self, lo: int, hi: int) -> list[Tile]:
        """Each part's rows among target ids lo..hi-1, from one decoded tile of the reference."""
        whole = self.ref.tile(lo, hi)
        if len(self.running) == 1:
            return [whole]
        out = []
        for part in self.running:
            first, last = torch.searchsorted(part.ids, torch.tensor([lo, hi], device=part.device))
            ids = part.ids[first:last]
            at = torch.searchsorted(whole.ids, ids)
            bias = None if whole.bias is None else whole.bias[at]
            out.append(Tile(whole.weight.index_select(0, at), bias, ids))
        return out

    def merge(self) -> None:
        """Give the reference and each trim the lane that its parts make together."""
        lanes = [part.lane for part in self.running]
        self.ref.lane = reduce(Lane.merged, lanes)
        for i, trim in enumerate(self.trims):
            own = [lane for lane, by in zip(lanes, self._keepers, strict=True) if by[i]]
            trim.lane = reduce(Lane.merged, own)


def _places(kept: Sequence[Tensor]) -> Tensor:
    """int64 [V]: a number for each id, equal for ids that the same trims keep (bool [V] each)."""
    place = torch.zeros(len(kept[0]), dtype=torch.int64)
    for row in kept:
        place = 2 * place + row
        place = (place.bincount() > 0).cumsum(0)[place] - 1
    return place


def assemble(out: Tensor, ids: Tensor, tile: Tile, logits: Tensor) -> None:
    """Put one part's logits [n, t] where its ids stand among `ids`, in `out` [n, len(ids)]."""
    out.index_copy_(1, torch.searchsorted(ids, tile.ids), logits[:, : len(tile.ids)])
