"""Loss under shift foretold from disagreement in distribution, by what the yardsticks lost.

A monotone fit on yardsticks of the candidate's kind; outside their range, or with too few of them,
there is no prediction. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy.optimize import isotonic_regression

from audit.calibration import NOISE_LIKE, Calibration, Family
from audit.records import Record, VerdictKind
from audit.stats import Floats

_MEASURES: tuple[Literal["shift_loss", "shift_tax"], ...] = ("shift_loss", "shift_tax")
_MIN_FIT = 4
"""Yardsticks of a kind that a prediction needs: the two outermost can not be left out."""


class Prediction(Record):
    """A loss foretold from disagreement in distribution alone."""

    measure: Literal["shift_loss", "shift_tax"]
    value: float | None
    low: float | None = None
    high: float | None = None
    level: float | None = None
    """Chance that the interval holds one more cut of the kind: n / (n + 1) for the largest of n
    residuals of yardsticks left out."""
    rank: str | None = None
    """Place among the yardsticks by disagreement."""
    reason: str | None = None
    without: tuple[str, ...] = ()
    """Yardsticks that are this very candidate, left out of the fit."""


def foretell(
    calibration: Calibration, disagreement: float | None, kind: VerdictKind
) -> dict[str, Prediction]:
    """Predicted shift loss and tax of a candidate, by measure.

    A fidelity cut is held against noise-like yardsticks, a function cut against structured ones;
    where the kind is not known, the interval covers both.
    """
    kinds: dict[VerdictKind, tuple[tuple[Family, ...], ...]] = {
        "fidelity": (NOISE_LIKE,),
        "function": (("function",),),
    }
    out: dict[str, Prediction] = {}
    for measure in _MEASURES:
        if disagreement is None:
            out[measure] = Prediction(measure=measure, value=None, reason="no disagreement rate")
            continue
        tried = kinds.get(kind, (NOISE_LIKE, ("function",)))
        found = [predict(calibration, measure, disagreement, families) for families in tried]
        out[measure] = _cover(found)
    return out


def _cover(found: Sequence[Prediction]) -> Prediction:
    """One prediction whose interval covers all; none where any of them is missing."""
    missing = next((one for one in found if one.value is None), None)
    if missing is not None or len(found) == 1:
        return missing or found[0]
    low, high = min(one.low or 0.0 for one in found), max(one.high or 0.0 for one in found)
    level = min(one.level or 0.0 for one in found)
    update = {"value": (low + high) / 2, "low": low, "high": high, "level": level, "rank": None}
    return found[0].model_copy(update=update)


def predict(
    calibration: Calibration, measure: Literal["shift_loss", "shift_tax"], disagreement: float,
    families: Sequence[Family],
) -> Prediction:  # fmt: skip
    """Loss or tax under shift from disagreement in distribution: a monotone fit on the yardsticks.

    Args:
        disagreement: the candidate's, in distribution.
        families: which yardsticks to fit: noise-like and structured cuts are kept apart.

    The interval is the fit plus and minus the largest residual of the inner yardsticks, each
    predicted from the others.
    """
    points = sorted(
        (x, y)
        for yardstick in calibration.yardsticks
        if yardstick.family in families
        and (x := yardstick.value("disagreement", "in_distribution")) is not None
        and (y := yardstick.value(measure, "domain_shift")) is not None
    )
    n = len(points)
    if n < _MIN_FIT:
        return Prediction(
            measure=measure, value=None, reason=f"{n} yardsticks of its kind, {_MIN_FIT} are needed"
        )
    xs, ys = np.array(points, dtype=np.float64).T
    if not xs[0] <= disagreement <= xs[-1]:
        reason = f"its disagreement is outside the yardsticks' ({xs[0]:.3f} to {xs[-1]:.3f})"
        return Prediction(measure=measure, value=None, reason=reason)
    # The outermost yardsticks lie outside the range of the others, where nothing is predicted.
    residuals = [
        abs(ys[i] - _fit_at(np.delete(xs, i), np.delete(ys, i), float(xs[i])))
        for i in range(1, n - 1)
    ]
    value, slack = _fit_at(xs, ys, disagreement), float(max(residuals))
    below = int((xs < disagreement).sum())
    return Prediction(
        measure=measure,
        value=value,
        low=value - slack,
        high=value + slack,
        level=len(residuals) / (len(residuals) + 1),
        rank=f"{below + 1} of {n + 1} by disagreement",
    )


def _fit_at(x: Floats, y: Floats, at: float) -> float:
    """Monotone least-squares fit of y on x, read at one place by linear interpolation."""
    return float(np.interp(at, x, isotonic_regression(y).x))
