"""The key-values of a GGUF file with their types, to be written into another file unchanged.

`Container.metadata` has the values without their types (a 7 may be u32 or i64) and its strings
are made printable; both would change a copy. Bounds are checked by `audit.files` when the source is
opened, and once more by the cursor here.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGUFValueType

from audit.files.gguf_values import Cursor

_NUMBERS = {
    GGUFValueType.UINT8: "u1",
    GGUFValueType.INT8: "i1",
    GGUFValueType.UINT16: "<u2",
    GGUFValueType.INT16: "<i2",
    GGUFValueType.UINT32: "<u4",
    GGUFValueType.INT32: "<i4",
    GGUFValueType.FLOAT32: "<f4",
    GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "<u8",
    GGUFValueType.INT64: "<i8",
    GGUFValueType.FLOAT64: "<f8",
}
# The writer sets the architecture; the others would speak of the source's tensors, padding, shards.
_NOT_KEPT = frozenset({"general.architecture", "general.file_type", "general.alignment"})
_NOT_KEPT_PREFIX = "split."


@dataclass(frozen=True, slots=True)
class Key:
    """One key-value, as GGUFWriter.add_key_value takes it."""

    name: str
    value: Any
    """Strings as the bytes they are stored as."""
    kind: Any
    """A `GGUFValueType`."""
    items: Any = None
    """The `GGUFValueType` of an array's items."""

    @classmethod
    def of(cls, name: str, value: str | int | float) -> Key:
        """A key-value of our own: string, u32 or float32."""
        if isinstance(value, str):
            return cls(name, value.encode(), GGUFValueType.STRING)
        is_float = isinstance(value, float)
        return cls(name, value, GGUFValueType.FLOAT32 if is_float else GGUFValueType.UINT32)

    @property
    def is_full(self) -> bool:
        """False for a name that still lacks its architecture, `.logit_scale`."""
        return not self.name.startswith(".")

    @property
    def is_kept(self) -> bool:
        """True when it means the same in a file with other tensors. GGUF can not write empty
        arrays, which say nothing."""
        dropped = self.name in _NOT_KEPT or self.name.startswith(_NOT_KEPT_PREFIX)
        return not dropped and not (self.kind == GGUFValueType.ARRAY and len(self.value) == 0)

    def under(self, arch: str) -> Key:
        """The same with the architecture in front of a name that lacks it."""
        return self if self.is_full else Key(arch + self.name, self.value, self.kind, self.items)


def keys_of(path: Path) -> list[Key]:
    """All key-values of one GGUF file, in its order; arrays of arrays are left out."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        cursor = Cursor(path, data)
        cursor.take(4 + 4 + 8, "the header")
        found = [_read_key(cursor) for _ in range(cursor.count("key-values", 8 + 4 + 1))]
    return [key for key in found if key.items != GGUFValueType.ARRAY]


def _read_key(cursor: Cursor) -> Key:
    name = cursor.name("a key")
    kind = GGUFValueType(cursor.u32(name))
    if kind != GGUFValueType.ARRAY:
        return Key(name, _read_values(cursor, kind, 1, name)[0], kind)
    items = GGUFValueType(cursor.u32(name))
    count = cursor.u64(name)
    return Key(name, _read_values(cursor, items, count, name), kind, items)


def _read_values(cursor: Cursor, kind: Any, count: int, name: str) -> list[Any]:
    if kind in _NUMBERS:
        dtype = np.dtype(_NUMBERS[kind])
        values: list[Any] = np.frombuffer(cursor.take(count * dtype.itemsize, name), dtype).tolist()
        return values
    if kind == GGUFValueType.STRING:
        return [cursor.take(cursor.u64(name), name) for _ in range(count)]
    found: list[Any] = []
    for _ in range(count):  # no architecture uses arrays of arrays: read past them
        items = GGUFValueType(cursor.u32(name))
        found.append(_read_values(cursor, items, cursor.u64(name), name))
    return found
