"""One code per byte times a scale: FP8 and INT8 weights of most tools, and MXFP8.

The scales tell their granularity by their shape. `weight_scale_inv` and `.scale` multiply, whatever
the first one's name says.
"""

from __future__ import annotations

from torch import Tensor

from audit.heads.packed.codes import FLOAT8, signed_bytes
from audit.heads.packed.formats import PackedFormat
from audit.heads.packed.modelopt import extras, smoothing
from audit.heads.packed.module import Module
from audit.heads.packed.rows import Groups, PackedRows, Source, mapped, rows_of
from audit.heads.packed.scales import Granularity, granularity, row_groups, scale_source

_SCALES = ("weight_scale", "weight_scale_inv", "qscale_weight", "scale")
_MX = 32


def _shape(module: Module) -> tuple[int, int]:
    stored = module.shape("weight")
    if len(stored) != 2 or 0 in stored:
        raise module.refuse(f"has codes of shape {list(stored)}, not [rows, columns]")
    return stored[0], stored[1]


class ScaledFloat8(PackedFormat):
    """W = code * scale, the scale per tensor, row, group of columns or block."""

    name = "FP8"
    variants = (
        "compressed-tensors, ModelOpt, FBGEMM, block-wise (`weight_scale_inv`, `.scale`), Mistral "
        "(`qscale_weight`); E4M3 and E5M2; scales per tensor, row, group or block; MXFP8"
    )
    verified = "independent writer, torch's own conversion of all 256 codes; exact"
    methods = frozenset({"compressed-tensors", "modelopt", "fp8", "fbgemm_fp8", "mistral"})

    def stored(self, module: Module) -> bool:
        """A float8 weight, whose scales may be missing."""
        return module.has("weight") and module.entry("weight").encoding in FLOAT8

    def read(self, module: Module) -> tuple[PackedRows, str]:
        """See the class."""
        shape, kind = _shape(module), module.entry("weight").encoding
        leaf = module.first(*_SCALES)
        if leaf is None:
            raise module.missing("weight_scale")
        if module.entry(leaf).encoding == "U8":
            return self._mx(module, leaf, shape)
        how = granularity(module, leaf, shape)
        groups = Groups(scale_source(module, leaf, how), how.size)
        rows = PackedRows(
            shape, rows_of(module.raw("weight")), FLOAT8[kind], groups, smoothing(module, shape)
        )
        name = "FP8" if kind == "F8_E4M3" else f"FP8-{kind.removeprefix('F8_')}"
        return rows, f"{name} {how.said}{extras(module)}"

    def _mx(self, module: Module, leaf: str, shape: tuple[int, int]) -> tuple[PackedRows, str]:
        """MXFP8: one power of two per 32 columns, as bytes."""
        source = row_groups(module, leaf, shape, _MX, bytes_are_e8m0=True)
        codec = FLOAT8[module.entry("weight").encoding]
        rows = PackedRows(shape, rows_of(module.raw("weight")), codec, Groups(source, _MX))
        return rows, f"MXFP8 g{_MX}"


class ScaledInt8(PackedFormat):
    """W = (code - weight_zero_point) * weight_scale."""

    name = "INT8"
    variants = (
        "compressed-tensors `int-quantized`, ModelOpt INT8; symmetric and with zero points; scales "
        "per tensor, row, group or block; SmoothQuant's `pre_quant_scale`"
    )
    verified = "independent writer; exact"
    methods = frozenset({"compressed-tensors", "modelopt"})

    def stored(self, module: Module) -> bool:
        """An int8 weight; bitsandbytes' are asked for before."""
        return module.has("weight") and module.entry("weight").encoding == "I8"

    def read(self, module: Module) -> tuple[PackedRows, str]:
        """See the class."""
        shape = _shape(module)
        leaf = module.need(module.first(*_SCALES) or "weight_scale")
        how = granularity(module, leaf, shape)
        zeros = None
        if module.has("weight_zero_point") or module.declared.flag("symmetric") is False:
            module.need("weight_zero_point", "zero points")
            zeros = _zeros(module, leaf, how)
        groups = Groups(scale_source(module, leaf, how), how.size, zeros)
        codes = rows_of(module.raw("weight"))
        rows = PackedRows(shape, codes, signed_bytes, groups, smoothing(module, shape))
        return rows, f"INT8 {how.said}{extras(module)}"


def _zeros(module: Module, leaf: str, how: Granularity) -> Source:
    """int8 zero points, of which there are as many as scales."""
    module.check_type("weight_zero_point", "I8")
    stored = module.shape(leaf)
    points = module.tensor(module.check_shape("weight_zero_point", stored))
    return mapped(how.place(points.reshape(stored[0] if how.height else 1, -1)), Tensor.float)
