"""Bit streams and FP codes written one code at a time, as the formats' publications describe them.

Nothing here is shared with the decoders: streams are Python integers of any length, FP values come
from sign, exponent and mantissa.
"""

from __future__ import annotations

import numpy as np
import torch

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def stream(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes as one little-endian bit stream in int32 words, code i at bit i * bits."""
    number = sum(int(code) << (bits * i) for i, code in enumerate(codes))
    words = -(-len(codes) * bits // 32)
    return np.frombuffer(number.to_bytes(words * 4, "little"), "<i4").copy()


def spaced(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes in int32 words of 32 // bits each; no code straddles two words."""
    per = 32 // bits
    return np.concatenate([stream(codes[i : i + per], bits)[:1] for i in range(0, len(codes), per)])


def rows_packed(codes: np.ndarray, bits: int, pack=stream) -> torch.Tensor:
    """Each row of codes [N, K] as words: int32 [N, words]."""
    return torch.from_numpy(np.stack([pack(row, bits) for row in codes]))


def byte_pairs(codes: np.ndarray, high_first: bool = False) -> torch.Tensor:
    """4-bit codes [N, K] two to a byte: uint8 [N, K / 2]."""
    first, second = codes[:, ::2].astype(np.uint8), codes[:, 1::2].astype(np.uint8)
    low, high = (second, first) if high_first else (first, second)
    return torch.from_numpy(low + high * 16)


def fp4(codes: np.ndarray) -> np.ndarray:
    """E2M1 values of codes 0..15."""
    return np.where(codes >= 8, -1, 1).astype(np.float32) * E2M1[codes % 8]


def e4m3(code: int) -> float:
    """One E4M3 value by its fields: bias 7, subnormals, NaN at S.1111.111."""
    sign, exponent, mantissa = code >> 7, (code >> 3) & 15, code & 7
    if (exponent, mantissa) == (15, 7):
        return float("nan")
    size = mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -size if sign else size


def e5m2(code: int) -> float:
    """One E5M2 value by its fields: bias 15, infinity and NaN as in IEEE 754."""
    sign, exponent, mantissa = code >> 7, (code >> 2) & 31, code & 3
    if exponent == 31:
        size = float("nan") if mantissa else float("inf")
    elif exponent == 0:
        size = mantissa / 4 * 2.0**-14
    else:
        size = (1 + mantissa / 4) * 2.0 ** (exponent - 15)
    return -size if sign else size


def spread(scales: np.ndarray, size: int, columns: int) -> np.ndarray:
    """Group values [N, G] to one per column [N, columns]."""
    return np.repeat(scales, size, axis=1)[:, :columns]
