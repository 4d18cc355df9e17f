"""FP8 (E4M3) weights with one float32 scale per row or per tensor.

On disk this is `weight` F8_E4M3 [rows, columns] and `weight_scale` F32 [rows, 1] or [1], with
W = weight * weight_scale: compressed-tensors' float-quantized layout (formats.md 3.2). The same
weights can be written as plain floats ("fake quant") for loaders that refuse FP8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from audit.forge.tiles import row_tiles
from audit.heads.rows import Rows

FP8_MAX = 448.0
Per = Literal["row", "tensor"]


@dataclass(frozen=True, slots=True, eq=False)
class Fp8Matrix:
    """Codes and their scales."""

    codes: Tensor
    """float8_e4m3fn [rows, columns]."""
    scales: Tensor
    """float32 [rows, 1], or [1] for one per tensor."""

    def values(self) -> Tensor:
        """The weights that they stand for, float32 [rows, columns]."""
        return decode_fp8(self.codes, self.scales)


def quantize_fp8(weight: Tensor | Rows, per: Per = "row") -> Fp8Matrix:
    """Encode a matrix, float32 [rows, columns] or rows that give it in tiles.

    Raises:
        UnreadableError: NaN or infinity.
    """
    scales = fp8_scales(weight, per)
    parts, at = [], 0
    for tile in row_tiles(weight):
        own = scales if per == "tensor" else scales[at : at + len(tile)]
        parts.append(encode_fp8(tile, own))
        at += len(tile)
    return Fp8Matrix(torch.cat(parts), scales)


def fp8_bytes(shape: Sequence[int]) -> int:
    """Size of codes and scales of a matrix [..., rows, columns], a scale per row."""
    *rows, columns = shape
    return math.prod(rows) * (columns + torch.finfo(torch.float32).bits // 8)


def fp8_scales(weight: Tensor | Rows, per: Per = "row") -> Tensor:
    """Largest magnitude / 448 of each row [rows, 1] or of the tensor [1]; 1 where all is zero."""
    peaks = torch.cat([tile.abs().amax(dim=1, keepdim=True) for tile in row_tiles(weight)])
    if per == "tensor":
        peaks = peaks.amax().view(1)
    scales = peaks / FP8_MAX
    return torch.where(scales > 0, scales, 1.0)


def encode_fp8(tile: Tensor, scales: Tensor) -> Tensor:
    """Float32 [n, columns] as float8_e4m3fn; rounds to nearest even, and saturates at 448."""
    # clamp: a peak / scale that rounding pushed past 464 would become NaN.
    return (tile / scales).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)


def decode_fp8(codes: Tensor, scales: Tensor) -> Tensor:
    """Codes times scales, float32 [n, columns]."""
    return codes.float() * scales
