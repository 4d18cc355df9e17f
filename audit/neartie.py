"""Near-tie AUC: do flips happen where the reference was unsure?

The probability that a random flip has a smaller reference margin than a random agreement. Near 1:
flips are near-ties, as weight noise makes them; 0.5: they fall anywhere. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from audit.records import Estimate
from audit.stats import Floats, Interval, Resampling, percentile_interval
from audit.table import Frame, units_of

MEASURE = "near_tie_auc"
_RESAMPLES = 400
"""Fewer than elsewhere: each one weighs every position anew."""


def near_tie_estimate(frames: Sequence[Frame], corpus: str | None, how: Resampling) -> Estimate:
    """AUC over one or more traces of one register, its interval by resampling sequences.

    Args:
        frames: position tables of one candidate; margins must have been measured.
        corpus: the corpus, or None when pooled over the register.
        how: level and seed.
    """
    margin = np.concatenate([frame["ref_margin"].to_numpy(np.float64) for frame in frames])
    flip = np.concatenate([frame["disagree"].to_numpy(bool) for frame in frames])
    weights = _row_weights(frames, how)
    register = frames[0]["register"].iloc[0]
    sequences = sum(len(np.unique(units_of(frame))) for frame in frames)
    value = float(weighted_auc(margin, flip, np.ones((1, len(flip))))[0])
    if not np.isfinite(value):
        reason = "no disagreements" if not flip.any() else "no agreements"
        interval, shown = Interval(None, None, reason), None
    else:
        shown = value
        replicates = weighted_auc(margin, flip, weights)
        interval = percentile_interval(replicates, sequences, how.level)
    return Estimate(
        measure=MEASURE,
        corpus=corpus,
        register=register,
        value=shown,
        low=interval.low,
        high=interval.high,
        level=how.level,
        positions=len(flip),
        sequences=sequences,
        reason=interval.reason,
    )


def weighted_auc(margin: Floats, flip: np.ndarray, weights: Floats) -> Floats:
    """P(margin of a flip < margin of an agreement) + half the ties, per row of weights.

    Args:
        margin: [n].
        flip: bool [n].
        weights: [resamples, n], how often each position counts.

    Returns:
        [resamples], NaN where there are no flips or no agreements.
    """
    order = np.argsort(margin, kind="stable")
    _, starts = np.unique(margin[order], return_index=True)
    weighted = weights[:, order]
    flips = np.add.reduceat(weighted * flip[order], starts, axis=1)
    agreements = np.add.reduceat(weighted * ~flip[order], starts, axis=1)
    total = agreements.sum(axis=1, keepdims=True)
    above = total - agreements.cumsum(axis=1)
    pairs = (flips * (above + agreements / 2)).sum(axis=1)
    possible = flips.sum(axis=1) * total[:, 0]
    out = np.full(len(weights), np.nan)
    np.divide(pairs, possible, out=out, where=possible > 0)
    return out


def _row_weights(frames: Sequence[Frame], how: Resampling) -> Floats:
    """How often each position is drawn, [resamples, n]; the draws of all other measures."""
    parts = []
    for frame in frames:
        _, index = np.unique(units_of(frame), return_inverse=True)
        drawn = how.weights(str(frame["corpus"].iloc[0]), int(index.max()) + 1)
        parts.append(drawn[:_RESAMPLES, index])
    return np.concatenate(parts, axis=1)
