"""One look at every weight of a head: row norms, dead rows, dead columns. Feeds the preflight."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from audit.heads.rows import Rows

_TILE_WEIGHTS = 1 << 22
_FEWEST_ROWS, _FEWEST_COLUMNS = 256, 64
_CHANCE = 1.25
"""Times what chance gives: random tables of 256 x 64 stay below it in 99 of 100 draws."""


@dataclass(frozen=True, slots=True, eq=False)
class HeadScan:
    """Statistics of a head's rows in the order of ascending target id."""

    norms: Tensor
    """float64 [count], Euclidean norm of each row."""
    dead_columns: Tensor
    """bool [columns]: zero in every row."""
    flat_columns: Tensor
    """bool [columns]: the same in every row."""
    zero_share: Tensor
    """float64 [columns], share of the rows that are zero there."""
    means: Tensor
    """float64 [columns], mean over the rows."""

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
    zeros, sums = torch.zeros(2, rows.columns, dtype=torch.float64)
    for start in range(0, rows.count, step):
        tile = rows.tile(start, min(start + step, rows.count))
        # float64: squares of finite float32 weights can leave float32's range on either side.
        norms.append(torch.linalg.vector_norm(tile, dim=1, dtype=torch.float64))
        lowest = torch.minimum(lowest, tile.amin(0))
        highest = torch.maximum(highest, tile.amax(0))
        zeros += (tile == 0).sum(0)
        sums += tile.sum(0)
    flat = lowest == highest
    count = max(rows.count, 1)
    return HeadScan(
        torch.cat(norms), flat & (lowest == 0), flat, zero_share=zeros / count, means=sums / count
    )


def looks_untrained(scan: HeadScan) -> bool:
    """True when the rows are what independent random numbers of one spread would be.

    Trained rows differ in length by far more than chance, and share a direction. Too few rows or
    columns tell nothing.
    """
    rows, columns = len(scan.norms), len(scan.means)
    mean = float(scan.norms.mean())
    if rows < _FEWEST_ROWS or columns < _FEWEST_COLUMNS or not mean > 0:
        return False
    # Norms of n Gaussian numbers vary by 1 / sqrt(2 n) of their mean; of uniform ones by less.
    spread = float(scan.norms.std()) / mean * (2 * columns) ** 0.5
    # A column of r such numbers of spread s has a mean of about s / sqrt(r).
    drift = float(scan.means.square().mean().sqrt()) * (rows * columns) ** 0.5 / mean
    return bool(max(spread, drift) < _CHANCE)
