"""A matrix in row tiles, whatever it lies in: no cut needs a float32 copy of a whole head."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from audit.errors import UnreadableError
from audit.heads.rows import DenseRows, Rows

# Below torch's grain of 32,768 values an operation stays in the calling thread; on two busy cores
# larger tiles made NVFP4 five times slower (see also `files.decode`).
TILE_WEIGHTS = 32_767
# Products are another matter: they want tall tiles.
_PRODUCT_WEIGHTS = 1 << 22


def as_rows(weight: Tensor | Rows) -> Rows:
    """Rows over a matrix in memory; rows pass unchanged."""
    return weight if isinstance(weight, Rows) else DenseRows(weight)


def row_tiles(weight: Tensor | Rows, size: int | None = None) -> Iterator[Tensor]:
    """The matrix as float32 [n, columns], a few rows at a time, in order.

    `size` is the number of weights per tile.

    Raises:
        UnreadableError: a weight is NaN or infinite (code NON_FINITE).
    """
    rows = as_rows(weight)
    step = max(1, (size or TILE_WEIGHTS) // max(rows.columns, 1))
    for start in range(0, rows.count, step):
        tile = rows.tile(start, min(start + step, rows.count))
        _check_finite(tile, start)
        yield tile


def product_tiles(weight: Tensor | Rows) -> Iterator[Tensor]:
    """As `row_tiles`, in tiles that suit a matrix product."""
    return row_tiles(weight, _PRODUCT_WEIGHTS)


def largest(weight: Tensor | Rows) -> float:
    """The largest magnitude in the matrix; 0.0 of an empty one."""
    return max((float(tile.abs().max()) for tile in row_tiles(weight)), default=0.0)


def rms(weight: Tensor | Rows) -> float:
    """Root of the mean square of all weights, summed in float64."""
    rows = as_rows(weight)
    total = sum(float(tile.double().square().sum()) for tile in row_tiles(rows))
    return float((total / max(rows.count * rows.columns, 1)) ** 0.5)


def gram(weight: Tensor | Rows) -> Tensor:
    """W^T W, float64 [columns, columns]."""
    rows = as_rows(weight)
    total = torch.zeros(rows.columns, rows.columns, dtype=torch.float64)
    for tile in product_tiles(rows):
        wide = tile.double()
        total.addmm_(wide.t(), wide)
    return total


def _check_finite(tile: Tensor, start: int) -> None:
    # A sum shows NaN and infinity without a mask as large as the tile.
    sums = tile.sum(dim=1, dtype=torch.float64)
    bad = (~torch.isfinite(sums)).nonzero().squeeze(1)
    if len(bad):
        raise UnreadableError(
            f"row {start + int(bad[0])} of the matrix holds NaN or infinity, so it can not be cut",
            hint="the reference is damaged: export it again",
            code="NON_FINITE",
        )
