"""Packed codes to float32 values, before any scale: tables and shifts over the bytes of rows.

A codec takes raw uint8 [n, bytes] and fills out float32 [n, columns]; bytes beyond the last column
are padding. Every code is read through its own meaning, so no byte is ever taken for a number that
it is not. Leaves out scales and zero points (`rows`) and which bytes are a row (the formats).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

Codec = Callable[[Tensor, Tensor], None]

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
"""The sixteen FP4 values; bit 3 is the sign."""

_HALF_RANGE = 256.0
"""What an E4M3 code lacks when its bits are read as a half's: the biases differ by 8."""


class TableCodec:
    """One table row of values per code of a byte (or per `index` made from the bytes)."""

    def __init__(self, table: Tensor) -> None:
        """`table` float32 [entries, values per entry], 1, 2, 4 or 8 of them."""
        self.per = table.shape[1]
        # Moving 8 or 16 bytes at once is what makes a table faster than arithmetic.
        kind = {1: torch.float32, 2: torch.int64}.get(self.per, torch.complex128)
        self.cells = table.contiguous().view(kind)

    def __call__(self, raw: Tensor, out: Tensor) -> None:
        self.fill(raw.int(), out)

    def fill(self, index: Tensor, out: Tensor) -> None:
        """`index` int32 or int64 [n, entries per row] into out [n, columns]."""
        wide = index.shape[1] * self.per
        fits = wide == out.shape[1] and out.is_contiguous()
        into = out if fits else torch.empty(len(index), wide)
        cells = into.view(self.cells.dtype).view(-1, self.cells.shape[1])
        torch.index_select(self.cells, 0, index.reshape(-1), out=cells)
        if not fits:
            out.copy_(into[:, : out.shape[1]])


def _fields(bits: int, per: int) -> Tensor:
    """int64 [2^(bits * per), per]: the fields of every word of `per` fields, lowest bits first."""
    words = torch.arange(1 << (bits * per)).unsqueeze(1)
    return (words >> (torch.arange(per) * bits)) & ((1 << bits) - 1)


def nibbles(values: Sequence[float] | Tensor, *, high_first: bool = False) -> TableCodec:
    """Two 4-bit codes per byte that stand for the sixteen `values`."""
    codes = _fields(4, 2)
    codes = codes.flip(1) if high_first else codes
    return TableCodec(torch.as_tensor(values, dtype=torch.float32)[codes])


def signed_nibbles() -> TableCodec:
    """Two's complement 4-bit integers, low nibble first."""
    return nibbles([*range(8), *range(-8, 0)])


def integers(bits: int, offset: int = 0) -> Codec:
    """Unsigned fields of 1 to 8 bits minus `offset`, lowest bits first, packed without gaps."""
    if bits == 8:
        return partial(_whole_bytes, offset=offset)
    if 8 % bits == 0:
        return TableCodec((_fields(bits, 8 // bits) - offset).float())
    return _StraddlingFields(bits, offset)


def _whole_bytes(raw: Tensor, out: Tensor, offset: int) -> None:
    out.copy_(raw[:, : out.shape[1]])
    if offset:
        out.sub_(offset)


class _StraddlingFields:
    """Fields of 3, 5, 6 or 7 bits: eight of them fill `bits` bytes, whatever they straddle."""

    def __init__(self, bits: int, offset: int) -> None:
        self.bits = bits
        per = 4 if bits == 3 else 2
        self.table = TableCodec((_fields(bits, per) - offset).float())
        self.shifts = torch.arange(0, 8, per) * bits
        self.mask = (1 << (bits * per)) - 1

    def __call__(self, raw: Tensor, out: Tensor) -> None:
        groups = -(-out.shape[1] // 8)
        short = groups * self.bits - raw.shape[1]
        raw = functional.pad(raw, (0, short)) if short > 0 else raw[:, : groups * self.bits]
        lanes = torch.zeros(len(raw), groups, 8, dtype=torch.uint8)
        lanes[..., : self.bits] = raw.reshape(len(raw), groups, self.bits)
        words = (lanes.view(torch.int64) >> self.shifts) & self.mask
        self.table.fill(words.view(len(raw), -1), out)


def spaced_integers(bits: int, offset: int = 0) -> Codec:
    """As `integers`, but each 32-bit word holds 32 // bits fields and wastes the rest."""
    shifts = torch.arange(32 // bits, dtype=torch.int32) * bits

    def fill(raw: Tensor, out: Tensor) -> None:
        words = raw.clone(memory_format=torch.contiguous_format).view(torch.int32).unsqueeze(-1)
        fields = ((words >> shifts) & ((1 << bits) - 1)).view(len(raw), -1)
        out.copy_(fields[:, : out.shape[1]]).sub_(offset)

    return fill


def signed_bytes(raw: Tensor, out: Tensor) -> None:
    """int8."""
    out.copy_(raw.view(torch.int8))


def e5m2(raw: Tensor, out: Tensor) -> None:
    """The upper byte of a half, infinity and NaN included."""
    out.copy_((raw.short() << 8).view(torch.float16))


def e4m3(raw: Tensor, out: Tensor) -> None:
    """Sign, four exponent bits, three mantissa bits; 0x7F and 0xFF are NaN, there is no infinity.

    torch's own conversion takes one value at a time; as bits of a half, subnormals come out right.
    """
    half = (raw.view(torch.int8).short() << 7) & -0x4080
    out.copy_(half.view(torch.float16)).mul_(_HALF_RANGE)
    magnitude = raw & 0x7F
    if int(magnitude.max()) == 0x7F:
        out.masked_fill_(magnitude == 0x7F, torch.nan)


def by_torch(dtype: torch.dtype) -> Codec:
    """Any one-byte float type of torch, through a table of its 256 codes."""
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    return TableCodec(codes.view(dtype).float().unsqueeze(1))


FLOAT8: dict[str, Codec] = {
    "F8_E4M3": e4m3,
    "F8_E5M2": e5m2,
    "F8_E4M3FNUZ": by_torch(torch.float8_e4m3fnuz),
    "F8_E5M2FNUZ": by_torch(torch.float8_e5m2fnuz),
}
"""Codecs by safetensors' name of the type."""
