"""W as left @ right of a smaller rank: plain, or calibrated on the states that W is fed.

Plain (truncated SVD) minimises ||W - left @ right||. Calibrated minimises the error of the
outputs, E ||(W - left @ right) x||^2 = ||(W - left @ right) L||^2 with E[x x^T] = L L^T, which is
the truncated SVD of W L, with L undone on the right (whitening, as SVD-LLM does).

Only W^T W is needed, [columns, columns], so a head of any height is factorised from row tiles:
with V the top eigenvectors of L^T W^T W L, left = W (L V) and right = V^T L^-1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from audit.errors import BadUsageError, MismatchError, UnreadableError
from audit.forge.tiles import as_rows, gram, product_tiles
from audit.heads.rows import Rows

_LEAST = 0.5

# Of the mean variance. Directions that the calibration never saw keep this weight, which makes
# L invertible: 1e-6 moved the calibrated error of the tests by less than 1e-5 of itself.
_RIDGE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class LowRank:
    """W = left @ right, the left factor given in tiles."""

    rows: Rows
    """The full matrix."""
    into: Tensor
    """float64 [columns, rank]: left = W @ into."""
    right: Tensor
    """float32 [rank, columns]."""

    @property
    def rank(self) -> int:
        return len(self.right)

    def left_tiles(self) -> Iterator[Tensor]:
        """The left factor, float32 [n, rank], a tile of rows at a time."""
        for tile in product_tiles(self.rows):
            yield (tile.double() @ self.into).float()

    def factors(self) -> tuple[Tensor, Tensor]:
        """left float32 [rows, rank], right float32 [rank, columns]."""
        return torch.cat(list(self.left_tiles())), self.right


def low_rank(weight: Tensor | Rows, rank: int, second_moment: Tensor | None = None) -> LowRank:
    """Factorise a matrix.

    Args:
        weight: float32 [rows, columns], or rows that give it in tiles; read twice.
        rank: from 1 to min(rows, columns).
        second_moment: E[x x^T] of the inputs, [columns, columns]: calibrates. Default: plain.

    Raises:
        BadUsageError: an impossible rank.
        MismatchError, UnreadableError: a second moment of another width, or no second moment.
    """
    rows = as_rows(weight)
    limit = min(rows.count, rows.columns)
    if not 1 <= rank <= limit:
        raise BadUsageError(
            f"rank {rank} for a matrix of {rows.count} x {rows.columns}",
            hint=f"a rank lies from 1 to {limit}",
        )
    products = gram(rows)
    if second_moment is None:
        top = _top_eigenvectors(products, rank)
        return LowRank(rows, top, top.t().float().contiguous())
    root = _root(second_moment, rows.columns)
    top = _top_eigenvectors(root.t() @ products @ root, rank)
    # right @ root = top^T, with root lower triangular.
    right = torch.linalg.solve_triangular(root.t(), top, upper=True).t()
    return LowRank(rows, root @ top, right.float().contiguous())


def rank_for(
    keep: float, rows: int, columns: int, of: Literal["parameters", "singular_values"]
) -> int:
    """The rank that keeps this fraction.

    Of parameters: the two factors together hold `keep` of the matrix's weights, rank =
    keep * rows * columns / (rows + columns); what `lowrank:` in a cut means, so that it costs as
    much as pruning to the same fraction. Of singular values: keep * min(rows, columns). On an LM
    head, far taller than wide, the two are nearly one. Rounded down, at least 1.

    Raises:
        BadUsageError: that is nearer to no rank at all.
    """
    least = min(rows, columns)
    exact = keep * rows * columns / (rows + columns) if of == "parameters" else keep * least
    if exact < _LEAST:
        raise BadUsageError(
            f"{keep:g} of a matrix of {rows} x {columns} is nearer to rank 0 than to 1",
            hint=f"keep at least {min(1.0, keep / exact):.2g}" if exact > 0 else "keep more",
        )
    return max(1, min(least, int(exact)))


def second_moment_of(states: Tensor) -> Tensor:
    """E[x x^T] of states [n, columns], float64 [columns, columns]."""
    if len(states) == 0:
        raise BadUsageError("there are no states to calibrate on", hint="give a longer trace")
    return gram(states) / len(states)


def _top_eigenvectors(symmetric: Tensor, count: int) -> Tensor:
    """Of the largest eigenvalues, the largest first: float64 [columns, count], signs fixed."""
    vectors: Tensor = torch.linalg.eigh(symmetric).eigenvectors
    top = vectors.flip(1)[:, :count]
    # An eigenvector's sign is the library's whim; files should not depend on it.
    peaks = top.gather(0, top.abs().argmax(dim=0, keepdim=True))
    return top * torch.where(peaks < 0, -1.0, 1.0)


def _root(second_moment: Tensor, columns: int) -> Tensor:
    """Lower triangular L with L L^T = second moment + ridge, float64 [columns, columns]."""
    if tuple(second_moment.shape) != (columns, columns):
        raise MismatchError(
            f"the second moment is {list(second_moment.shape)}, the matrix has {columns} columns",
            hint="calibrate with the states that enter this very matrix",
        )
    moment = second_moment.double()
    mean = float(moment.diagonal().mean())
    if not bool(torch.isfinite(moment).all()) or mean <= 0.0:
        raise UnreadableError(
            "the second moment holds NaN or infinity, or is zero",
            hint="record the calibration states again",
            code="NON_FINITE",
        )
    ridge = torch.eye(columns, dtype=torch.float64) * (_RIDGE * mean)
    root: Tensor
    root, failed = torch.linalg.cholesky_ex((moment + moment.t()) / 2 + ridge)
    if int(failed):
        raise UnreadableError(
            "the second moment is not one: it has negative eigenvalues",
            hint="it must be the mean of x x^T over the states",
        )
    return root
