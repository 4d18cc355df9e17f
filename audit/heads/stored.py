"""Rows of a stored matrix, with its scale; refuses what would load without a word and be wrong."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from audit.errors import MismatchError, UnreadableError, UnsupportedFormatError
from audit.files import Container, TensorEntry, aligned_view, decode_rows, is_float_encoding
from audit.heads.rows import StoredRows

_SCALE_SUFFIXES = ("_scale", "_scale_inv", "_scale_2", ".absmax", ".scale")


def stored_rows(container: Container, name: str) -> StoredRows:
    """The [rows, columns] matrix `name`, its bytes mapped and its `.scale` applied.

    Raises:
        MismatchError: it is not a matrix.
        UnsupportedFormatError: its encoding is not one of floats, or needs scales that this
            version does not apply (SCALE_MISSING when the file has none at all).
    """
    entry = container.entries[name]
    if len(entry.shape) != 2 or 0 in entry.shape:
        raise MismatchError(
            f"{name} has shape {list(entry.shape)}; a head is a matrix [rows, hidden]",
            hint="choose another tensor with --head-tensor",
            where=container.path,
        )
    _check_encoding(container, entry)
    columns = entry.shape[1]
    if entry.encoding == "F32":
        # The map itself: a copy of every tile would cost a tenth of the product it is made for.
        decode = partial(aligned_view, dtype=torch.float32)
    else:
        decode = partial(decode_rows, encoding=entry.encoding, columns=columns)
    scale = gguf_scale(container, name) if container.format == "gguf" else 1.0
    return StoredRows(container.rows_of(name), columns, decode, scale)


def gguf_scale(container: Container, name: str) -> float:
    """The factor in a GGUF `.scale` sidecar, 1.0 when there is none.

    NVFP4 weights are their blocks times this factor; it is one number per tensor.
    """
    sidecar = name.removesuffix(".weight") + ".scale"
    if sidecar not in container.entries:
        return 1.0
    value = container.values(sidecar).flatten()
    if len(value) != 1 or not bool(torch.isfinite(value).all()) or float(value[0]) <= 0:
        raise UnreadableError(
            f"{sidecar} must be one positive number, it is {value.tolist()[:4]}",
            hint="the file is damaged: convert the head again",
            where=container.path,
        )
    return float(value[0])


def stored_vector(container: Container, name: str, length: int) -> Tensor:
    """A bias or norm, float32 [length].

    Raises:
        MismatchError: it is longer or shorter.
        UnreadableError: it holds NaN or infinity.
    """
    values = container.values(name).float().flatten()
    if len(values) != length:
        raise MismatchError(
            f"{name} has {len(values)} values where {length} are needed",
            hint="the tensors of this file do not belong together",
            where=container.path,
        )
    if not bool(torch.isfinite(values).all()):
        raise UnreadableError(
            f"{name} holds NaN or infinity",
            hint="the file is damaged: export it again",
            where=container.path,
            code="NON_FINITE",
        )
    return values


def _check_encoding(container: Container, entry: TensorEntry) -> None:
    if is_float_encoding(entry.encoding) and not entry.encoding.startswith("F8"):
        return
    if container.format == "gguf" and entry.encoding not in {"I8", "I16", "I32", "I64"}:
        return  # a block format; unknown ones are refused when their bytes are asked for
    companions = [entry.name + suffix for suffix in _SCALE_SUFFIXES]
    companions += [entry.name.removesuffix(".weight") + suffix for suffix in _SCALE_SUFFIXES]
    scales = [name for name in companions if name in container.entries]
    if not scales:
        raise UnsupportedFormatError(
            f"{entry.name} holds {entry.encoding} codes and the file has no scales for them; "
            "read as numbers they would be wrong",
            hint=f"export the head with its scales ({entry.name}_scale) or as bfloat16",
            where=container.path,
            code="SCALE_MISSING",
        )
    raise UnsupportedFormatError(
        f"{entry.name} is packed ({entry.encoding} with {', '.join(scales)}), "
        "which this version does not decode",
        hint="export the head as bfloat16, or as GGUF",
        where=container.path,
    )
