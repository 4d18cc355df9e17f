"""Named tensors to a GGUF or a safetensors file: atomic, deterministic, a tile at a time.

The bytes depend on the tensors and on what is said of them, never on time or place. Leaves out
what is written: see `projection` and `matrices`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import gguf
import numpy as np
import torch
from torch import Tensor

from audit.atomic import atomic_path
from audit.errors import BadUsageError
from audit.files import Container
from audit.files.encodings import ENCODINGS, GGML_TYPES, SAFETENSORS_BITS
from audit.files.made import MADE_KEY
from audit.forge.gguf_keys import Key, keys_of
from audit.provenance import canonical_json

OWN_ARCHITECTURE = "head-audit"
"""`general.architecture` of a GGUF file whose reference had none."""
_QUANTIZATION_VERSION = 2
_PLAIN = frozenset({"F64", "F32", "F16", "BF16", "I8", "I16", "I32", "I64"})
_TYPE_NUMBERS = {name: number for number, (name, _) in GGML_TYPES.items()}
_DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3", torch.int64: "I64", torch.int32: "I32", torch.int16: "I16",
    torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """A tensor as a file is to hold it."""

    name: str
    encoding: str
    """A name of `audit.files.encodings.ENCODINGS`."""
    shape: tuple[int, ...]
    """Of the values, row-major: [rows, columns]."""
    tiles: Callable[[], Iterable[Tensor]]
    """Its bytes in order, as contiguous uint8 tensors of any shapes; called once per writing."""

    @property
    def nbytes(self) -> int:
        packing = ENCODINGS[self.encoding]
        return math.prod(self.shape) // packing.block * packing.size

    def tofile(self, stream: BinaryIO) -> None:
        """Write the bytes; with `nbytes`, all that GGUFWriter asks of an array."""
        written = sum(stream.write(tile.contiguous().numpy().tobytes()) for tile in self.tiles())
        assert written == self.nbytes, f"{self.name}: {written} bytes, not {self.nbytes}"


def stored(name: str, tensor: Tensor) -> Stored:
    """A tensor that is kept as it is, in its own type."""
    raw = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
    return Stored(name, _DTYPES[tensor.dtype], tuple(tensor.shape), lambda: [raw])


def stored_bytes(name: str, encoding: str, raw: Tensor, shape: tuple[int, ...]) -> Stored:
    """A tensor that is encoded already: `raw` uint8 of any shape, `shape` of the values."""
    return Stored(name, encoding, shape, lambda: [raw])


def copied(container: Container, name: str) -> Stored:
    """A tensor of another file, byte for byte."""
    entry = container.entry(name)
    return Stored(name, entry.encoding, entry.shape, lambda: [container.bytes_of(name)])


def write_gguf(
    path: Path,
    tensors: Sequence[Stored],
    *,
    source: Container | None = None,
    keys: Mapping[str, Any] | None = None,
    made: Mapping[str, Any] | None = None,
) -> Path:
    """Write a GGUF file.

    Args:
        path: where; replaced only when all is written.
        tensors: in the order of the file, with ggml's encodings.
        source: a GGUF whose architecture and key-values are kept, without those that speak of
            its own tensors and shards.
        keys: further key-values, floats as float32; those of the own architecture lack its prefix,
            as in {".logit_scale": 0.5}, and are left out when `source` has an architecture.
        made: how the file was made.

    Raises:
        BadUsageError: an encoding that ggml does not have.
    """
    for tensor in tensors:
        if tensor.encoding not in _TYPE_NUMBERS:
            raise BadUsageError(f"GGUF has no type {tensor.encoding}", hint="write .safetensors")
    theirs = keys_of(source.files[0]) if source and source.format == "gguf" else []
    known = {key.name: key.value for key in theirs}
    arch = known.get("general.architecture", OWN_ARCHITECTURE.encode()).decode()
    own = [Key.of(name, value) for name, value in (keys or {}).items()]
    own = [key.under(arch) for key in own if "general.architecture" not in known or key.is_full]
    if any(tensor.encoding not in _PLAIN for tensor in tensors):
        own.append(Key.of("general.quantization_version", _QUANTIZATION_VERSION))
    if made is not None:
        own.append(Key.of(MADE_KEY, canonical_json(made)))
    with atomic_path(path) as temporary:
        _write_gguf(temporary, arch, [key for key in theirs if key.is_kept] + own, tensors)
    return path


def write_safetensors(
    path: Path,
    tensors: Sequence[Stored],
    *,
    made: Mapping[str, Any] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Path:
    """Write a safetensors file; the order of `tensors` does not change it.

    `metadata` is kept as it is; `made` says how the file was made.

    Raises:
        BadUsageError: an encoding that safetensors does not have.
    """
    for tensor in tensors:
        if tensor.encoding not in SAFETENSORS_BITS:
            raise BadUsageError(f"safetensors has no type {tensor.encoding}", hint="write .gguf")
    # Widest type first, then by name, as the library does: every tensor is aligned to its type.
    ordered = sorted(tensors, key=lambda t: (-SAFETENSORS_BITS[t.encoding], t.name))
    header: dict[str, Any] = {}
    about = dict(sorted((metadata or {}).items()))
    if made is not None:
        about[MADE_KEY] = canonical_json(made)
    if about:
        header["__metadata__"] = about
    at = 0
    for tensor in ordered:
        offsets = [at, at := at + tensor.nbytes]
        shape = list(tensor.shape)
        header[tensor.name] = {"dtype": tensor.encoding, "shape": shape, "data_offsets": offsets}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for tensor in ordered:
            tensor.tofile(stream)
    return path


def _write_gguf(path: Path, arch: str, keys: Sequence[Key], tensors: Sequence[Stored]) -> None:
    writer = gguf.GGUFWriter(path, arch)
    try:
        for key in {key.name: key for key in keys}.values():
            writer.add_key_value(key.name, key.value, key.kind, key.items)
        for tensor in tensors:
            # Any type but uint8: then the shape is taken as that of the values.
            any_type, number = np.dtype(np.float32), _TYPE_NUMBERS[tensor.encoding]
            writer.add_tensor_info(tensor.name, tensor.shape, any_type, tensor.nbytes, number)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in tensors:
            writer.write_tensor_data(tensor)
    finally:
        writer.close()
