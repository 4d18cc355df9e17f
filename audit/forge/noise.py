"""Seeded Gaussian weight noise: the rungs of the noise ladder (design.md 1).

Each matrix has a stream of its own, named by (seed, tensor name): adding or leaving out another
matrix changes nothing here, and neither do tile sizes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from audit.forge.tiles import as_rows, rms, row_tiles
from audit.heads.rows import Rows


def noisy_tiles(weight: Tensor | Rows, strength: float, name: str, seed: int) -> Iterator[Tensor]:
    """Weight + strength * rms(weight) * N(0, 1), float32, a tile of rows at a time.

    Args:
        weight: float32 [rows, columns], or rows that give it in tiles; read twice.
        strength: relative to the matrix's own rms: 0.15 is noise of 15 %.
        name: the tensor's name, which picks the stream.
        seed: of the whole cut.
    """
    rows = as_rows(weight)
    factor = strength * rms(rows)
    generator = stream_of(name, seed)
    for tile in row_tiles(rows):
        # Row-major draws from one stream: the values do not depend on where the tiles end.
        draws = generator.standard_normal(tuple(tile.shape), dtype=np.float32)
        yield tile + torch.from_numpy(draws) * factor


def add_noise(weight: Tensor | Rows, strength: float, name: str, seed: int) -> Tensor:
    """`noisy_tiles` as one matrix, float32 [rows, columns]."""
    return torch.cat(list(noisy_tiles(weight, strength, name, seed)))


def stream_of(name: str, seed: int) -> np.random.Generator:
    """The random stream of one tensor."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))
