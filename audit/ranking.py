"""Does one number rank another? Spearman's rho with its exact permutation p.

scipy's own p for Spearman is an approximation for large samples, and its documentation says so;
with the seven or so heads of a study every ordering can be counted. Imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np

from audit.stats import Floats

_EXACT_UP_TO = 9
"""9! = 362,880 orderings are counted; beyond that, as many drawn at random."""
_DRAWN = 200_000
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class RankCorrelation:
    """How well x ranks y."""

    rho: float | None
    """None when either side is constant or there are fewer than two pairs."""
    p: float | None
    """One-sided: share of orderings of y whose rho is at least as large."""
    pairs: int
    exact: bool


def spearman(x: Floats, y: Floats, seed: int = 0) -> RankCorrelation:
    """Spearman's rho of paired values [n] and its one-sided permutation p.

    Ties get their average rank. Seven pairs in perfect order give rho = 1, p = 1 / 7! = 1 / 5040.
    """
    if len(x) != len(y):
        raise ValueError(f"{len(x)} values cannot be paired with {len(y)}")
    n = len(x)
    exact = n <= _EXACT_UP_TO
    if n < 2:
        return RankCorrelation(None, None, n, exact)
    ranks = [_centred_ranks(np.asarray(side, dtype=np.float64)) for side in (x, y)]
    scale = float(np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum()))
    if scale == 0.0:
        return RankCorrelation(None, None, n, exact)
    rho = float(ranks[0] @ ranks[1] / scale)
    others = _orderings(ranks[1], seed) @ ranks[0] / scale
    hits = int((others >= rho - _ROUNDING).sum())
    p = hits / len(others) if exact else (hits + 1) / (len(others) + 1)
    return RankCorrelation(min(1.0, max(-1.0, rho)), p, n, exact)


def _centred_ranks(values: Floats) -> Floats:
    """Average ranks minus their mean, [n]."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = counts.cumsum()
    average = last - (counts - 1) / 2
    ranks: Floats = average[inverse].astype(np.float64)
    ranks -= ranks.mean()
    return ranks


def _orderings(ranks: Floats, seed: int) -> Floats:
    """All orderings of `ranks` [n!, n], or many drawn at random."""
    n = len(ranks)
    if n <= _EXACT_UP_TO:
        index = np.array(list(permutations(range(n))), dtype=np.int8)
    else:
        rng = np.random.default_rng(seed)
        index = rng.permuted(np.tile(np.arange(n), (_DRAWN, 1)), axis=1)
    taken: Floats = ranks[index]
    return taken
