"""One look at every weight of a head: row norms, dead rows, dead columns. Feeds the preflight."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from audit.heads.rows import Rows

_TILE_WEIGHTS = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class HeadScan:
    """Statistics of a head's rows in the order of ascending target id."""

    norms: Tensor
    """float32 [count], Euclidean norm of each row."""
    dead_columns: Tensor
    """bool [columns]: zero in every row."""

    @property
    def dead_rows(self) -> Tensor:
        """bool [count]: rows that are zero throughout."""
        return self.norms == 0


def scan_rows(rows: Rows) -> HeadScan:
    """Read every weight once; memory is one tile of 16 MiB."""
    step = max(1, _TILE_WEIGHTS // rows.columns)
    norms, alive = [], torch.zeros(rows.columns, dtype=torch.bool)
    for start in range(0, rows.count, step):
        tile = rows.tile(start, min(start + step, rows.count))
        norms.append(torch.linalg.vector_norm(tile, dim=1))
        lowest, highest = tile.amin(0), tile.amax(0)
        alive |= (lowest != 0) | (highest != 0)
    return HeadScan(torch.cat(norms), ~alive)
