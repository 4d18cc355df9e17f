"""Small writers of valid and of broken model files, byte by byte where the libraries refuse."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

SHARED = Path(__file__).parents[3] / "shared"
U8, U16, U32, I32, F32, STRING, ARRAY, U64 = 0, 2, 4, 5, 6, 8, 9, 10


def safetensors_bytes(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file with any header: text, bytes or something to write as JSON."""
    if isinstance(header, str):
        header = header.encode()
    if not isinstance(header, bytes):
        header = json.dumps(header).encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def tensor(dtype: Any, shape: Any, begin: Any, end: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def key_value(key: str | bytes, kind: int, payload: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + payload


def u32(key: str, value: int) -> bytes:
    return key_value(key, U32, struct.pack("<I", value))


def u16(key: str, value: int) -> bytes:
    return key_value(key, U16, struct.pack("<H", value))


@dataclass
class Raw:
    """One tensor of a hand-written GGUF."""

    name: str | bytes
    ne: tuple[int, ...]
    kind: int
    offset: int
    dimensions: int | None = None

    def info(self) -> bytes:
        count = len(self.ne) if self.dimensions is None else self.dimensions
        dims = struct.pack(f"<{len(self.ne)}Q", *self.ne)
        place = struct.pack("<IQ", self.kind, self.offset)
        return string(self.name) + struct.pack("<I", count) + dims + place


def gguf_bytes(
    tensors: list[Raw] = [],  # noqa: B006
    values: list[bytes] = [],  # noqa: B006
    data: bytes = b"",
    *,
    version: int = 3,
    counts: tuple[int, int] | None = None,
    order: str = "<",
    alignment: int = 32,
) -> bytes:
    """A GGUF file whose every field may lie."""
    n_tensors, n_values = counts or (len(tensors), len(values))
    head = b"GGUF" + struct.pack(order + "IQQ", version, n_tensors, n_values)
    head += b"".join(values) + b"".join(t.info() for t in tensors)
    return head + bytes(-len(head) % alignment) + data


def write_blocks(path: Path, blocks: dict[str, tuple[np.ndarray, str]]) -> None:
    """A GGUF by the library's own writer, of raw blocks uint8 [rows, row_bytes]."""
    writer = gguf.GGUFWriter(path, "test")
    for name, (raw, kind) in blocks.items():
        writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[kind])
    finish(writer)


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_split(folder: Path, stem: str = "m", count: int = 3) -> list[Path]:
    """A split GGUF: tensor t<i> in shard i, metadata in the first."""
    paths = []
    for number in range(count):
        values = [u16("split.no", number), u16("split.count", count)]
        values.append(key_value("split.tensors.count", I32, struct.pack("<i", count)))
        if number == 0:
            values.append(key_value("general.name", STRING, string("whole")))
        data = np.full(8, number, "<f4").tobytes()
        path = folder / f"{stem}-{number + 1:05d}-of-{count:05d}.gguf"
        path.write_bytes(gguf_bytes([Raw(f"t{number}", (8,), 0, 0)], values, data))
        paths.append(path)
    return paths
