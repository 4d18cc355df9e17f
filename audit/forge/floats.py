"""Values of types that safetensors has no place for, kept there as the floats they stand for.

They are exact: a code times its scales has fewer significant bits than float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from audit.files import decode_rows, row_bytes
from audit.files.encodings import SAFETENSORS_BITS
from audit.forge.blocks import sidecar
from audit.forge.cuts import Cut
from audit.forge.writers import Stored


def as_floats(tensors: Sequence[Stored]) -> tuple[list[Stored], int]:
    """The same values in types that safetensors has, and how many tensors that changed."""
    scales = {tensor.name: tensor for tensor in tensors}
    used: set[str] = set()
    found = []
    for tensor in tensors:
        if tensor.encoding in SAFETENSORS_BITS:
            found.append(tensor)
            continue
        scale = scales.get(sidecar(tensor.name))
        used |= {scale.name} if scale else set()
        found.append(_decoded(tensor, scale))
    return [tensor for tensor in found if tensor.name not in used], len(tensors) - sum(
        tensor.encoding in SAFETENSORS_BITS for tensor in tensors
    )


def _decoded(tensor: Stored, scale: Stored | None) -> Stored:
    factor = 1.0
    if scale is not None:
        [raw] = scale.tiles()
        factor = float(raw.view(torch.float32))
    columns = tensor.shape[-1]

    def tiles() -> Iterator[Tensor]:
        for tile in tensor.tiles():
            rows = tile.view(-1, row_bytes(tensor.encoding, columns))
            values = decode_rows(rows, tensor.encoding, columns)
            yield (values if factor == 1.0 else values * factor).view(torch.uint8)

    return replace(tensor, encoding="F32", tiles=tiles)


def simulation_of(cut: Cut, floats: str, changed: int, packed: bool = False) -> str:
    """The note on a safetensors file of a type's values and not the type; empty where it has it.

    Args:
        floats: what FP8 was written as, where it was not `packed`.
        changed: tensors of ggml's types that `as_floats` changed.
    """
    if not changed and (cut.kind != "fp8" or packed):
        return ""
    return (
        f"simulated: {cut.title} lies in this file as the {'F32' if changed else floats} values "
        "that it stands for; the bytes named are those of the type itself"
    )
