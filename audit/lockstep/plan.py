"""How the pass is cut: tile and chunk sizes, decided before any arithmetic.

Vocabulary tiles are the outer loop, so that each weight is decoded once; chunks of positions are
the inner loop, so that logits of all positions never exist at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from audit.logits import BLOCK, even_pieces

_WEIGHT_BYTES = 192 << 20
_CHUNK_ROWS = 2560
_TILE_ROWS = 4096
NARROWEST = 512
"""Rows of the narrowest product. MKL sums narrower ones in another order (one row with any width
of states, up to 256 rows with 2,560 columns), and equal rows would no longer be exact ties."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Edges of the pass over [positions, vocabulary]."""

    positions: int
    chunk: int
    """Positions per chunk."""
    tile: int
    """Target ids per tile at most, a multiple of BLOCK."""

    @property
    def chunks(self) -> list[slice]:
        """Slices of positions."""
        return even_pieces(self.positions, self.chunk)


def plan_pass(positions: int, columns: int, heads: int) -> Plan:
    """A plan whose decoded weight tiles take at most 192 MiB over all heads together, or NARROWEST
    rows of each.

    The two logit buffers then take at most 2 x 40 MiB, whatever the number of positions. Taller
    chunks make the products themselves faster, more than the cache misses they cost.
    """
    affordable = _WEIGHT_BYTES // (4 * columns * heads)
    tile = max(NARROWEST, min(_TILE_ROWS, affordable) // BLOCK * BLOCK)
    return Plan(positions, min(_CHUNK_ROWS, positions), tile)
