"""How the pass is cut: tile and chunk sizes, decided before any arithmetic.

Vocabulary tiles are the outer loop, so that each weight is decoded once; chunks of positions are
the inner loop, so that logits of all positions never exist at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from audit.logits import BLOCK

_WEIGHT_BYTES = 192 << 20
_CHUNK_ROWS = 2560
_TILE_ROWS = 4096


@dataclass(frozen=True, slots=True)
class Plan:
    """Edges of the pass over [positions, vocabulary]."""

    positions: int
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


def plan_pass(positions: int, columns: int, heads: int) -> Plan:
    """A plan whose decoded weight tiles take at most 192 MiB over all heads together.

    The two logit buffers then take at most 2 x 40 MiB, whatever the number of positions. Taller
    chunks make the products themselves faster, more than the cache misses they cost.
    """
    affordable = _WEIGHT_BYTES // (4 * columns * heads)
    tile = max(BLOCK, min(_TILE_ROWS, affordable) // BLOCK * BLOCK)
    return Plan(positions, min(_CHUNK_ROWS, positions), tile)
