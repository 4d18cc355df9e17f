"""Float32 rows to ggml's bytes, for every type that can be encoded here.

The block types are `gguf.quants.quantize`'s, which is what llama-quantize makes without an
importance matrix; NVFP4 is our own (`nvfp4`). K-quants and IQ types weigh every block by a search
that exists only in llama.cpp: they are refused with the command that makes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from gguf import quants
from gguf.constants import GGMLQuantizationType
from torch import Tensor

from audit.errors import MismatchError, UnsupportedFormatError
from audit.files import row_bytes
from audit.files.encodings import ENCODINGS, GGML_TYPES
from audit.forge.nvfp4 import encode_nvfp4
from audit.forge.tiles import as_rows, row_tiles
from audit.heads.rows import Rows

_CASTS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_BY_GGUF = ("Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0", "MXFP4", "TQ2_0", "TQ1_0")

ENCODABLE: tuple[str, ...] = (*_CASTS, *_BY_GGUF, "NVFP4")
"""Encodings that `quantize_rows` writes, by falling precision within each kind."""

# All but these keep a scale in float16.
_WIDE_RANGE = frozenset({"F32", "BF16", "MXFP4", "NVFP4"})
_HALF_MAX = 65504.0

_BY_LLAMA = re.compile(r"(Q[2-6]_K|IQ[1-4]_[A-Z]+)(?:_[SML])?")
_FILE_TYPES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}
"""ggml type -> the usual one of llama-quantize's file types that are made of it."""
_GGML_NAMES = frozenset(name for name, _ in GGML_TYPES.values())
_NEEDS_IMATRIX = ("IQ1", "IQ2")


def quantize_rows(weight: Tensor | Rows, encoding: str) -> Tensor:
    """Encode a matrix, a tile of rows at a time.

    Args:
        weight: float32 [rows, columns], or rows that give it in tiles.
        encoding: one of `ENCODABLE`.

    Returns:
        uint8 [rows, bytes per row].

    Raises:
        UnsupportedFormatError: a type that is not encoded here; the hint is what to do instead.
        MismatchError: rows that are no whole number of blocks, weights beyond the type's range.
        UnreadableError: NaN or infinity.
    """
    rows = as_rows(weight)
    check_encodable(encoding, rows.columns)
    out = torch.empty(rows.count, row_bytes(encoding, rows.columns), dtype=torch.uint8)
    at = 0
    for part in encoded_tiles(rows, encoding):
        out[at : at + len(part)] = part
        at += len(part)
    return out


def encoded_tiles(rows: Rows, encoding: str, scale: float = 1.0) -> Iterator[Tensor]:
    """The encoded matrix as uint8 [n, bytes per row], a tile at a time.

    `scale` is an NVFP4 tensor scale: what is encoded is the weight divided by it.
    """
    for tile in row_tiles(rows):
        yield encode_tile(tile, encoding, scale)


def encode_tile(tile: Tensor, encoding: str, scale: float = 1.0) -> Tensor:
    """Float32 [n, columns] as uint8 [n, bytes per row]; see `quantize_rows`."""
    if encoding == "NVFP4":
        return encode_nvfp4(tile, scale=scale)
    if encoding not in _WIDE_RANGE and float(tile.abs().max()) > _HALF_MAX:
        raise MismatchError(
            f"weights up to {float(tile.abs().max()):.3g} are beyond {encoding}, "
            f"which ends at {_HALF_MAX:g}",
            hint="write BF16 or F32",
        )
    if encoding in _CASTS:
        return tile.to(_CASTS[encoding]).contiguous().view(torch.uint8)
    raw = quants.quantize(tile.contiguous().numpy(), GGMLQuantizationType[encoding])
    return torch.from_numpy(raw)


def check_encodable(encoding: str, columns: int | None = None) -> None:
    """Refuse a type that is not encoded here, and rows that are no whole number of its blocks."""
    if encoding not in ENCODABLE:
        raise UnsupportedFormatError(
            f"{encoding} is not encoded here; {', '.join(ENCODABLE)} are",
            hint=_instead(encoding),
        )
    block = ENCODINGS[encoding].block
    if columns is None or columns % block == 0:
        return
    fitting = [name for name in ENCODABLE if columns % ENCODINGS[name].block == 0]
    raise MismatchError(
        f"rows of {columns} weights can not be {encoding}, whose blocks hold {block}",
        hint=f"these fit: {', '.join(fitting)}",
    )


def is_made_by_llama_quantize(encoding: str) -> bool:
    """True for K-quants and IQ types, also under names of whole file types such as Q4_K_M."""
    return _BY_LLAMA.fullmatch(encoding) is not None


def llama_quantize_command(encoding: str) -> str:
    """The command that makes a GGUF file whose head has this type."""
    found = _BY_LLAMA.fullmatch(encoding)
    kind = found.group(1) if found else encoding
    imatrix = "--imatrix IMATRIX.gguf " if kind.startswith(_NEEDS_IMATRIX) else ""
    # Without --output-tensor-type the head of such a file would be Q6_K or Q5_K.
    head = f"--output-tensor-type {kind.lower()} " if kind in _GGML_NAMES else ""
    return f"llama-quantize {imatrix}{head}REF.gguf OUT.gguf {_FILE_TYPES.get(encoding, encoding)}"


def _instead(encoding: str) -> str:
    if is_made_by_llama_quantize(encoding):
        return llama_quantize_command(encoding)
    return "choose one of these"
