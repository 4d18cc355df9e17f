"""What acceptance chance alone would give; the yardstick of anchors and controls."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_SLACK = 0.05
"""Text repeats itself, so unrelated positions agree a little more often than independent draws."""


def independent_share(proposal: Tensor, oracle: Tensor) -> float:
    """Acceptance if proposals and oracle were independent: sum over ids of the two shares."""
    ids, inverse = torch.cat([proposal, oracle]).unique(return_inverse=True)
    n = len(oracle)
    shares = [
        torch.bincount(part, minlength=len(ids)).double() / n for part in (inverse[:n], inverse[n:])
    ]
    return float((shares[0] * shares[1]).sum())


def upper(chance: float, n: int) -> float:
    """Largest share of n positions that is still chance: 5 points more, or 4 standard errors."""
    return min(1.0, chance + max(_SLACK, 4 * math.sqrt(max(chance, 1 / n) / n)))
