"""The header of a safetensors file, checked against the file before anything is mapped.

Layout: 8 bytes little-endian length, that many bytes of JSON, the data. The format forbids gaps,
overlaps and trailing bytes. Leaves out shards (`opening`) and quantization (the head loader).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

from audit.errors import UnreadableError, UnsupportedFormatError
from audit.files.container import TensorEntry
from audit.files.encodings import SAFETENSORS_BITS

_LENGTH_BYTES = 8
_HEADER_LIMIT = 100_000_000  # the limit of the safetensors library
_MAX_DIMENSIONS = 32
_MAX_SIZE = 2**63 - 1
_MAX_NAME = 1024  # the longest published names have some 150 characters
_MAX_NESTING = 64  # what walks through a configuration must not run out of stack


def read_safetensors(path: Path) -> tuple[dict[str, TensorEntry], dict[str, str]]:
    """Entries in the order of the header, and `__metadata__`.

    Raises UnreadableError for everything that the format forbids.
    """
    size = path.stat().st_size
    text, data_start = _read_header(path, size)
    header = _parse(path, text)
    metadata = _metadata(path, header.pop("__metadata__", {}))
    entries = {
        name: _entry(path, name, fields, data_start, size) for name, fields in header.items()
    }
    _check_layout(path, list(entries.values()), data_start, size)
    return entries, metadata


def _read_header(path: Path, size: int) -> tuple[bytes, int]:
    """The JSON's bytes and the offset at which the data starts."""
    with path.open("rb") as stream:
        prefix = stream.read(_LENGTH_BYTES)
        if len(prefix) < _LENGTH_BYTES:
            raise _bad(path, f"has {len(prefix)} bytes, too few for a header", code="FILE_CUT")
        length = int.from_bytes(prefix, "little")
        if length > _HEADER_LIMIT:
            raise _bad(path, f"claims a header of {length} bytes; the limit is {_HEADER_LIMIT}")
        missing = _LENGTH_BYTES + length - size
        if missing > 0:
            raise _bad(path, f"is cut: {missing} bytes of its header are missing", code="FILE_CUT")
        return stream.read(length), _LENGTH_BYTES + length


def parse_json_object(path: Path, text: bytes, what: str) -> dict[str, Any]:
    """A JSON object without duplicate keys and not nested deeper than 64.

    Raises UnreadableError, which says what is wrong in which file.
    """
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
    except RecursionError as error:
        raise _bad(path, f"has {what} that is nested too deeply") from error
    except ValueError as error:
        raise _bad(path, f"has {what} that is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise _bad(path, f"has {what} that is not a JSON object")
    if _is_deep(value):
        raise _bad(path, f"has {what} that is nested too deeply")
    return value


def _is_deep(value: Any) -> bool:
    """Whether lists and objects lie deeper within each other than _MAX_NESTING."""
    level = [value]
    for _ in range(_MAX_NESTING):
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [item for items in inner for item in items if isinstance(item, dict | list)]
        if not level:
            return False
    return True


def _parse(path: Path, text: bytes) -> dict[str, Any]:
    header = parse_json_object(path, text, "a header")
    for name in header:
        check_name(path, name)
    return header


def check_name(path: Path, name: str) -> None:
    """Refuse a name that can not be printed: escapes of lone surrogates are valid JSON."""
    if not name.isprintable():
        raise _bad(path, f"has a tensor whose name can not be printed: {ascii(name)[:80]}")
    if len(name) > _MAX_NAME:
        raise _bad(path, f"has a tensor whose name has {len(name)} characters: {name[:40]}…")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A dict of the pairs; ValueError for a name that comes twice, which json would drop."""
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"the name {twice!a} comes twice")
    return found


def _metadata(path: Path, value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise _bad(path, "has __metadata__ that is not a map from strings to strings")
    return value


def _entry(path: Path, name: str, fields: Any, data_start: int, size: int) -> TensorEntry:
    if not isinstance(fields, dict) or not {"dtype", "shape", "data_offsets"} <= fields.keys():
        raise _bad(path, f"describes tensor {name} without dtype, shape and data_offsets")
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(dtype, str) or dtype not in SAFETENSORS_BITS:
        raise UnsupportedFormatError(
            f"tensor {name} in {path} has the unknown dtype {ascii(dtype)[:40]}", where=path
        )
    if not _are_sizes(shape) or len(shape) > _MAX_DIMENSIONS:
        raise _bad(path, f"gives tensor {name} the impossible shape {ascii(shape)[:80]}")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _bad(path, f"gives tensor {name} the impossible offsets {ascii(offsets)[:80]}")
    begin, end = offsets
    bits = math.prod(shape) * SAFETENSORS_BITS[dtype]
    if bits != (end - begin) * 8:
        raise _bad(
            path,
            f"gives tensor {name} {end - begin} bytes, but {dtype} {shape} takes {(bits + 7) // 8}",
        )
    if data_start + end > size:
        raise _bad(
            path,
            f"is cut: {data_start + end - size} bytes of tensor {name} are missing",
            code="FILE_CUT",
        )
    return TensorEntry(name, dtype, tuple(shape), path, data_start + begin, end - begin)


def _are_sizes(value: Any) -> bool:
    """Whether it is a list of int64 sizes; JSON's true is an int to Python but not to us."""
    return isinstance(value, list) and all(
        type(item) is int and 0 <= item <= _MAX_SIZE for item in value
    )


def _check_layout(path: Path, entries: list[TensorEntry], data_start: int, size: int) -> None:
    """Refuse overlaps, gaps and trailing bytes: bytes that two names own, or none."""
    end, before = data_start, "the header"
    for entry in sorted(entries, key=lambda e: (e.offset, e.nbytes or 0)):
        if entry.offset < end:
            raise _bad(path, f"has tensors that overlap: {before} and {entry.name}")
        if entry.offset > end:
            gap = entry.offset - end
            raise _bad(path, f"has {gap} bytes between {before} and {entry.name} that no one owns")
        end, before = entry.offset + (entry.nbytes or 0), entry.name
    if end < size:
        raise _bad(path, f"has {size - end} trailing bytes after its last tensor")


def _bad(path: Path, what: str, code: str = "") -> UnreadableError:
    hint = "download or copy the file again" if code == "FILE_CUT" else "write the file again"
    return UnreadableError(f"{path} {what}", hint=hint, where=path, code=code)
