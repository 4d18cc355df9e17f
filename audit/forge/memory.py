"""Tensors that were just made, as a container: what a file would hold, before there is a file.

Loaders read it like any other container, so a head in memory and the same head from its file come
from the same bytes by the same code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor

from audit.files import Container, TensorEntry
from audit.forge.writers import Stored


@dataclass(frozen=True, slots=True, eq=False)
class MemoryContainer(Container):
    """A container of which some tensors, or all, lie in memory."""

    made: Mapping[str, Tensor] = field(kw_only=True)
    """Name -> stored bytes, uint8 [nbytes]."""

    def bytes_of(self, name: str) -> Tensor:
        """The stored bytes as uint8 [nbytes]: those made here, else the file's."""
        raw = self.made.get(name)
        return Container.bytes_of(self, name) if raw is None else raw


def in_memory(tensor: Stored) -> Stored:
    """The same tensor with its tiles computed once and kept."""
    raw = _bytes(tensor)
    return replace(tensor, tiles=lambda: [raw])


def container_of(
    tensors: Iterable[Stored],
    kind: Literal["safetensors", "gguf"],
    metadata: Mapping[str, Any] | None = None,
) -> MemoryContainer:
    """A container of these tensors alone."""
    path = Path("forge")
    entries, made = _entries(tensors, path)
    return MemoryContainer(
        path, kind, (path,), MappingProxyType(entries), metadata or {}, None, made=made
    )


def with_tensors(
    base: Container, tensors: Iterable[Stored], dropped: Iterable[str] = ()
) -> MemoryContainer:
    """`base` with some of its tensors replaced or added, and without `dropped`."""
    entries, made = _entries(tensors, base.path)
    gone = set(dropped)
    kept = {name: entry for name, entry in base.entries.items() if name not in gone}
    return MemoryContainer(
        base.path,
        base.format,
        base.files,
        MappingProxyType(kept | entries),
        base.metadata,
        base.config,
        made=made,
    )


def _entries(
    tensors: Iterable[Stored], path: Path
) -> tuple[dict[str, TensorEntry], dict[str, Tensor]]:
    entries, made = {}, {}
    for tensor in tensors:
        made[tensor.name] = _bytes(tensor)
        entries[tensor.name] = TensorEntry(
            tensor.name, tensor.encoding, tensor.shape, path, 0, tensor.nbytes
        )
    return entries, made


def _bytes(tensor: Stored) -> Tensor:
    parts = [tile.contiguous().flatten().view(torch.uint8) for tile in tensor.tiles()]
    return parts[0] if len(parts) == 1 else torch.cat(parts)
