"""A stored matrix as rows, plain or packed; refuses what would load without a word and be wrong."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from audit.errors import MismatchError, UnreadableError, UnsupportedFormatError
from audit.files import (
    Container,
    TensorEntry,
    aligned_view,
    bits_per_weight,
    decode_rows,
    is_float_encoding,
)
from audit.heads.packed import packed_matrix
from audit.heads.rows import Rows, StoredRows

_SCALE_SUFFIXES = ("_scale", "_scale_inv", "_scale_2", ".absmax", ".scale")


@dataclass(frozen=True, slots=True, eq=False)
class StoredMatrix:
    """A matrix of a file, and what a record says of it."""

    container: Container
    rows: Rows
    encoding: str
    """Stored type, or the packed format such as `GPTQ-4 g128`."""
    tensors: tuple[str, ...]
    """What its weights depend on, the codes first."""
    stored_bytes: int
    bits_per_weight: float

    @property
    def raw(self) -> list[tuple[str, Tensor]]:
        """(stored type, bytes) of each tensor: what a hash of the weights covers."""
        entries = [self.container.entries[name] for name in self.tensors]
        return [(entry.encoding, self.container.bytes_of(entry.name)) for entry in entries]


def stored_matrix(container: Container, name: str) -> StoredMatrix:
    """The matrix whose numbers, or whose packed codes, are in tensor `name`.

    Raises:
        AuditError: as `stored_rows`.
    """
    packed = packed_matrix(container, name)
    if packed is None:
        entry, rows = container.entries[name], _plain_rows(container, name)
        bits = bits_per_weight(entry.encoding)
        return StoredMatrix(container, rows, entry.encoding, (name,), entry.nbytes or 0, bits)
    bits = 8 * packed.stored_bytes / (packed.rows.count * packed.rows.columns)
    return StoredMatrix(
        container, packed.rows, packed.label, packed.tensors, packed.stored_bytes, bits
    )


def matrix_shape(container: Container, name: str) -> tuple[int, ...]:
    """The shape that tensor `name` stands for: a packed one's own, not that of its codes."""
    packed = packed_matrix(container, name)
    return (packed.rows.count, packed.rows.columns) if packed else container.entries[name].shape


def stored_tensors(container: Container, name: str) -> dict[str, tuple[str, Tensor]]:
    """Tensor -> (stored type, bytes) of everything that the weight `name` depends on."""
    packed = packed_matrix(container, name)
    entries = [container.entries[n] for n in (packed.tensors if packed else (name,))]
    return {entry.name: (entry.encoding, container.bytes_of(entry.name)) for entry in entries}


def stored_rows(container: Container, name: str) -> Rows:
    """The [rows, columns] matrix `name`, its bytes mapped and its scales applied.

    Raises:
        MismatchError: it is not a matrix, or its parts do not fit (see `audit.heads.packed`).
        UnsupportedFormatError: its encoding is not one of floats, or needs scales that the file
            does not hold (SCALE_MISSING) or this version does not apply.
    """
    packed = packed_matrix(container, name)
    return packed.rows if packed else _plain_rows(container, name)


def _plain_rows(container: Container, name: str) -> StoredRows:
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
