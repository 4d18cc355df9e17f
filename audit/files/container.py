"""The checked contents of one model's files: names, encodings, places, and views of the bytes.

Nothing is read until asked for: the files are mapped, and the readers have checked that every
entry lies inside its file. Leaves out how headers are parsed (`safetensors_file`, `gguf_file`) and
what the tensors mean.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from audit.errors import NotFoundError, UnreadableError, UnsupportedFormatError
from audit.files.decode import aligned_view, decode_vector
from audit.files.encodings import INTEGERS, row_bytes

_INTEGER_DTYPES = {
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "U8": torch.uint8,
    "U16": torch.uint16,
    "U32": torch.uint32,
    "U64": torch.int64,
}


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor as its file's header describes it; the place has been checked."""

    name: str
    encoding: str
    """A name of `encodings.ENCODINGS`, or `GGML_<n>` for a ggml type that nobody here knows."""
    shape: tuple[int, ...]
    """Row-major as Hugging Face writes it: [rows, columns]."""
    path: Path
    """The very file that holds it: one shard of several perhaps."""
    offset: int
    """From the start of the file, in bytes."""
    nbytes: int | None
    """None only for a GGUF type whose size is not known."""


@dataclass(frozen=True, slots=True, eq=False)
class Container:
    """All tensors of one model, from one file or from a set of shards."""

    path: Path
    """What was opened: a file, an index or a folder."""
    format: Literal["safetensors", "gguf"]
    files: tuple[Path, ...]
    """Every file that holds tensors, in the order of the shards."""
    entries: Mapping[str, TensorEntry]
    metadata: Mapping[str, Any]
    """Key-values of the first GGUF shard, or `__metadata__` of the first safetensors file."""
    config: Mapping[str, Any] | None
    """The config.json beside safetensors files; None when there is none, and for GGUF."""
    _maps: dict[Path, np.ndarray[Any, np.dtype[np.uint8]]] = field(
        default_factory=dict, init=False, repr=False
    )
    _read: set[str] = field(default_factory=set, init=False, repr=False)

    def never_read(self) -> list[str]:
        """Names of tensors whose bytes nobody asked this container for, in the file's order."""
        return [name for name in self.entries if name not in self._read]

    def entry(self, name: str) -> TensorEntry:
        """The entry of that name; raises NotFoundError with the nearest names."""
        if name not in self.entries:
            near = difflib.get_close_matches(name, self.entries, n=3)
            raise NotFoundError(
                f"there is no tensor {name!r} in {self.path}",
                hint=f"did you mean {', '.join(near)}?" if near else "",
                where=name,
            )
        return self.entries[name]

    def bytes_of(self, name: str) -> Tensor:
        """The stored bytes as uint8 [nbytes]: a view of the map, to be read and not written.

        Raises UnsupportedFormatError where the size of the encoding is unknown, UnreadableError
        when the file has shrunk since it was opened.
        """
        entry = self.entry(name)
        self._read.add(name)
        if entry.nbytes is None:
            raise UnsupportedFormatError(
                f"tensor {name} in {entry.path} has the ggml type "
                f"{entry.encoding.removeprefix('GGML_')}, which this version does not know",
                hint="convert it to another type with llama-quantize",
                where=name,
            )
        if entry.nbytes == 0:
            return torch.empty(0, dtype=torch.uint8)
        mapped = self._mapped(entry.path)
        stop = entry.offset + entry.nbytes
        if stop > len(mapped):
            raise UnreadableError(
                f"{entry.path} has changed since it was opened: {stop - len(mapped)} bytes of "
                f"tensor {name} are missing",
                where=entry.path,
                code="FILE_CUT",
            )
        return torch.from_numpy(mapped[entry.offset : stop])

    def rows_of(self, name: str) -> Tensor:
        """The stored bytes of a matrix as uint8 [rows, bytes per row], a view as in `bytes_of`."""
        entry = self.entry(name)
        if len(entry.shape) != 2:
            raise UnsupportedFormatError(
                f"tensor {name} in {entry.path} has shape {list(entry.shape)}, not rows by columns",
                where=name,
            )
        raw = self.bytes_of(name)
        return raw.view(entry.shape[0], row_bytes(entry.encoding, entry.shape[1]))

    def values(self, name: str) -> Tensor:
        """The decoded values in the entry's shape; meant for small tensors.

        Floats and ggml blocks become float32, integers int64, booleans bool. Raises
        UnsupportedFormatError for encodings without plain values (F4, F6, C64).
        """
        entry = self.entry(name)
        raw = self.bytes_of(name)
        if entry.encoding == "BOOL":
            flat = _booleans(raw, entry)
        elif entry.encoding in INTEGERS:
            flat = _integers(raw, entry)
        else:
            flat = decode_vector(raw, entry.encoding)
        return flat.view(entry.shape)

    def _mapped(self, path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
        if path not in self._maps:
            try:
                # Copy on write: torch warns about tensors over read-only memory.
                mapped = np.memmap(path, dtype=np.uint8, mode="c")
            except (OSError, ValueError) as error:
                raise UnreadableError(
                    f"{path} can no longer be mapped: {error}", where=path
                ) from error
            self._maps[path] = np.asarray(mapped)
        return self._maps[path]


def _booleans(raw: Tensor, entry: TensorEntry) -> Tensor:
    if (raw > 1).any():
        raise UnreadableError(
            f"tensor {entry.name} in {entry.path} is BOOL but holds other bytes than 0 and 1",
            where=entry.name,
        )
    return raw == 1


def _integers(raw: Tensor, entry: TensorEntry) -> Tensor:
    values = aligned_view(raw, _INTEGER_DTYPES[entry.encoding]).to(torch.int64, copy=True)
    if entry.encoding == "U64" and (values < 0).any():
        raise UnreadableError(
            f"tensor {entry.name} in {entry.path} holds values of 2^63 and more",
            where=entry.name,
        )
    return values
