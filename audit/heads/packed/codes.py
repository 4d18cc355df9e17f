"""Packed codes to float32 values, before any scale: tables and shifts over the bytes of rows.

A codec takes raw uint8 [n, bytes] and fills out float32 [n, columns]; bytes beyond the last column
are padding. Every code is read through its own meaning, so no byte is ever taken for a number that
it is not. Leaves out scales and zero points (`rows`) and which bytes are a row (the formats).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial

import torch
from torch import Tensor
from torch.nn import functional

from audit.files import aligned_view
from audit.files.tables import ValueTable, fields_of

Codec = Callable[[Tensor, Tensor], None]

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
"""The sixteen FP4 values; bit 3 is the sign."""


def nibbles(values: Sequence[float] | Tensor, *, high_first: bool = False) -> ValueTable:
    """Two 4-bit codes per byte that stand for the sixteen `values`."""
    codes = fields_of(4, 2)
    codes = codes.flip(1) if high_first else codes
    return ValueTable(torch.as_tensor(values, dtype=torch.float32)[codes])


def signed_nibbles() -> ValueTable:
    """Two's complement 4-bit integers, low nibble first."""
    return nibbles([*range(8), *range(-8, 0)])


def integers(bits: int, offset: int = 0) -> Codec:
    """Unsigned fields of 1 to 8 bits minus `offset`, lowest bits first, packed without gaps."""
    if bits == 8:
        return partial(_whole_bytes, offset=offset)
    if 8 % bits == 0:
        return ValueTable((fields_of(bits, 8 // bits) - offset).float())
    return _StraddlingFields(bits, offset)


def _whole_bytes(raw: Tensor, out: Tensor, offset: int) -> None:
    out.copy_(raw[:, : out.shape[1]])
    if offset:
        out.sub_(offset)


class _StraddlingFields:
    """Fields of 3, 5, 6 or 7 bits: 32 of them fill as many words as they have bits.

    Two or four neighbours at a time are one entry of the table. Each lies within two neighbouring
    words, seen as one number of 64 bits.
    """

    def __init__(self, bits: int, offset: int) -> None:
        per = 4 if bits == 3 else 2
        self.bits, self.mask = bits, (1 << (bits * per)) - 1
        self.table = ValueTable((fields_of(bits, per) - offset).float())
        starts = torch.arange(0, 32, per) * bits
        self.windows = (starts // 32).clamp(max=bits - 2)
        self.shifts = starts - 32 * self.windows

    def __call__(self, raw: Tensor, out: Tensor) -> None:
        units = -(-out.shape[1] // 32)
        short = units * self.bits * 4 - raw.shape[1]
        raw = functional.pad(raw, (0, short)) if short else raw.contiguous()
        words = aligned_view(raw, torch.int32).view(len(raw), units, self.bits)
        pairs = words.unfold(2, 2, 1).contiguous().view(torch.int64).squeeze(-1)
        parts = pairs.index_select(2, self.windows) >> self.shifts
        self.table.fill(parts.bitwise_and_(self.mask).view(len(raw), -1), out)


def spaced_integers(bits: int, offset: int = 0) -> Codec:
    """As `integers`, but each 32-bit word holds 32 // bits fields and wastes the rest."""
    shifts = torch.arange(32 // bits, dtype=torch.int32) * bits

    def fill(raw: Tensor, out: Tensor) -> None:
        words = aligned_view(raw, torch.int32).unsqueeze(-1)
        fields = ((words >> shifts) & ((1 << bits) - 1)).view(len(raw), -1)
        out.copy_(fields[:, : out.shape[1]]).sub_(offset)

    return fill


def signed_bytes(raw: Tensor, out: Tensor) -> None:
    """int8."""
    out.copy_(raw.view(torch.int8))


class OneByteFloats:
    """A one-byte float type of torch, whose own conversion takes one value at a time.

    Two bytes at once are looked up in a table of 65,536 pairs; rows of an odd width go singly.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        codes = torch.arange(256, dtype=torch.int32).to(torch.uint8)
        self.values = codes.view(dtype).float()
        self.single = ValueTable(self.values.unsqueeze(1))

    @cached_property
    def pairs(self) -> ValueTable:
        """512 KiB, made when it is first needed."""
        return ValueTable(self.values[fields_of(8, 2)])

    def __call__(self, raw: Tensor, out: Tensor) -> None:
        if raw.shape[1] % 2 or not raw.is_contiguous() or raw.storage_offset() % 2:
            self.single(raw, out)
        else:
            self.pairs.fill(raw.view(torch.uint16).int(), out)


FLOAT8: dict[str, Codec] = {
    "F8_E4M3": OneByteFloats(torch.float8_e4m3fn),
    "F8_E5M2": OneByteFloats(torch.float8_e5m2),
    "F8_E4M3FNUZ": OneByteFloats(torch.float8_e4m3fnuz),
    "F8_E5M2FNUZ": OneByteFloats(torch.float8_e5m2fnuz),
}
"""Codecs by safetensors' name of the type."""
