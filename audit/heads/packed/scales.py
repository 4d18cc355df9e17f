"""Scale tensors as sources of float32 [n, groups], from the shapes in which files keep them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.errors import MismatchError
from audit.files import aligned_view
from audit.heads.packed.codes import FLOAT8, Codec, OneByteFloats
from audit.heads.packed.module import Module
from audit.heads.packed.rows import Source, blocks_of, mapped, rows_of, same_for_all

E8M0: Codec = OneByteFloats(torch.float8_e8m0fnu)
"""2^(code - 127); 255 is NaN."""

_ONE_BYTE: dict[str, Codec] = {**FLOAT8, "F8_E8M0": E8M0}
_WIDE = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def to_floats(module: Module, leaf: str, *, bytes_are_e8m0: bool = False) -> Callable[..., Tensor]:
    """What turns picked raw bytes of `leaf` [n, bytes] into float32 [n, values].

    Args:
        bytes_are_e8m0: whether U8 is the format's way to write powers of two.

    Raises:
        UnsupportedFormatError: PACKED_TYPE, for integers.
    """
    encoding = module.entry(leaf).encoding
    if encoding == "U8" and bytes_are_e8m0:
        encoding = "F8_E8M0"
    if encoding in _WIDE:
        kind = _WIDE[encoding]
        return lambda raw: aligned_view(raw, kind).float()
    if encoding not in _ONE_BYTE:
        raise module.odd_type(leaf, "floats")
    codec = _ONE_BYTE[encoding]

    def convert(raw: Tensor) -> Tensor:
        out = torch.empty(raw.shape)
        if raw.numel():
            codec(raw, out)
        return out

    return convert


def row_groups(module: Module, leaf: str, shape: tuple[int, int], size: int, **how: bool) -> Source:
    """Scales [rows, ceil(columns / size)]; MismatchError SCALE_SHAPE for any other shape."""
    rows, columns = shape
    module.check_shape(leaf, (rows, -(-columns // size)))
    return mapped(rows_of(module.raw(leaf)), to_floats(module, leaf, **how))


def group_size(module: Module, leaf: str, columns: int) -> int:
    """Columns per group for scales [rows, groups], by the configuration or by even division.

    Raises:
        MismatchError: DECLARED_VS_STORED, or SCALE_SHAPE where the groups do not divide the
            columns and no configuration says how large they are.
    """
    count = module.shape(leaf)[1]
    declared = module.declared.number("group_size", "q_group_size") or 0
    if declared > 0 and count > 1:
        if -(-columns // declared) != count:
            raise module.contradiction(
                f"groups of {declared}",
                f"{module.name(leaf)} has {count} scales per row of {columns} columns",
            )
        return declared
    if count and columns % count == 0:
        return columns // count
    raise MismatchError(
        f"{module.name(leaf)} has {count} scales per row, which do not divide {columns} columns "
        "evenly, and no configuration says how large the groups are",
        hint="put the model's config.json beside the file",
        where=module.container.path,
        code="SCALE_SHAPE",
    )


@dataclass(frozen=True, slots=True)
class Granularity:
    """How scales of some shape are spread over a matrix."""

    said: str
    """For people: `tensor`, `row`, `g128` or `128x128`."""
    size: int
    """Columns per group."""
    height: int = 1
    """Rows per group; 0 where one row of scales serves all."""

    def place(self, flat: Tensor) -> Source:
        """Picks from `flat` [rows of scales, ...]."""
        if not self.height:
            return same_for_all(flat)
        return rows_of(flat) if self.height == 1 else blocks_of(flat, self.height)


def granularity(module: Module, leaf: str, shape: tuple[int, int]) -> Granularity:
    """One number, one per row, one per group of a row's columns, or one per block of both.

    The last group or block may be ragged.

    Raises:
        MismatchError: SCALE_SHAPE, or DECLARED_VS_STORED where the configuration says otherwise.
    """
    how = _by_shape(module, leaf, shape)
    strategy = module.declared.settings.get("strategy")
    wanted = {"tensor": ("tensor",), "channel": ("row", "tensor")}.get(str(strategy))
    if wanted and how.said not in wanted:
        stored = f"{module.name(leaf)} is {list(module.shape(leaf))}"
        raise module.contradiction(f"one scale per {strategy}", stored)
    return how


def _by_shape(module: Module, leaf: str, shape: tuple[int, int]) -> Granularity:
    rows, columns = shape
    stored = module.shape(leaf)
    if stored in ((), (1,), (1, 1)):
        return Granularity("tensor", columns, 0)
    if stored in ((rows,), (rows, 1)):
        return Granularity("row", columns)
    block = _block(module, stored, shape)
    if block:
        return Granularity(f"{block[0]}x{block[1]}", block[1], block[0])
    if len(stored) == 2 and stored[0] == rows:
        size = group_size(module, leaf, columns)
        return Granularity(f"g{size}", size)
    raise _no_scales(module, leaf, shape)


def scale_source(module: Module, leaf: str, how: Granularity) -> Source:
    """The scales of picked rows, float32 [n, groups]."""
    shape = module.shape(leaf)
    flat = module.raw(leaf).reshape(shape[0] if how.height and shape else 1, -1)
    return mapped(how.place(flat), to_floats(module, leaf))


def _no_scales(module: Module, leaf: str, shape: tuple[int, int]) -> MismatchError:
    """SCALE_SHAPE for scales that fit no granularity of a matrix of that shape."""
    return MismatchError(
        f"{module.name(leaf)} has shape {list(module.shape(leaf))}, which are no scales for a "
        f"matrix of {shape[0]} x {shape[1]}",
        hint="the tensors of this layer do not belong together: export the head again",
        where=module.container.path,
        code="SCALE_SHAPE",
    )


def _block(
    module: Module, stored: tuple[int, ...], shape: tuple[int, int]
) -> tuple[int, int] | None:
    """Height and width of the blocks, by the configuration, else 128 x 128 where that fits."""
    settings = module.declared.settings
    given = settings.get("weight_block_size") or settings.get("block_structure")
    sizes = [128, 128]
    if isinstance(given, list) and len(given) == 2 and all(type(n) is int and n > 0 for n in given):
        sizes = given
    height, width = sizes
    wanted = (-(-shape[0] // height), -(-shape[1] // width))
    return (height, width) if stored == wanted else None
