"""The header of one GGUF file, checked against the file before anything is mapped.

Our own reader, because gguf's GGUFReader rejects a whole file for one unknown type and checks no
bounds. Little-endian versions 2 and 3. Leaves out split sets (`shards`) and the values
(`decode`). Layout: magic, version, counts, key-values, tensor infos, padding, data.
"""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from audit.errors import UnsupportedFormatError
from audit.files.container import TensorEntry
from audit.files.encodings import GGML_TYPES
from audit.files.gguf_kinds import wrong_kind
from audit.files.gguf_values import Cursor, bad_gguf, read_metadata

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_DIMENSIONS = 4
_DEFAULT_ALIGNMENT = 32
_MAX_SIZE = 2**63 - 1
_MIN_TENSOR_INFO_BYTES = 8 + 4 + 4 + 8


def read_gguf(path: Path) -> tuple[dict[str, TensorEntry], dict[str, Any]]:
    """Entries in the order of the file, and all key-values (arrays as lists).

    A tensor of an unknown type becomes an entry without `nbytes`. Raises UnsupportedFormatError
    for other versions and byte orders, UnreadableError for whatever does not fit the file.
    """
    if path.stat().st_size == 0:
        raise bad_gguf(path, "is empty", code="FILE_CUT")
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        cursor = Cursor(path, data)
        _check_version(cursor)
        n_tensors = cursor.count("tensors", _MIN_TENSOR_INFO_BYTES)
        metadata = read_metadata(cursor)
        if wrong := wrong_kind(metadata):
            raise bad_gguf(path, wrong)
        alignment = _alignment(path, metadata)
        if n_tensors * _MIN_TENSOR_INFO_BYTES > cursor.left():
            raise bad_gguf(path, f"is cut: {n_tensors} tensor infos are missing", code="FILE_CUT")
        infos = [_read_info(cursor) for _ in range(n_tensors)]
        data_start = -(-cursor.at // alignment) * alignment
        entries = [_entry(path, info, data_start, alignment, len(data)) for info in infos]
    _check_unique(path, [entry.name for entry in entries])
    _check_overlaps(path, entries)
    return {entry.name: entry for entry in entries}, metadata


def _check_version(cursor: Cursor) -> None:
    magic = cursor.take(4, "the magic number")
    if magic != MAGIC:
        raise bad_gguf(cursor.path, f"is not GGUF: it starts with {magic!r}")
    raw = cursor.take(4, "the version")
    version = int.from_bytes(raw, "little")
    if int.from_bytes(raw, "big") in _VERSIONS:
        raise UnsupportedFormatError(
            f"{cursor.path} is big-endian GGUF",
            hint="convert it with gguf-convert-endian",
            where=cursor.path,
        )
    if version not in _VERSIONS:
        raise UnsupportedFormatError(
            f"{cursor.path} is GGUF version {version}; versions 2 and 3 are supported",
            where=cursor.path,
        )


def _alignment(path: Path, metadata: dict[str, Any]) -> int:
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise bad_gguf(
            path, f"has general.alignment {alignment!r:.40}, which is not a power of two"
        )
    return alignment


@dataclass(frozen=True, slots=True)
class _Info:
    """A tensor info as stored: ggml's order of dimensions, offset from the start of the data."""

    name: str
    ne: tuple[int, ...]
    kind: int
    offset: int


def _read_info(cursor: Cursor) -> _Info:
    name = cursor.name("a tensor name")
    what = f"the info of tensor {name}"
    dimensions = cursor.u32(what)
    if dimensions > _MAX_DIMENSIONS:
        raise bad_gguf(
            cursor.path, f"gives tensor {name} {dimensions} dimensions; ggml has at most 4"
        )
    ne = tuple(cursor.u64(what) for _ in range(dimensions))
    return _Info(name, ne, cursor.u32(what), cursor.u64(what))


def _entry(path: Path, info: _Info, data_start: int, alignment: int, size: int) -> TensorEntry:
    name, shape = info.name, tuple(reversed(info.ne))
    if math.prod(info.ne) > _MAX_SIZE or any(n > _MAX_SIZE for n in info.ne):
        raise bad_gguf(path, f"gives tensor {name} the impossible shape {list(shape)}")
    if info.offset % alignment:
        raise bad_gguf(path, f"puts tensor {name} at {info.offset}, not a multiple of {alignment}")
    encoding, nbytes = _encoding_and_size(path, info)
    start = data_start + info.offset
    missing = start + (nbytes or 0) - size
    if missing > 0 and nbytes != 0:
        raise bad_gguf(
            path, f"is cut: {missing} bytes of tensor {name} are missing", "FILE_CUT", encoding
        )
    return TensorEntry(name, encoding, shape, path, start, nbytes)


def _encoding_and_size(path: Path, info: _Info) -> tuple[str, int | None]:
    if info.kind not in GGML_TYPES:
        return f"GGML_{info.kind}", None
    encoding, packing = GGML_TYPES[info.kind]
    columns = info.ne[0] if info.ne else 1
    if columns % packing.block:
        raise bad_gguf(
            path,
            f"gives tensor {info.name} rows of {columns} values, but {encoding} has blocks of "
            f"{packing.block}",
        )
    return encoding, math.prod(info.ne) // packing.block * packing.size


def _check_unique(path: Path, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise bad_gguf(path, f"has the tensor {name} twice")
        seen.add(name)


def _check_overlaps(path: Path, entries: list[TensorEntry]) -> None:
    """Refuse bytes that belong to two tensors; gaps are padding and allowed."""
    ordered = sorted((e for e in entries if e.nbytes != 0), key=lambda e: e.offset)
    for before, entry in pairwise(ordered):
        if entry.offset < before.offset + (before.nbytes or 1):
            raise bad_gguf(
                path,
                f"has tensors that overlap: {before.name} and {entry.name}",
                encoding=before.encoding,
            )
