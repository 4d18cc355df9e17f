"""FP4 with a scale per group of columns: NVFP4 and MXFP4, as two families of tools store them.

Both put column 2j in the low nibble of byte j. They differ in what the second scale does:
compressed-tensors divides by `weight_global_scale`, ModelOpt multiplies by `weight_scale_2`.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from audit.heads.packed.codes import E2M1, nibbles
from audit.heads.packed.formats import PackedFormat
from audit.heads.packed.modelopt import extras, one_number, smoothing
from audit.heads.packed.module import Module
from audit.heads.packed.rows import Groups, PackedRows, mapped, rows_of
from audit.heads.packed.scales import row_groups

_NVFP4, _MXFP4 = 16, 32


def packed_shape(module: Module, leaf: str) -> tuple[int, int]:
    """[rows, columns] of two codes per byte; PACKED_SHAPE where the bytes are no matrix."""
    stored = module.shape(leaf)
    if len(stored) != 2 or 0 in stored:
        raise module.refuse(f"has packed codes of shape {list(stored)}, not [rows, bytes]")
    return stored[0], 2 * stored[1]


def _fp4_rows(
    module: Module, leaf: str, size: int, change: float | None, divide: bool = False
) -> PackedRows:
    """E2M1 * scale of its group, the scales changed by one number beforehand."""
    shape = packed_shape(module, leaf)
    declared = module.declared.number("group_size")
    if declared and declared != size:
        raise module.contradiction(f"groups of {declared}", f"this format has groups of {size}")
    source = row_groups(module, "weight_scale", shape, size, bytes_are_e8m0=size == _MXFP4)

    if change is not None:
        source = mapped(source, partial(_divided if divide else _multiplied, by=change))
    codes = rows_of(module.raw(leaf))
    return PackedRows(shape, codes, nibbles(E2M1), Groups(source, size), smoothing(module, shape))


def _divided(scales: Tensor, by: float) -> Tensor:
    return scales / by


def _multiplied(scales: Tensor, by: float) -> Tensor:
    return scales * by


class CompressedNvfp4(PackedFormat):
    """E2M1 * (weight_scale / weight_global_scale)."""

    name = "compressed-tensors NVFP4"
    variants = "`nvfp4-pack-quantized`: FP8 scales per 16, one global scale that divides"
    verified = "independent writer and the compressed-tensors library; exact"
    methods = frozenset({"compressed-tensors"})
    primary = "weight_packed"

    def stored(self, module: Module) -> bool:
        """Packed u8 and either FP8 scales or a global scale."""
        if not module.has("weight_packed") or module.entry("weight_packed").encoding != "U8":
            return False
        return not CompressedMxfp4().stored(module)

    def read(self, module: Module) -> tuple[PackedRows, str]:
        """See the class."""
        module.check_type(module.need("weight_scale"), "F8_E4M3")
        scale = one_number(module, module.need("weight_global_scale", "global scale"))
        if scale == 0:
            raise module.refuse("has a weight_global_scale of 0, by which scales are divided")
        rows = _fp4_rows(module, "weight_packed", _NVFP4, scale, divide=True)
        return rows, f"CT-NVFP4 g{_NVFP4}"


class CompressedMxfp4(PackedFormat):
    """E2M1 * 2^(weight_scale - 127)."""

    name = "compressed-tensors MXFP4"
    variants = "`mxfp4-pack-quantized`: one power of two per 32"
    verified = "independent writer; exact"
    methods = frozenset({"compressed-tensors"})
    primary = "weight_packed"

    def stored(self, module: Module) -> bool:
        """Packed u8 with u8 scales."""
        if not module.has("weight_packed", "weight_scale"):
            return False
        kinds = module.entry("weight_packed").encoding, module.entry("weight_scale").encoding
        return kinds[0] == "U8" and kinds[1] in ("U8", "F8_E8M0")

    def read(self, module: Module) -> tuple[PackedRows, str]:
        """See the class."""
        return _fp4_rows(module, "weight_packed", _MXFP4, None), f"CT-MXFP4 g{_MXFP4}"


class ModelOptNvfp4(PackedFormat):
    """E2M1 * (weight_scale * weight_scale_2); the packed matrix is called `weight`."""

    name = "ModelOpt NVFP4"
    variants = "FP8 scales per 16, `weight_scale_2`, `pre_quant_scale`, SVDQuant's low-rank part"
    verified = "independent writer; exact"
    methods = frozenset({"modelopt"})

    def stored(self, module: Module) -> bool:
        """u8 weight with as many rows of FP8 scales, or with a second scale."""
        if not module.has("weight") or module.entry("weight").encoding != "U8":
            return False
        if module.has("weight_scale"):
            rows = module.shape("weight")[:1]
            kind = module.entry("weight_scale").encoding
            return kind == "F8_E4M3" and module.shape("weight_scale")[:1] == rows
        return module.has("weight_scale_2")

    def read(self, module: Module) -> tuple[PackedRows, str]:
        """See the class."""
        module.need("weight_scale")
        scale = one_number(module, module.need("weight_scale_2", "second scale"))
        rows = _fp4_rows(module, "weight", _NVFP4, scale)
        return rows, f"ModelOpt-NVFP4 g{_NVFP4}{extras(module)}"
