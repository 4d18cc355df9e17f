"""Block formats of ggml written as torch arithmetic: bytes of blocks in, float32 values out.

Each type has two steps: `prepare` turns the scales of many blocks into float32, `fill` the codes of
fewer blocks into values, with the very floats of ggml's C code (same operations in the same order,
no fused multiply-add). Two steps, because scales are few: a torch call costs as much for them as
for the codes. Nibbles and bits are separated eight bytes at a time, as int64 lanes. Leaves out the
rarer types, which `gguf.quants.dequantize` decodes (see `decode`), and the 2- and 3-bit K-quants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.files.tables import ValueTable

Scales = tuple[Tensor, ...]
"""Scales of n blocks, each float32 [n, ...]."""


@dataclass(frozen=True, slots=True)
class BlockDecoder:
    """How one type's blocks uint8 [n, size] become float32 [n, block]."""

    prepare: Callable[[Tensor], Scales]
    """Blocks -> scales."""
    fill: Callable[..., None]
    """Blocks, out float32 [n, block], and the scales of these blocks."""


_NIBBLES = 0x0F0F0F0F0F0F0F0F
_PAIRS = 0x0303030303030303
_BITS = 0x0101010101010101
_TWICE_E2M1 = torch.tensor([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]).float()
"""Twice the FP4 values, as ggml has them: integers, so that there is no negative zero."""
_DIAGONAL = 0x8040201008040201 - (1 << 64)
_ALL_BUT_TOP = 0x7F7F7F7F7F7F7F7F


def _copy(blocks: Tensor, start: int, stop: int) -> Tensor:
    """Bytes start to stop of each block, packed.

    Always a copy: of a single block `contiguous` would give the slice itself, whose place in
    memory may not suit a wider type.
    """
    return blocks[:, start:stop].clone(memory_format=torch.contiguous_format)


def _half(blocks: Tensor, at: int) -> Tensor:
    """The fp16 at byte `at` of each block, as float32 [n, 1]."""
    return _copy(blocks, at, at + 2).view(torch.float16).float()


def _lanes(blocks: Tensor, start: int, stop: int) -> Tensor:
    """Bytes start to stop of each block as int64 [n, (stop - start) / 8]."""
    return _copy(blocks, start, stop).view(torch.int64)


def _nibbles(lanes: Tensor, groups: int) -> Tensor:
    """Codes of 4 bits [n, groups, 2, lanes per group]: in each group all low ones, then the high.

    Arithmetic shifts smear the sign into the topmost bits only, which the mask removes.
    """
    lanes = lanes.view(len(lanes), groups, 1, -1)
    return torch.cat([lanes & _NIBBLES, (lanes >> 4) & _NIBBLES], dim=2)


def _shifts(lanes: Tensor, step: int) -> Tensor:
    """`lanes` [..., k] shifted right by 0, step, ... 8 - step: [..., 8 / step, k]."""
    return lanes.unsqueeze(-2) >> torch.arange(0, 8, step, device=lanes.device).unsqueeze(-1)


def _spread_bits(blocks: Tensor, start: int, stop: int) -> Tensor:
    """Each bit of the bytes start to stop as a byte 0 or 1, lowest first: int64 [n, bytes].

    The byte is copied to all eight places, one bit is kept in each, and adding 0x7F carries
    whatever was kept into the top bit, never beyond it.
    """
    copies = blocks[:, start:stop].long() * _BITS
    return (((copies & _DIAGONAL) + _ALL_BUT_TOP) >> 7) & _BITS


def _fp4_pairs() -> ValueTable:
    """Values of two codes that lie in neighbouring bytes: entry low + 256 * high."""
    index = torch.arange(0x0F0F + 1)
    codes = torch.stack([index & 15, (index >> 8) & 15], dim=1)
    return ValueTable(_TWICE_E2M1[codes])


_FP4_PAIRS = _fp4_pairs()


def _fp4_values(codes: Tensor, out: Tensor) -> None:
    """Twice the FP4 values of codes in the bytes of int64 lanes [n, ...], into out [n, bytes]."""
    _FP4_PAIRS.to(out.device).fill(codes.view(torch.int16).view(len(out), -1).int(), out)


