"""torchao's tensor classes as its safetensors helper stores them.

The header's metadata names the class of each weight and its attributes as JSON; the data lie in
`{layer}._weight_qdata` and the like. Classes whose layout only a kernel knows are refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from audit.errors import UnreadableError
from audit.heads.packed.codes import E2M1, FLOAT8, Codec, nibbles, signed_bytes, signed_nibbles
from audit.heads.packed.formats import PackedFormat
from audit.heads.packed.modelopt import one_number
from audit.heads.packed.module import Module
from audit.heads.packed.rows import (
    Groups,
    PackedRows,
    Smoothing,
    Source,
    columns_of,
    mapped,
    rows_of,
)
from audit.heads.packed.scales import Granularity, row_groups, scale_source

_QDATA, _SCALE, _ZERO = "_weight_qdata", "_weight_scale", "_weight_zero_point"
_PRE, _GLOBAL = "_weight_act_pre_scale", "_weight_per_tensor_scale"


class TorchAo(PackedFormat):
    """Per class: see the readers below."""

    name = "torchao"
    variants = (
        "Float8Tensor, Int8Tensor, IntxUnpackedToInt8Tensor, Int4Tensor, NVFP4Tensor and MXTensor "
        "(FP8 and FP4) with plain scales; swizzled scales, tile-packed and preshuffled layouts are "
        "refused"
    )
    verified = "independent writer; float8, int8, intx, NVFP4 and MX also the torchao library"
    methods = frozenset({"torchao"})
    primary = _QDATA

    def stored(self, module: Module) -> bool:
        """Names of torchao's flattened tensors."""
        return module.has(_QDATA)

    def read(self, module: Module) -> tuple[PackedRows, str]:
        """See the class."""
        kind, attributes = _described(module)
        reader = _READERS.get(kind)
        if reader is None:
            raise module.refuse(f"is torchao's {kind}, whose layout only its kernel knows")
        if attributes.get("is_swizzled_scales") is True:
            raise module.refuse(f"is torchao's {kind} with swizzled scales, which are not read")
        return reader(module, attributes)


