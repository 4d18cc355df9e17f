"""Rows of a packed matrix: W[n, k] = (code[n, k] - zero[n, group of k]) * scale[n, group of k].

Whatever a format does to bytes, it hands over sources that give the bytes, scales and zero points
of chosen rows in row order; everything else is one arithmetic. Nothing is decoded before `tile` or
`gather` asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.files.chunks import in_chunks
from audit.heads.packed.codes import Codec
from audit.heads.rows import Rows

Pick = slice | Tensor
"""Rows start..stop-1, or int64 [n]."""

Source = Callable[[Pick], Tensor]
"""The part [n, ...] of a stored tensor that belongs to the picked rows."""


def rows_of(tensor: Tensor) -> Source:
    """Rows of a tensor whose first dimension is the output."""

    def source(pick: Pick) -> Tensor:
        return tensor[pick] if isinstance(pick, slice) else tensor.index_select(0, pick)

    return source


def columns_of(tensor: Tensor) -> Source:
    """The same of a tensor [..., output] that lies the other way round."""

    def source(pick: Pick) -> Tensor:
        part = tensor[:, pick] if isinstance(pick, slice) else tensor.index_select(1, pick)
        # torch takes an empty transposed tensor for contiguous whatever its strides are.
        return part.t().contiguous() if part.numel() else part.new_empty(part.t().shape)

    return source


def blocks_of(tensor: Tensor, height: int) -> Source:
    """Rows of a tensor that has one row for every `height` rows of the matrix."""
    return lambda pick: tensor.index_select(0, numbers(pick) // height)


def same_for_all(tensor: Tensor) -> Source:
    """One row [1, ...] that serves every row of the matrix."""

    def source(pick: Pick) -> Tensor:
        count = pick.stop - pick.start if isinstance(pick, slice) else len(pick)
        return tensor.expand(count, *tensor.shape[1:])

    return source


def mapped(source: Source, change: Callable[[Tensor], Tensor]) -> Source:
    """`change` applied to whatever `source` gives."""
    return lambda pick: change(source(pick))


def numbers(pick: Pick) -> Tensor:
    """The picked rows' numbers, int64 [n]."""
    return torch.arange(pick.start, pick.stop) if isinstance(pick, slice) else pick


@dataclass(frozen=True, slots=True, eq=False)
class _Terms:
    """Scales, zero points and shifts of picked rows, float32 [n, groups] each."""

    size: int
    scales: Tensor
    zeros: Tensor | None
    shifts: Tensor | None
    order: Tensor | None
    """int64 [columns], the group of each column; None where they are in order."""

    def part(self, rows: slice, groups: slice | tuple[slice, None]) -> _Terms:
        """Some rows and groups; a None adds a dimension for the columns of a group."""
        at = (rows, *groups) if isinstance(groups, tuple) else (rows, groups)
        zeros, shifts = (None if t is None else t[at] for t in (self.zeros, self.shifts))
        return _Terms(self.size, self.scales[at], zeros, shifts, None)

    def spread(self, order: Tensor) -> _Terms:
        """One of each per column."""
        zeros, shifts = (
            None if t is None else t.index_select(1, order) for t in (self.zeros, self.shifts)
        )
        return _Terms(1, self.scales.index_select(1, order), zeros, shifts, None)

    def apply(self, out: Tensor, rows: slice) -> None:
        """(out - zeros) * scales + shifts in place, for `rows` of the picked ones."""
        columns, every = out.shape[1], slice(None)
        if self.order is not None:
            self.part(rows, every).spread(self.order).affine(out)
            return
        whole = columns // self.size
        if self.scales.shape[1] == 1 or not whole:
            self.part(rows, every).affine(out)
            return
        main = out[:, : whole * self.size].unflatten(1, (whole, self.size))
        self.part(rows, (slice(whole), None)).affine(main)
        if whole * self.size < columns:
            self.part(rows, slice(whole, None)).affine(out[:, whole * self.size :])

    def affine(self, out: Tensor) -> None:
        """The same where all of them broadcast over `out`."""
        if self.zeros is not None:
            out.sub_(self.zeros)
        out.mul_(self.scales)
        if self.shifts is not None:
            out.add_(self.shifts)


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Scales and zero points of column groups."""

    scales: Source
    """float32 [n, groups]."""
    size: int
    """Columns per group; the last group may be narrower."""
    zeros: Source | None = None
    """float32 [n, groups], in codes: subtracted before the scale."""
    shifts: Source | None = None
    """float32 [n, groups], in weights: added after the scale."""
    of_column: Tensor | None = None
    """int64 [columns], the group of each column where they are not in order."""

    def of(self, pick: Pick) -> _Terms:
        """The numbers of the picked rows."""
        zeros, shifts = (None if s is None else s(pick) for s in (self.zeros, self.shifts))
        return _Terms(self.size, self.scales(pick), zeros, shifts, self.of_column)


@dataclass(frozen=True, slots=True, eq=False)
class Smoothing:
    """What is applied to a decoded row: a low-rank part, then a factor per input channel."""

    channels: Tensor | None = None
    """float32 [columns]."""
    left: Source | None = None
    """float32 [n, rank]."""
    right: Tensor | None = None
    """float32 [rank, columns]."""

    def apply(self, out: Tensor, pick: Pick) -> None:
        """Change `out` [n, columns], the picked rows, in place."""
        if self.left is not None and self.right is not None:
            out.addmm_(self.left(pick), self.right)
        if self.channels is not None:
            out.mul_(self.channels)


class PackedRows(Rows):
    """A packed matrix; one object per stored matrix."""

    def __init__(
        self,
        shape: tuple[int, int],
        codes: Source,
        codec: Codec,
        groups: Groups | None,
        smoothing: Smoothing | None = None,
    ) -> None:
        """
        Args:
            shape: [rows, columns] of the matrix that the codes stand for.
            codes: uint8 [n, bytes per row].
            codec: what the bytes mean.
            groups: None where the codec's values are the weights.
        """
        self.count, self.columns = shape
        self.codes, self.codec, self.groups = codes, codec, groups
        self.smoothing = smoothing

    def tile(self, start: int, stop: int) -> Tensor:
        return self._decode(slice(start, min(stop, self.count)))

    def gather(self, index: Tensor) -> Tensor:
        return self._decode(index)

    def _decode(self, pick: Pick) -> Tensor:
        raw = self.codes(pick)
        out = torch.empty(len(raw), self.columns)
        terms = self.groups.of(pick) if self.groups else None

        def work(start: int, stop: int) -> None:
            part = out[start:stop]
            self.codec(raw[start:stop], part)
            if terms:
                terms.apply(part, slice(start, stop))

        in_chunks(len(raw), self.columns, work)
        if self.smoothing:
            self.smoothing.apply(out, pick)
        return out
