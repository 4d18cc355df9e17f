"""The storage encodings as data: how many bytes a row takes, in safetensors and in GGUF.

Names are those of safetensors (F32, BF16, I64, F8_E4M3, ...) and of ggml (Q4_0, Q6_K, ...); where
both know a name (F32, F16, BF16, F64, I8 to I64) they mean the same bytes. Leaves out the values:
see `decode`.
"""

from __future__ import annotations

from dataclasses import dataclass

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from audit.errors import MismatchError, UnsupportedFormatError


@dataclass(frozen=True, slots=True)
class Encoding:
    """How one encoding packs the values of a row."""

    block: int
    """Values per block; a row is a whole number of blocks."""
    size: int
    """Bytes per block."""


def _bits(bits: int) -> Encoding:
    """The smallest block of whole bytes whose values have `bits` bits."""
    block = next(n for n in (1, 2, 4) if n * bits % 8 == 0)
    return Encoding(block, block * bits // 8)


SAFETENSORS_BITS: dict[str, int] = {
    **dict.fromkeys(("BOOL", "U8", "I8"), 8),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
}

# gguf 0.19 may or may not know 39 to 42, and its version does not tell (the vendored tree of
# llama.cpp says 0.19.0 too), so ours fill the gaps.
_GGML_LATE: dict[int, tuple[str, Encoding]] = {
    39: ("MXFP4", Encoding(32, 17)),
    40: ("NVFP4", Encoding(64, 36)),
    41: ("Q1_0", Encoding(128, 18)),
    42: ("Q2_0", Encoding(64, 18)),
}

GGML_TYPES: dict[int, tuple[str, Encoding]] = {
    **_GGML_LATE,
    **{
        int(kind): (str(kind.name), Encoding(*GGML_QUANT_SIZES[kind]))
        for kind in GGMLQuantizationType
        if kind in GGML_QUANT_SIZES
    },
}
"""ggml's type number to its name and packing."""

ENCODINGS: dict[str, Encoding] = {
    **{name: _bits(bits) for name, bits in SAFETENSORS_BITS.items()},
    **dict(GGML_TYPES.values()),
}

INTEGERS = frozenset({"I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"})

_FLOATS = frozenset({"F64", "F32", "F16", "BF16"}) | {
    name for name in SAFETENSORS_BITS if name.startswith("F8_")
}


def _encoding(name: str) -> Encoding:
    if name not in ENCODINGS:
        raise UnsupportedFormatError(
            f"the size of encoding {name} is not known",
            hint="a newer version of this program, or of the gguf package, may know it",
        )
    return ENCODINGS[name]


def row_bytes(encoding: str, columns: int) -> int:
    """Bytes of one row of `columns` values.

    Raises UnsupportedFormatError for an unknown encoding and MismatchError when a row is not a
    whole number of blocks.
    """
    packing = _encoding(encoding)
    if columns % packing.block:
        raise MismatchError(
            f"rows of {columns} values can not be {encoding}, whose blocks hold {packing.block}"
        )
    return columns // packing.block * packing.size


def bits_per_weight(encoding: str) -> float:
    """Stored bits per value, block scales included."""
    packing = _encoding(encoding)
    return packing.size * 8 / packing.block


def is_float_encoding(encoding: str) -> bool:
    """Whether every value is a floating-point number by itself, without blocks.

    True for FP8 as well, although an FP8 weight is meaningless without its scale tensor.
    """
    return encoding in _FLOATS
