"""Bounded reading of a GGUF header: numbers, strings, and the key-values.

Every read checks that the bytes are there, and every count that the file could hold so many, so
that a hostile header costs memory in proportion to its size. Leaves out tensors (`gguf_file`).
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from audit.errors import UnreadableError

_MIN_KEY_VALUE_BYTES = 8 + 4 + 1
_MAX_NESTING = 4
_HEADER_LIMIT = 1 << 28
"""Bytes; vocabularies and merges of 262,144 tokens take some 15 MB. As Python objects, a header
takes up to twenty times its bytes."""
_MAX_NAME = 1024
_NUMBERS: dict[int, np.dtype[Any]] = {
    0: np.dtype("u1"),
    1: np.dtype("i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
_STRING, _ARRAY = 8, 9
_U64 = struct.Struct("<Q")
_U32 = struct.Struct("<I")


@dataclass(slots=True)
class Cursor:
    """A place in the mapped header; every read checks that the bytes are there."""

    path: Path
    data: mmap.mmap
    at: int = 0

    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, count: int, what: str) -> bytes:
        if count > self.left():
            raise bad_gguf(
                self.path,
                f"is cut: {count - self.left()} bytes of {what} are missing",
                code="FILE_CUT",
            )
        start, self.at = self.at, self.at + count
        self.check_limit()
        return self.data[start : self.at]

    def check_limit(self) -> None:
        """Refuse a header so long that reading on would cost gigabytes."""
        if self.at > _HEADER_LIMIT:
            raise bad_gguf(self.path, f"has a header of more than {_HEADER_LIMIT} bytes")

    def u32(self, what: str) -> int:
        return int(_U32.unpack(self.take(4, what))[0])

    def u64(self, what: str) -> int:
        return int(_U64.unpack(self.take(8, what))[0])

    def count(self, what: str, smallest: int) -> int:
        """A u64 count of things of at least `smallest` bytes, so that memory stays bounded."""
        count = self.u64(f"the number of {what}")
        if count * smallest > self.left():
            raise bad_gguf(
                self.path, f"claims {count} {what}, more than its {len(self.data)} bytes can hold"
            )
        return count

    def name(self, what: str) -> str:
        raw = self.take(self.u64(what), what)
        if len(raw) > _MAX_NAME:
            raise bad_gguf(self.path, f"has {what} of {len(raw)} bytes: {raw[:40]!r}")
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise bad_gguf(self.path, f"has {what} that is not UTF-8: {raw[:40]!r}") from error
        if not text.isprintable():
            raise bad_gguf(self.path, f"has {what} that can not be printed: {ascii(text)[:80]}")
        return text


def read_metadata(cursor: Cursor) -> dict[str, Any]:
    """All key-values; arrays become lists. A key that comes twice is refused."""
    metadata: dict[str, Any] = {}
    for _ in range(cursor.count("key-values", _MIN_KEY_VALUE_BYTES)):
        key = cursor.name("a key")
        if key in metadata:
            raise bad_gguf(cursor.path, f"has the key {key} twice")
        kind = cursor.u32(f"key {key}")
        metadata[key] = _read_value(cursor, kind, f"key {key}", depth=0)
    return metadata


def _read_value(cursor: Cursor, kind: int, what: str, depth: int) -> Any:
    if kind in _NUMBERS:
        dtype = _NUMBERS[kind]
        return np.frombuffer(cursor.take(dtype.itemsize, what), dtype)[0].item()
    if kind == _STRING:
        return _text(cursor.take(cursor.u64(what), what))
    if kind != _ARRAY:
        raise bad_gguf(cursor.path, f"gives {what} the unknown value type {kind}")
    if depth == _MAX_NESTING:
        raise bad_gguf(cursor.path, f"nests arrays deeper than {_MAX_NESTING} in {what}")
    kind = cursor.u32(what)
    if kind in _NUMBERS:
        dtype = _NUMBERS[kind]
        count = cursor.count(f"items of {what}", dtype.itemsize)
        return np.frombuffer(cursor.take(count * dtype.itemsize, what), dtype).tolist()
    if kind == _STRING:
        return _read_strings(cursor, cursor.count(f"items of {what}", 8), what)
    count = cursor.count(f"items of {what}", 4 + 8)
    return [_read_value(cursor, kind, what, depth + 1) for _ in range(count)]


def _read_strings(cursor: Cursor, count: int, what: str) -> list[str]:
    """One tight loop: vocabularies have 262,144 tokens and up."""
    data, at, size = cursor.data, cursor.at, min(len(cursor.data), _HEADER_LIMIT + 1)
    unpack = _U64.unpack_from
    found = []
    for _ in range(count):
        start = at + 8
        if start > size:
            break
        at = start + unpack(data, at)[0]
        if at > size:
            break
        found.append(data[start:at])
    if len(found) < count:
        if at > size > _HEADER_LIMIT:
            cursor.at = at
            cursor.check_limit()
        raise bad_gguf(
            cursor.path,
            f"is cut: strings {len(found)} to {count - 1} of {what} do not fit the file",
            code="FILE_CUT",
        )
    cursor.at = at
    return [_text(raw) for raw in found]


def _text(raw: bytes) -> str:
    # Tokens may be parts of characters; escapes keep two such tokens distinct and printable.
    return raw.decode("utf-8", errors="backslashreplace")


def bad_gguf(path: Path, what: str, code: str = "", encoding: str = "") -> UnreadableError:
    """The error for a malformed file: `what` completes the sentence that starts with its path."""
    hint = "download or copy the file again" if code == "FILE_CUT" else "write the file again"
    if encoding == "Q2_0":
        # PrismML's fork gives the same type number 34 bytes per 128 values.
        hint += "; if a fork of llama.cpp wrote it, its Q2_0 may be another format than ggml's"
    return UnreadableError(f"{path} {what}", hint=hint, where=path, code=code)
