"""Loss under shift foretold from disagreement in distribution, by what the yardsticks lost.

A monotone fit on yardsticks of the candidate's kind; outside their range, or with too few of them,
there is no prediction. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    """
    points = [
        (x, y)
        for yardstick in calibration.yardsticks
        if yardstick.family in families
        and (x := yardstick.value("disagreement", "in_distribution")) is not None
        and (y := yardstick.value(measure, "domain_shift")) is not None
    ]
    fit = monotone_fit(points)
    if fit is None:
        reason = f"{len(points)} yardsticks of its kind, {_MIN_FIT} are needed"
        return Prediction(measure=measure, value=None, reason=reason)
    value = fit.at(disagreement)
    if value is None:
        reason = f"its disagreement is outside the yardsticks' ({fit.x[0]:.3f} to {fit.x[-1]:.3f})"
        return Prediction(measure=measure, value=None, reason=reason)
    below = int((fit.x < disagreement).sum())
    return Prediction(
        measure=measure,
        value=value,
        low=value - fit.slack,
        high=value + fit.slack,
        level=fit.level,
        rank=f"{below + 1} of {len(points) + 1} by disagreement",
    )


@dataclass(frozen=True, slots=True)
class Fit:
    """A monotone least-squares fit and how far it misses what it was not given."""

    x: Floats
    """Disagreement of the yardsticks, ascending, [n]."""
    y: Floats
    """The fitted loss there, [n]."""
    slack: float
    """Largest residual of the inner yardsticks, each predicted from the others."""

    @property
    def level(self) -> float:
        """Chance that fit ± slack holds one more cut of the kind."""
        inner = len(self.x) - 2
        return inner / (inner + 1)

    def at(self, x: float) -> float | None:
        """The fit at one place, by linear interpolation; None outside the yardsticks."""
        return float(np.interp(x, self.x, self.y)) if self.x[0] <= x <= self.x[-1] else None


def monotone_fit(points: Sequence[tuple[float, float]]) -> Fit | None:
    """A loss that never falls with disagreement, through (disagreement, loss) of yardsticks.

    None with fewer than four of them: the outermost two lie outside the range of the others,
    where nothing is predicted, so they can not be left out.
    """
    if len(points) < _MIN_FIT:
        return None
    xs, ys = np.array(sorted(points), dtype=np.float64).T
    residuals = [
        abs(ys[i] - _fit_at(np.delete(xs, i), np.delete(ys, i), float(xs[i])))
        for i in range(1, len(xs) - 1)
    ]
    return Fit(xs, isotonic_regression(ys).x, float(max(residuals)))


def _fit_at(x: Floats, y: Floats, at: float) -> float:
    """Monotone least-squares fit of y on x, read at one place by linear interpolation."""
    return float(np.interp(at, x, isotonic_regression(y).x))
