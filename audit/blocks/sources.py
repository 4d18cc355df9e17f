"""Weights by name from a container, as float32. Names are those of Hugging Face checkpoints.

A `Source` says where a container keeps a weight and how it was changed on its way there. Scales
that lie beside a weight and would go unused are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.errors import MismatchError, UnreadableError, UnsupportedFormatError
from audit.files import Container, TensorEntry, is_float_encoding
from audit.heads.names import plain
from audit.heads.packed import packed_matrix, weight_names
from audit.heads.stored import gguf_scale, stored_rows

_COMPANIONS = ("_scale", "_scale_inv", "_scale_2", "_zero_point", ".absmax", ".scale", ".SCB")


def _same(values: Tensor) -> Tensor:
    return values


@dataclass(frozen=True, slots=True)
class Stored:
    """Where one weight lies, and what turns the stored numbers into transformers'."""

    name: str
    convert: Callable[[Tensor], Tensor] = _same


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A container, and where it keeps the weight of a Hugging Face name."""

    container: Container
    find: Callable[[str], Stored | None]

    def read(self, stored: Stored) -> Tensor:
        """The weight, float32, as transformers computes with it."""
        return stored.convert(read_weight(self.container, stored.name))


def canonical(name: str) -> str:
    """A checkpoint's name without the prefixes that differ between saves of one model."""
    return plain(name).removeprefix("model.")


def safetensors_source(container: Container) -> Source:
    """Names as they stand in the file; a packed matrix goes by the weight it stands for."""
    known = weight_names(container, canonical)

    def find(name: str) -> Stored | None:
        found = known.get(canonical(name))
        return Stored(found) if found else None

    return Source(container, find)


def read_weight(container: Container, name: str) -> Tensor:
    """One tensor as float32 in the shape it stands for, unpacked, its scales applied.

    Raises:
        MismatchError: BLOCK_SHAPE, it is empty.
        UnsupportedFormatError: it has scales beside it that would go unused, or holds codes.
        UnreadableError: NaN or infinity in it.
    """
    entry = container.entries[name]
    if 0 in entry.shape:
        raise MismatchError(
            f"{name} has shape {list(entry.shape)}: there is nothing in it to run",
            hint="the block was cut to nothing, or exported without its weights",
            where=container.path,
            code="BLOCK_SHAPE",
        )
    packed = packed_matrix(container, name)
    if packed is None:
        _refuse_unused(container, entry)
    if packed:
        values = packed.rows.tile(0, packed.rows.count)
    elif len(entry.shape) == 2:
        rows = stored_rows(container, name)
        values = rows.tile(0, rows.count)
    else:
        values = container.values(name).float()
        if container.format == "gguf":
            values = values * gguf_scale(container, name)
    if bool(torch.isfinite(values).all()):
        return values
    raise UnreadableError(
        f"{name} holds NaN or infinity",
        hint="the file is damaged: export it again",
        where=container.path,
        code="NON_FINITE",
    )


def _refuse_unused(container: Container, entry: TensorEntry) -> None:
    """Scales that lie beside a weight and are not applied mean that the weight is not what it says.

    Published case (kekzl/imp PR#1428): a quantized MTP head read as bfloat16 rejects every draft.
    """
    stem = entry.name.removesuffix(".weight")
    near = {base + end for base in (entry.name, stem) for end in _COMPANIONS}
    used = {f"{stem}.scale"} if container.format == "gguf" else set()
    unused = sorted((near - used - {entry.name}) & set(container.entries))
    floats = is_float_encoding(entry.encoding) or len(entry.shape) == 2
    if not unused and (floats or container.format == "gguf"):
        return
    what = f"{', '.join(unused)} beside it" if unused else f"{entry.encoding} codes and no scales"
    raise UnsupportedFormatError(
        f"{entry.name} of the draft block has {what}, which this version does not apply; "
        "read without them its numbers would be wrong",
        hint="export the block as bfloat16, or as GGUF",
        where=container.path,
        code="SCALE_UNUSED" if unused else "SCALE_MISSING",
    )
