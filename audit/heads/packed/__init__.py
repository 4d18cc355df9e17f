"""Packed matrices of safetensors files: start at `registry.packed_matrix`.

One class per format turns the tensors of a layer into `PackedRows`, which decode a tile at a time.
Leaves out GGUF, whose blocks hold their own scales (`audit.files`).
"""

from audit.heads.packed.registry import (
    FORMATS,
    Packed,
    check_declared_plain,
    packed_matrix,
    weight_names,
    weight_stem,
)
from audit.heads.packed.rows import PackedRows

__all__ = [
    "FORMATS",
    "Packed",
    "PackedRows",
    "check_declared_plain",
    "packed_matrix",
    "weight_names",
    "weight_stem",
]
