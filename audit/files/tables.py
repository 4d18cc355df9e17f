"""Tables from packed codes to float32 values: several values per look-up, moved as one cell.

The fastest way from codes of a few bits to numbers that torch offers on a CPU. Leaves out scales.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor


class ValueTable:
    """One table row of values per code of a byte (or per `index` made from the bytes)."""

    def __init__(self, table: Tensor) -> None:
        """`table` float32 [entries, values per entry], 1, 2, 4 or 8 of them."""
        self.per = table.shape[1]
        # Moving 8 or 16 bytes at once is what makes a table faster than arithmetic.
        kind = {1: torch.float32, 2: torch.int64}.get(self.per, torch.complex128)
        cells = table.contiguous().view(kind)
        # torch picks from a vector three times as fast as from a matrix of one column.
        self.cells = cells.squeeze(1) if cells.shape[1] == 1 else cells

    def to(self, device: torch.device) -> ValueTable:
        """The same table on another device."""
        if self.cells.device == device:
            return self
        moved = copy.copy(self)
        moved.cells = self.cells.to(device)
        return moved

    def __call__(self, raw: Tensor, out: Tensor) -> None:
        self.fill(raw.int(), out)

    def fill(self, index: Tensor, out: Tensor) -> None:
        """`index` int32 or int64 [n, entries per row] into out [n, columns]."""
        wide = index.shape[1] * self.per
        fits = wide == out.shape[1] and out.is_contiguous()
        into = out if fits else torch.empty(len(index), wide, device=out.device)
        cells = into.view(self.cells.dtype).view(-1, *self.cells.shape[1:])
        torch.index_select(self.cells, 0, index.reshape(-1), out=cells)
        if not fits:
            out.copy_(into[:, : out.shape[1]])


def fields_of(bits: int, per: int) -> Tensor:
    """int64 [2^(bits * per), per]: the fields of every word of `per` fields, lowest bits first."""
    words = torch.arange(1 << (bits * per)).unsqueeze(1)
    return (words >> (torch.arange(per) * bits)) & ((1 << bits) - 1)
