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
    """float64 [count], Euclidean norm of each row."""
    dead_columns: Tensor
    """bool [columns]: zero in every row."""
    flat_columns: Tensor
    """bool [columns]: the same in every row."""

    @property
    def dead_rows(self) -> Tensor:
        """bool [count]: rows that are zero throughout."""
        return self.norms == 0


def scan_rows(rows: Rows) -> HeadScan:
    """Read every weight once; memory is one tile of 16 MiB."""
    step = max(1, _TILE_WEIGHTS // rows.columns)
    norms: list[Tensor] = []
    lowest = torch.full((rows.columns,), torch.inf)
    highest = -lowest
    for start in range(0, rows.count, step):
        tile = rows.tile(start, min(start + step, rows.count))
        # float64: squares of finite float32 weights can leave float32's range on either side.
        norms.append(torch.linalg.vector_norm(tile, dim=1, dtype=torch.float64))
        lowest = torch.minimum(lowest, tile.amin(0))
        highest = torch.maximum(highest, tile.amax(0))
    flat = lowest == highest
    return HeadScan(torch.cat(norms), flat & (lowest == 0), flat)
