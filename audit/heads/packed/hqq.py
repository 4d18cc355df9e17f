"""HQQ: the matrix reshaped to groups, and the groups packed by halves, quarters or tenths.

axis 1 reshapes [N, K] to [N*K/g, g] and axis 0 to [g, N*K/g], called groups here; scale and zero
are one per row (axis 1) or per column (axis 0) of it. With b bits, a byte holds 8 / b rows of the
reshaped matrix that lie that share of it apart, the first in the highest bits; three bits take ten
rows per int32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.errors import MismatchError
from audit.heads.packed.codes import integers
from audit.heads.packed.formats import PackedFormat
from audit.heads.packed.module import Module
from audit.heads.packed.rows import Groups, PackedRows, Pick, Source, numbers, rows_of

_PER_WORD = {8: (1, 1), 4: (2, 1), 2: (4, 1), 1: (8, 1), 3: (10, 4)}
"""Bits -> rows per word, bytes per word."""


class Hqq(PackedFormat):
    """W = ((codes - zero) * scale) of the reshaped matrix, reshaped back."""

    name = "HQQ"
    variants = "1, 2, 3, 4 and 8 bits, axis 0 and 1; quantized scales or zeros are refused"
    verified = "independent writer and the hqq library's packing; exact in float32"
    methods = frozenset({"hqq"})
    primary = "W_q"

    def stored(self, module: Module) -> bool:
        """Names of HQQLinear."""
        return module.has("W_q")

    def read(self, module: Module) -> tuple[PackedRows, str]:
        """See the class."""
        for leaf in ("quant_scale", "quant_zero"):
            if module.has(leaf) and _number(module, leaf):
                raise module.refuse("is HQQ with quantized scales or zeros, which are not read")
        for leaf in ("scale", "zero"):
            module.need(leaf, "scales" if leaf == "scale" else "zero points")
        packing = _Packing.of(module)
        layout = packing.shape
        wanted = (layout[0], 1) if packing.axis else (1, layout[1])
        scale, zero = (
            module.floats(module.check_shape(leaf, wanted, (math.prod(wanted),))).flatten()
            for leaf in ("scale", "zero")
        )
        groups = packing.groups(scale, zero)
        rows = PackedRows(packing.matrix, packing.codes(module), integers(8), groups)
        return rows, f"HQQ-{packing.bits} g{packing.group}{'' if packing.axis else ' axis 0'}"


def _number(module: Module, leaf: str) -> int:
    values = module.integers(leaf).flatten()
    if len(values) != 1:
        raise module.refuse(f"has {len(values)} values in {module.name(leaf)} instead of one")
    return int(values[0])


@dataclass(frozen=True, slots=True)
class _Packing:
    """Where code [n, k] of a matrix lies."""

    bits: int
    matrix: tuple[int, int]
    group: int
    axis: int

    @staticmethod
    def of(module: Module) -> _Packing:
        """From HQQ's own tensors; the configuration must agree on bits and groups."""
        leaves = {"nbits": "bits", "shape": "shape", "axis": "axis"}
        for leaf, what in leaves.items():
            module.need(leaf, what)
        bits, axis = _number(module, "nbits"), _number(module, "axis")
        shape = module.integers(module.check_shape("shape", (2,), code="PACKED_SHAPE")).tolist()
        whole = shape[1] if axis else shape[0]
        group = _number(module, "group_size") if module.has("group_size") else whole
        if bits not in _PER_WORD or axis not in (0, 1) or min(*shape, group) < 1:
            raise module.refuse(f"is HQQ with {bits} bits, axis {axis} and groups of {group}")
        if shape[0] * shape[1] % group:
            raise module.refuse(f"has groups of {group} that do not divide {shape}")
        declared = module.declared.number("nbits", "bits")
        if declared not in (None, bits):
            raise module.contradiction(f"{declared} bits", f"{module.name('nbits')} is {bits}")
        return _Packing(bits, (int(shape[0]), int(shape[1])), group, axis)

    @property
    def shape(self) -> tuple[int, int]:
        """Of the reshaped matrix."""
        other = self.matrix[0] * self.matrix[1] // self.group
        return (other, self.group) if self.axis else (self.group, other)

    def codes(self, module: Module) -> Source:
        """Codes as bytes [n, columns]; PACKED_SHAPE when W_q does not have that many words."""
        (height, width), (per, size) = self.shape, _PER_WORD[self.bits]
        step = -(-height // per)
        raw = module.raw("W_q").reshape(-1)
        if len(raw) != step * width * size or (self.bits != 3 and height % per):
            raise MismatchError(
                f"{module.name('W_q')} has {len(raw)} bytes, {self.bits} bits for {height} x "
                f"{width} take {step * width * size}",
                hint="the tensors of this layer do not belong together: export the head again",
                where=module.container.path,
                code="PACKED_SHAPE",
            )
        words = raw.clone().view(torch.int32) if size == 4 else raw
        words = words.view(step, width)
        if self.axis and self.matrix[1] % self.group == 0:
            return self._whole_groups(words, step)
        return self._by_element(words, step)

    def _shift(self, part: Tensor) -> Tensor:
        """How far right the rows of the given part lie in their words."""
        return (_PER_WORD[self.bits][0] - 1 - part) * self.bits

    def _whole_groups(self, words: Tensor, step: int) -> Source:
        """Rows that are whole groups: moved group by group."""
        each = self.matrix[1] // self.group

        def source(pick: Pick) -> Tensor:
            line = (numbers(pick).unsqueeze(1) * each + torch.arange(each)).flatten()
            picked = words.index_select(0, line % step)
            shift = self._shift(line // step).to(words.dtype).unsqueeze(1)
            codes = (picked >> shift) & ((1 << self.bits) - 1)
            return codes.to(torch.uint8).view(-1, self.matrix[1])

        return source

    def _by_element(self, words: Tensor, step: int) -> Source:
        """Rows that are not: each code is looked up by its place."""

        def source(pick: Pick) -> Tensor:
            line, column = self._places(pick)
            picked = words[line % step, column]
            shift = self._shift(line // step).to(words.dtype)
            return ((picked >> shift) & ((1 << self.bits) - 1)).to(torch.uint8)

        return source

    def _places(self, pick: Pick) -> tuple[Tensor, Tensor]:
        """Row and column in the reshaped matrix of every picked element, int64 [n, columns]."""
        flat = numbers(pick).unsqueeze(1) * self.matrix[1] + torch.arange(self.matrix[1])
        return flat // self.shape[1], flat % self.shape[1]

    def groups(self, scale: Tensor, zero: Tensor) -> Groups:
        """Scales and zeros of the rows, one per group or, where groups straddle, per element."""
        if self.axis and self.matrix[1] % self.group == 0:
            each = self.matrix[1] // self.group
            scales, zeros = (rows_of(v.view(self.matrix[0], each)) for v in (scale, zero))
            return Groups(scales, self.group, zeros)

        def by_element(values: Tensor) -> Source:
            return lambda pick: values[self._places(pick)[0 if self.axis else 1]]

        return Groups(by_element(scale), 1, by_element(zero))