def _described(module: Module) -> tuple[str, Mapping[str, Any]]:
    """Class name and attributes from the header's metadata."""
    text = module.container.metadata.get(module.name("weight"))
    if text is None:
        raise module.missing("weight", "description in the header's metadata")
    try:
        value = json.loads(text)
        kind, data = value["_type"], value["_data"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnreadableError(
            f"the header's metadata of {module.name('weight')} is not torchao's",
            hint="export the head again",
            where=module.container.path,
        ) from error
    return str(kind)[:60], data if isinstance(data, dict) else {}


def _enum(value: Any) -> str:
    """The name in torchao's JSON of an enum or dtype."""
    return str(value.get("_data")) if isinstance(value, dict) else str(value)


def _shape(module: Module, per_byte: int = 1) -> tuple[int, int]:
    stored = module.shape(_QDATA)
    if len(stored) != 2 or 0 in stored:
        raise module.refuse(f"has codes of shape {list(stored)}, not [rows, columns]")
    return stored[0], stored[1] * per_byte


def _blocks(module: Module, attributes: Mapping[str, Any], shape: tuple[int, int]) -> Granularity:
    """Granularity by `block_size` [rows, columns] per scale, checked against the scales."""
    block = attributes.get("block_size")
    if (
        not isinstance(block, list)
        or len(block) != 2
        or not all(type(n) is int and n > 0 for n in block)
    ):
        raise module.refuse(f"has the block_size {block!r:.40}, not two positive numbers")
    height, width = min(block[0], shape[0]), min(block[1], shape[1])
    wanted = (-(-shape[0] // height), -(-shape[1] // width))
    allowed: list[tuple[int, ...]] = [wanted]
    allowed += [()] if wanted == (1, 1) else []
    allowed += [wanted[:1]] if wanted[1] == 1 else []
    module.check_shape(module.need(_SCALE), *allowed)
    if wanted == (1, 1):
        return Granularity("tensor", shape[1], 0)
    said = "row" if wanted == (shape[0], 1) else f"g{width}"
    return Granularity(said if height == 1 else f"{height}x{width}", width, height)


def _smoothing(module: Module, columns: int) -> Smoothing | None:
    if not module.has(_PRE):
        return None
    module.check_shape(_PRE, (columns,), (1, columns), (1,), ())
    return Smoothing(module.floats(_PRE).flatten())


def _float8(module: Module, attributes: Mapping[str, Any]) -> tuple[PackedRows, str]:
    """code * scale of its block."""
    shape = _shape(module)
    how = _blocks(module, attributes, shape)
    codec = FLOAT8[module.entry(module.check_type(_QDATA, *FLOAT8)).encoding]
    groups = Groups(scale_source(module, _SCALE, how), how.size)
    rows = PackedRows(shape, rows_of(module.raw(_QDATA)), codec, groups)
    return rows, f"torchao-FP8 {how.said}"


def _int8(module: Module, attributes: Mapping[str, Any]) -> tuple[PackedRows, str]:
    """(code - zero point) * scale of its block."""
    shape = _shape(module)
    module.check_type(_QDATA, "I8")
    how = _blocks(module, attributes, shape)
    zeros: Source | None = None
    if module.has(_ZERO):
        stored = module.shape(module.check_shape(_ZERO, module.shape(_SCALE)))
        if module.entry(_ZERO).encoding.startswith(("F", "BF")):
            zeros = scale_source(module, _ZERO, how)
        else:
            points = module.tensor(_ZERO).reshape(stored[0] if how.height and stored else 1, -1)
            zeros = mapped(how.place(points), Tensor.float)
    groups = Groups(scale_source(module, _SCALE, how), how.size, zeros)
    codes, smoothed = rows_of(module.raw(_QDATA)), _smoothing(module, shape[1])
    rows = PackedRows(shape, codes, signed_bytes, groups, smoothed)
    bits = _enum(attributes.get("target_dtype", "int8")).removeprefix("torch.")
    return rows, f"torchao-{bits.upper()} {how.said}"


def _int4(module: Module, attributes: Mapping[str, Any]) -> tuple[PackedRows, str]:
    """code * scale + zero, both transposed: [groups, rows]; low nibble first, two's complement."""
    shape = _shape(module, 2)
    block = attributes.get("block_size")
    size = block[-1] if isinstance(block, list) and block else 0
    if type(size) is not int or size <= 0:
        raise module.refuse(f"has the block_size {block!r:.40}, not two positive numbers")
    wanted = (-(-shape[1] // size), shape[0])
    for leaf, what in ((_SCALE, "scales"), (_ZERO, "zero points")):
        module.check_shape(module.need(leaf, what), wanted)
    scales, shifts = (
        mapped(columns_of(module.wide_floats(n)), Tensor.float) for n in (_SCALE, _ZERO)
    )
    groups = Groups(scales, size, shifts=shifts)
    codes, smoothed = rows_of(module.raw(_QDATA)), _smoothing(module, shape[1])
    rows = PackedRows(shape, codes, signed_nibbles(), groups, smoothed)
    return rows, f"torchao-INT4 g{size}"


def _nvfp4(module: Module, attributes: Mapping[str, Any]) -> tuple[PackedRows, str]:
    """E2M1 * (scale * per_tensor_scale)."""
    shape = _shape(module, 2)
    module.check_type(module.need(_SCALE), "F8_E4M3")
    source = row_groups(module, _SCALE, shape, 16)
    if module.has(_GLOBAL):
        factor = one_number(module, _GLOBAL)
        source = mapped(source, lambda scales: scales.mul_(factor))
    groups = Groups(source, 16)
    rows = PackedRows(shape, rows_of(module.raw(_QDATA)), nibbles(E2M1), groups)
    return rows, "torchao-NVFP4 g16"


def _mx(module: Module, attributes: Mapping[str, Any]) -> tuple[PackedRows, str]:
    """code * 2^(scale - 127)."""
    element = _enum(attributes.get("elem_dtype")).removeprefix("torch.")
    size = attributes.get("block_size")
    codecs: dict[str, tuple[Codec, int]] = {
        "float8_e4m3fn": (FLOAT8["F8_E4M3"], 1),
        "float8_e5m2": (FLOAT8["F8_E5M2"], 1),
        "float4_e2m1fn_x2": (nibbles(E2M1), 2),
    }
    if element not in codecs or type(size) is not int or size <= 0:
        raise module.refuse(f"is torchao's MXTensor of {element[:40]}, which is not read")
    codec, per_byte = codecs[element]
    shape = _shape(module, per_byte)
    module.check_type(module.need(_SCALE), "U8", "F8_E8M0")
    source = row_groups(module, _SCALE, shape, size, bytes_are_e8m0=True)
    rows = PackedRows(shape, rows_of(module.raw(_QDATA)), codec, Groups(source, size))
    return rows, f"torchao-MX{'FP4' if per_byte == 2 else 'FP8'} g{size}"


_READERS: dict[str, Callable[[Module, Mapping[str, Any]], tuple[PackedRows, str]]] = {
    "Float8Tensor": _float8,
    "Int8Tensor": _int8,
    "IntxUnpackedToInt8Tensor": _int8,
    "Int4Tensor": _int4,
    "NVFP4Tensor": _nvfp4,
    "MXTensor": _mx,
}
