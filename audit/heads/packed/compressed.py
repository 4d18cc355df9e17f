"""compressed-tensors `pack-quantized`: integers of 2 to 8 bits in int32 words, row by row.

Field i of a row is bits i*b to i*b + b - 1 of its stream of little-endian words, minus 2^(b-1);
older releases put 32 // b fields into each word and wasted the rest. The widths tell them apart.
"""

from __future__ import annotations

import torch
from torch import Tensor

from audit.errors import MismatchError
from audit.heads.packed.codes import Codec, integers, spaced_integers
from audit.heads.packed.formats import PackedFormat
from audit.heads.packed.module import Module
from audit.heads.packed.rows import Groups, PackedRows, Source, columns_of, mapped, rows_of
from audit.heads.packed.scales import granularity, scale_source

_BITS = range(2, 9)


def dense_words(count: int, bits: int) -> int:
    """Words of 32 bits that `count` fields fill without gaps."""
    return -(-count * bits // 32)


def spaced_words(count: int, bits: int) -> int:
    """Words that `count` fields fill when none straddles two of them."""
    return -(-count // (32 // bits))


def is_dense(words: Tensor, count: int, bits: int) -> bool | None:
    """Whether rows of `words` int32 [n, w] hold `count` fields without gaps; None if neither fits.

    Short rows may take as many words either way. Then the bits that the padded packing wastes tell:
    in the dense one they hold codes.
    """
    dense, spaced = (f(count, bits) == words.shape[1] for f in (dense_words, spaced_words))
    if dense and spaced and 32 % bits:
        spare = -(1 << (32 // bits * bits))
        return bool((words & spare).any())
    return dense if dense or spaced else None


class PackQuantized(PackedFormat):
    """W[n, k] = (code - zero[n, k // g]) * scale[n, k // g]."""

    name = "compressed-tensors pack-quantized"
    variants = (
        "2 to 8 bits, dense and padded words; scales per tensor, row or group; zero points; "
        "`weight_g_idx`"
    )
    verified = "independent writer and the compressed-tensors library; exact"
    methods = frozenset({"compressed-tensors"})
    primary = "weight_packed"

    def stored(self, module: Module) -> bool:
        """Packed int32 words."""
        return module.has("weight_packed") and module.entry("weight_packed").encoding == "I32"

    def read(self, module: Module) -> tuple[PackedRows, str]:
        """See the class."""
        leaf = module.need("weight_scale")
        shape = _shape(module)
        bits, dense = _packing(module, shape)
        fields = integers if dense else spaced_integers
        how = granularity(module, leaf, shape)
        zeros = _zeros(module, leaf, shape, bits, dense) if _has_zeros(module) else None
        order = _column_groups(module, shape[1], how.size)
        groups = Groups(scale_source(module, leaf, how), how.size, zeros, of_column=order)
        rows = PackedRows(
            shape, rows_of(module.raw("weight_packed")), fields(bits, 1 << (bits - 1)), groups
        )
        return rows, f"CT-INT{bits} {how.said}{' act-order' if order is not None else ''}"


def _shape(module: Module) -> tuple[int, int]:
    leaf = module.need("weight_shape", "shape")
    values = module.integers(module.check_shape(leaf, (2,), code="PACKED_SHAPE")).tolist()
    packed = module.shape("weight_packed")
    if len(packed) == 2 and values[0] == packed[0] and values[1] > 0:
        return int(values[0]), int(values[1])
    raise MismatchError(
        f"{module.name(leaf)} says {values}, {module.name('weight_packed')} is {list(packed)}",
        hint="the tensors of this layer do not belong together: export the head again",
        where=module.container.path,
        code="PACKED_SHAPE",
    )


def _packing(module: Module, shape: tuple[int, int]) -> tuple[int, bool]:
    """Bits, and whether they are dense: as the configuration says, which the width must fit."""
    words = module.tensor("weight_packed")
    declared = module.declared.number("num_bits")
    wanted = [b for b in _BITS if declared in (None, b)]
    fits = {b: is_dense(words, shape[1], b) for b in wanted}
    found = {b: dense for b, dense in fits.items() if dense is not None}
    if len(found) == 1:
        return next(iter(found.items()))
    stored = (
        f"{module.name('weight_packed')} has {words.shape[1]} words per row of {shape[1]} columns"
    )
    if declared is not None:
        raise module.contradiction(f"{declared} bits", stored)
    if found:
        likely = " or ".join(str(bits) for bits in found)
        raise module.refuse(f"may have {likely} bits: {stored}", "put config.json beside the file")
    raise MismatchError(
        f"{stored}, which no packing of 2 to 8 bits has",
        hint="the tensors of this layer do not belong together: export the head again",
        where=module.container.path,
        code="PACKED_SHAPE",
    )


def _has_zeros(module: Module) -> bool:
    asymmetric = module.declared.flag("symmetric") is False
    return asymmetric or module.has("weight_zero_point")


def _zeros(module: Module, scale: str, shape: tuple[int, int], bits: int, dense: bool) -> Source:
    """Zero points [rows, groups]: int8, or packed as the codes are but along the rows."""
    leaf, rows = module.need("weight_zero_point", "zero points"), shape[0]
    groups = module.shape(scale)[-1] if len(module.shape(scale)) == 2 else 1
    if module.entry(leaf).encoding == "I8":
        module.check_shape(leaf, (rows, groups))
        return mapped(rows_of(module.tensor(leaf)), Tensor.float)
    module.check_type(leaf, "I32")
    module.check_shape(leaf, ((dense_words if dense else spaced_words)(rows, bits), groups))
    codec = (integers if dense else spaced_integers)(bits, 1 << (bits - 1))
    words = module.tensor(leaf).t().contiguous()
    return mapped(columns_of(unpacked(words.view(torch.uint8), codec, rows)), Tensor.float)


def unpacked(raw: Tensor, codec: Codec, count: int) -> Tensor:
    """The integers in raw uint8 [n, bytes] as int16 [n, count], a row at a time in float32."""
    whole = torch.empty(len(raw), count, dtype=torch.int16)
    for line, bytes_ in zip(whole.split(1), raw.split(1), strict=True):
        values = torch.empty(1, count)
        codec(bytes_, values)
        line.copy_(values)
    return whole


def _column_groups(module: Module, columns: int, size: int) -> Tensor | None:
    """Group of each column, None where they are in order; the tools rank columns by `g_idx`."""
    if not module.has("weight_g_idx"):
        return None
    index = module.integers(module.check_shape("weight_g_idx", (columns,), code="PACKED_SHAPE"))
    if bool((index == -1).any()):
        return None  # how the tools say that the columns are in order
    ranks = torch.empty(columns, dtype=torch.int64)
    ranks[torch.argsort(index, stable=True)] = torch.arange(columns)
    groups = ranks // size
    if not torch.equal(groups, index.long()):
        raise MismatchError(
            f"{module.name('weight_g_idx')} does not put {size} columns into each group",
            hint="the tensors of this layer do not belong together: export the head again",
            where=module.container.path,
            code="PACKED_SHAPE",
        )
    return groups
