"""Projection rows as float32 tiles: where weights are decoded, a few thousand rows at a time.

A head may hold a billion weights; only `tile` and `gather` turn stored bytes into floats, so the
float32 copy of a whole head never exists. Rows are in the order of ascending target id.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor


class Rows(ABC):
    """A [count, columns] matrix that is read in pieces."""

    count: int
    columns: int
    scale: float = 1.0
    """A factor for the whole matrix that lies beside it and has been applied."""

    @abstractmethod
    def tile(self, start: int, stop: int) -> Tensor:
        """Rows start..stop-1 as float32 [stop - start, columns] on the CPU; never write to them,
        they may be the file's own map."""

    @abstractmethod
    def gather(self, index: Tensor) -> Tensor:
        """The rows named by `index` (int64 [n]) as float32 [n, columns] on the CPU."""


class DenseRows(Rows):
    """Rows that already lie in memory, in any float type."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self.count, self.columns = weight.shape

    def tile(self, start: int, stop: int) -> Tensor:
        return self.weight[start:stop].float()

    def gather(self, index: Tensor) -> Tensor:
        return self.weight.index_select(0, index.to(self.weight.device)).float()


class StoredRows(Rows):
    """Rows as they lie in a file: uint8 [count, bytes per row] and the function that decodes them.

    Every format this product reads packs each row on its own, so any set of rows can be picked as
    bytes before it is decoded.
    """

    def __init__(
        self, raw: Tensor, columns: int, decode: Callable[[Tensor], Tensor], scale: float = 1.0
    ) -> None:
        self.raw, self.columns, self.scale = raw, columns, scale
        self._decode = decode
        self.count = raw.shape[0]

    def tile(self, start: int, stop: int) -> Tensor:
        return self._floats(self.raw[start:stop])

    def gather(self, index: Tensor) -> Tensor:
        return self._floats(self.raw.index_select(0, index))

    def _floats(self, raw: Tensor) -> Tensor:
        values = self._decode(raw)
        return values if self.scale == 1.0 else values * self.scale


class SelectedRows(Rows):
    """Some rows of another matrix, in the order of `index` (int64 [count])."""

    def __init__(self, base: Rows, index: Tensor) -> None:
        self.base, self.index = base, index
        self.count, self.columns = len(index), base.columns

    def tile(self, start: int, stop: int) -> Tensor:
        return self.base.gather(self.index[start:stop])

    def gather(self, index: Tensor) -> Tensor:
        return self.base.gather(self.index[index])


class AdaptedRows(Rows):
    """Rows plus a low-rank change: base + left @ right, as a LoRA adapter on the head gives.

    `left` is float32 [count, rank] with the adapter's scale already in it, `right` [rank, columns].
    """

    def __init__(self, base: Rows, left: Tensor, right: Tensor) -> None:
        self.base, self.left, self.right = base, left, right
        self.count, self.columns = base.count, base.columns

    def tile(self, start: int, stop: int) -> Tensor:
        return torch.addmm(self.base.tile(start, stop), self.left[start:stop], self.right)

    def gather(self, index: Tensor) -> Tensor:
        return torch.addmm(self.base.gather(index), self.left[index], self.right)
