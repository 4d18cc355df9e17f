"""ModelOpt: INT4-AWQ, and what may go with any of its formats (`pre_quant_scale`, SVDQuant).

Its NVFP4 is in `fp4`, its FP8 and INT8 in `scaled`, as other tools store the same bytes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from audit.heads.packed.codes import signed_bytes
from audit.heads.packed.formats import PackedFormat
from audit.heads.packed.module import Module
from audit.heads.packed.rows import (
    Groups,
    PackedRows,
    Pick,
    Smoothing,
    Source,
    mapped,
    numbers,
    rows_of,
)
from audit.heads.packed.scales import group_size, row_groups, to_floats


class ModelOptInt4(PackedFormat):
    """Byte [i, k] holds rows 2i (low nibble) and 2i + 1 (high) of column k, two's complement."""

    name = "ModelOpt INT4-AWQ"
    variants = "any group size, `pre_quant_scale`, SVDQuant's low-rank part"
    verified = "independent writer; exact"
    methods = frozenset({"modelopt"})

    def stored(self, module: Module) -> bool:
        """u8 weight with twice as many rows of float scales."""
        if not module.has("weight", "weight_scale") or module.entry("weight").encoding != "U8":
            return False
        weight, scale = module.shape("weight"), module.shape("weight_scale")
        return len(weight) == len(scale) == 2 and scale[0] == 2 * weight[0]

    def read(self, module: Module) -> tuple[PackedRows, str]:
        """W[n, k] = code * weight_scale[n, k // g], then low rank and channel factors."""
        half, columns = module.shape("weight")
        shape = (2 * half, columns)
        size = group_size(module, "weight_scale", columns)
        if module.has("weight_scale_2"):
            raise module.refuse("is W4A8 (weight_scale_2 beside 4-bit rows), which is not read")
        groups = Groups(row_groups(module, "weight_scale", shape, size), size)
        codes = _row_pairs(module.raw("weight"))
        rows = PackedRows(shape, codes, signed_bytes, groups, smoothing(module, shape))
        return rows, f"ModelOpt-INT4 g{size}{extras(module)}"


def _row_pairs(weight: Tensor) -> Source:
    """Rows of int8 codes from bytes that hold two rows each."""

    def source(pick: Pick) -> Tensor:
        row = numbers(pick)
        both = weight.index_select(0, row // 2)
        # To the top of the byte first: the arithmetic shift back then carries the sign.
        left = (4 * (1 - row % 2)).to(torch.uint8).unsqueeze(1)
        return ((both << left).view(torch.int8) >> 4).view(torch.uint8)

    return source


def smoothing(module: Module, shape: tuple[int, int]) -> Smoothing | None:
    """`(W + svdquant_lora_b @ svdquant_lora_a) * pre_quant_scale`, as far as the file has them.

    The engine multiplies the input by `pre_quant_scale`, which is the same as the weight's columns.
    """
    rows, columns = shape
    channels = left = right = None
    if module.has("pre_quant_scale"):
        module.check_shape("pre_quant_scale", (columns,), (1, columns))
        channels = module.floats("pre_quant_scale").flatten()
    if module.first("svdquant_lora_a", "svdquant_lora_b"):
        module.need("svdquant_lora_a", "low-rank part")
        module.need("svdquant_lora_b", "low-rank part")
        right = module.floats("svdquant_lora_a")
        module.check_shape("svdquant_lora_a", (right.shape[0], columns), code="PACKED_SHAPE")
        module.check_shape("svdquant_lora_b", (rows, right.shape[0]), code="PACKED_SHAPE")
        convert = to_floats(module, "svdquant_lora_b")
        left = mapped(rows_of(module.raw("svdquant_lora_b")), convert)
    return Smoothing(channels, left, right) if module.first(*_EXTRAS) else None


_EXTRAS = {"svdquant_lora_a": "low rank", "pre_quant_scale": "pre-scaled"}


def extras(module: Module) -> str:
    """The parts of `smoothing` for people: empty, or such as ` pre-scaled`."""
    return "".join(f" {said}" for leaf, said in _EXTRAS.items() if module.has(leaf))


def one_number(module: Module, leaf: str) -> float:
    """A scale for the whole tensor; SCALE_SHAPE unless it is one number."""
    module.check_shape(leaf, (), (1,), (1, 1))
    return float(module.floats(leaf))
