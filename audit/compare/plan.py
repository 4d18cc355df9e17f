"""How the pass is cut: tile and chunk sizes, decided before any arithmetic.

Vocabulary tiles are the outer loop, so that each weight is decoded once; chunks of positions are
the inner loop, so that one tile of logits stays in the processor's cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

BLOCK = 128
"""Logits are first reduced in blocks of this many columns; tiles are multiples of it."""
_WEIGHT_BYTES = 192 << 20
_CHUNK_ROWS = 1024
_TILE_ROWS = 4096


@dataclass(frozen=True, slots=True)
class Plan:
    """Edges of the pass over [positions, vocabulary]."""

    positions: int
    vocabulary: int
    chunk: int
    """Positions per chunk."""
    tile: int
    """Target ids per tile, a multiple of BLOCK."""

    @property
    def chunks(self) -> list[slice]:
        """Slices of positions; nearly equal, so that no chunk is a thin remainder."""
        count = -(-self.positions // self.chunk)
        edges = [self.positions * i // count for i in range(count + 1)]
        return [slice(lo, hi) for lo, hi in pairwise(edges)]

    @property
    def tiles(self) -> list[tuple[int, int]]:
        """Half-open ranges of target ids."""
        starts = range(0, self.vocabulary, self.tile)
        return [(start, min(start + self.tile, self.vocabulary)) for start in starts]


def plan_pass(positions: int, vocabulary: int, columns: int, heads: int) -> Plan:
    """A plan whose decoded weight tiles take at most 192 MiB over all heads together.

    The two logit buffers then take at most 2 x 16 MiB, whatever the number of positions.
    """
    affordable = _WEIGHT_BYTES // (4 * columns * heads)
    tile = max(BLOCK, min(_TILE_ROWS, affordable) // BLOCK * BLOCK)
    return Plan(positions, vocabulary, min(_CHUNK_ROWS, positions), tile)