def _half_e8m0(bytes_: Tensor) -> Tensor:
    """Half of 2^(e - 127) as float32; the two smallest are denormal."""
    exponents = bytes_.int()
    bits = torch.where(exponents < 2, 0x00200000 << (exponents & 1), (exponents - 1) << 23)
    return bits.view(torch.float32)


def _half_ue4m3(bytes_: Tensor) -> Tensor:
    """Half of the E4M3 value without its sign bit, as float32; 0x7F is 0 in ggml, not NaN."""
    codes = bytes_.int()
    # The exponent bias goes from 7 to float32's 127, less one to halve.
    normal = (((codes & 0x7F) << 20) + (119 << 23)).view(torch.float32)
    values = torch.where((codes & 0x78) == 0, (codes & 7) * 2.0**-10, normal)
    return values.masked_fill_(codes == 0x7F, 0.0)


def _one_half(blocks: Tensor) -> Scales:
    """The fp16 that starts a block."""
    return (_half(blocks, 0),)


def _two_halves(blocks: Tensor) -> Scales:
    """The two fp16 that start a block."""
    return _half(blocks, 0), _half(blocks, 2)


def q4_0(blocks: Tensor, out: Tensor, d: Tensor) -> None:
    """d * (q - 8)."""
    codes = _nibbles(_lanes(blocks, 2, 18), 1).view(torch.int8).view(-1, 32)
    torch.mul(codes.sub_(8), d, out=out)


def q4_1(blocks: Tensor, out: Tensor, d: Tensor, m: Tensor) -> None:
    """d * q + m."""
    codes = _nibbles(_lanes(blocks, 4, 20), 1).view(torch.int8).view(-1, 32)
    torch.mul(codes, d, out=out).add_(m)


def _five_bits(blocks: Tensor, start: int) -> Tensor:
    """Codes of 5 bits as int8 [n, 32]: fifth bits in 4 bytes from `start`, then the nibbles."""
    high = _spread_bits(blocks, start, start + 4) << 4
    codes = _nibbles(_lanes(blocks, start + 4, start + 20), 1).view(torch.int8).view(-1, 32)
    return codes.bitwise_or_(high.view(torch.int8))


def q5_0(blocks: Tensor, out: Tensor, d: Tensor) -> None:
    """d * (q - 16)."""
    torch.mul(_five_bits(blocks, 2).sub_(16), d, out=out)


def q5_1(blocks: Tensor, out: Tensor, d: Tensor, m: Tensor) -> None:
    """d * q + m."""
    torch.mul(_five_bits(blocks, 4), d, out=out).add_(m)


def q8_0(blocks: Tensor, out: Tensor, d: Tensor) -> None:
    """d * q, q signed."""
    torch.mul(blocks[:, 2:].view(torch.int8), d, out=out)


def _scales_and_mins(blocks: Tensor) -> Scales:
    """The 6-bit scales and mins of Q4_K and Q5_K times d and dmin: float32 [n, 8, 1] each.

    After d and dmin come twelve bytes, here three int32 lanes: scales of groups 0-3, mins of groups
    0-3, and the nibbles of groups 4-7, whose top two bits lie on top of the first two lanes.
    """
    header = _copy(blocks, 0, 16)
    factors = header[:, :4].view(torch.float16).float()
    lanes = header.view(torch.int32)
    first, nibbles = lanes[:, 1:3], lanes[:, 3:]
    nibbles = torch.cat([nibbles, nibbles >> 4], dim=1) & 0x0F0F0F0F
    packed = torch.stack([first & 0x3F3F3F3F, ((first >> 2) & 0x30303030) | nibbles], dim=2)
    both = packed.view(torch.uint8).view(-1, 2, 8) * factors.unsqueeze(-1)
    return both[:, 0].unsqueeze(-1), both[:, 1].unsqueeze(-1)


def q4_k(blocks: Tensor, out: Tensor, scales: Tensor, mins: Tensor) -> None:
    """d * scale * q - dmin * min, in 8 groups of 32."""
    codes = _nibbles(_lanes(blocks, 16, 144), 4).view(torch.int8).view(-1, 8, 32)
    torch.mul(codes, scales, out=out.view(-1, 8, 32)).sub_(mins)


def q5_k(blocks: Tensor, out: Tensor, scales: Tensor, mins: Tensor) -> None:
    """As Q4_K; bit g of the 32 bytes before the nibbles is the fifth bit of group g."""
    high = (_shifts(_lanes(blocks, 16, 48), 1) & _BITS) << 4
    codes = _nibbles(_lanes(blocks, 48, 176), 4).view(-1, 8, 4).bitwise_or_(high)
    torch.mul(codes.view(torch.int8), scales, out=out.view(-1, 8, 32)).sub_(mins)


def _q6_k_scales(blocks: Tensor) -> Scales:
    """d * scale, float32 [n, 16, 1]."""
    scales = blocks[:, 192:208].view(torch.int8).float() * _half(blocks, 208)
    return (scales.unsqueeze(-1),)


def q6_k(blocks: Tensor, out: Tensor, scales: Tensor) -> None:
    """d * scale * (q - 32), in 16 groups of 16; two halves of 64 nibble and 32 high-bit bytes."""
    high = (_shifts(_lanes(blocks, 128, 192).view(-1, 2, 4), 2) & _PAIRS) << 4
    codes = _nibbles(_lanes(blocks, 0, 128), 2).view(-1, 2, 4, 4).bitwise_or_(high)
    values = codes.view(torch.int8).sub_(32).view(-1, 16, 16)
    torch.mul(values, scales, out=out.view(-1, 16, 16))


def mxfp4(blocks: Tensor, out: Tensor, scale: Tensor) -> None:
    """2^(e - 127) * FP4; low nibbles are the first half of the block."""
    _fp4_values(_nibbles(_lanes(blocks, 1, 17), 1), out)
    out.mul_(scale)


def nvfp4(blocks: Tensor, out: Tensor, scales: Tensor) -> None:
    """UE4M3 scale * FP4 in 4 groups of 16; low nibbles are the first half of a group."""
    _fp4_values(_nibbles(_lanes(blocks, 4, 36), 4), out)
    out.view(-1, 4, 16).mul_(scales)


def q1_0(blocks: Tensor, out: Tensor, d: Tensor) -> None:
    """d where the bit is set, -d elsewhere."""
    signs = (_spread_bits(blocks, 2, 18) << 1).view(torch.int8).sub_(1)
    torch.mul(signs, d, out=out)


def q2_0(blocks: Tensor, out: Tensor, d: Tensor) -> None:
    """d * (q - 1); four codes per byte, lowest bits first."""
    packed = blocks[:, 2:].int()
    pairs = packed | (packed << 12)
    codes = ((pairs | (pairs << 6)) & 0x03030303).view(torch.int8).sub_(1)
    torch.mul(codes, d, out=out)


DECODERS: dict[str, BlockDecoder] = {
    "Q4_0": BlockDecoder(_one_half, q4_0),
    "Q4_1": BlockDecoder(_two_halves, q4_1),
    "Q5_0": BlockDecoder(_one_half, q5_0),
    "Q5_1": BlockDecoder(_two_halves, q5_1),
    "Q8_0": BlockDecoder(_one_half, q8_0),
    "Q4_K": BlockDecoder(_scales_and_mins, q4_k),
    "Q5_K": BlockDecoder(_scales_and_mins, q5_k),
    "Q6_K": BlockDecoder(_q6_k_scales, q6_k),
    "MXFP4": BlockDecoder(lambda blocks: (_half_e8m0(blocks[:, :1]),), mxfp4),
    "NVFP4": BlockDecoder(lambda blocks: (_half_ue4m3(blocks[:, :4]).unsqueeze(-1),), nvfp4),
    "Q1_0": BlockDecoder(_one_half, q1_0),
    "Q2_0": BlockDecoder(_one_half, q2_0),
}
