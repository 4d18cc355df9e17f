"""One estimate against the bounds of one limit: pass, fail or undecided, and why in words.

Non-inferiority with intervals. A limit holds when the whole interval is on its good side, the
bound itself included, and fails when the whole interval is beyond it; an interval that reaches
over the bound, or touches it from the bad side, decides nothing. What is not there, or is not a
number, fails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import special

from audit.policy import Limit
from audit.policy.words import bound_words
from audit.records import Estimate, Outcome
from audit.report.wording import digits_apart, measure_title, number
from audit.stats import NO_SPREAD, positions_needed

SEVERITY: dict[Outcome, int] = {"pass": 0, "undecided": 1, "fail": 2}


@dataclass(frozen=True, slots=True)
class Held:
    """What came of it."""

    outcome: Outcome
    sentence: str
    estimate: Estimate | None = None
    threshold: float | None = None
    """The bound that decided; the nearer one where both hold."""
    needed: int | None = None
    slack: float = -math.inf
    """How far the value lies on the good side of that bound; negative beyond it."""

    @property
    def order(self) -> tuple[int, float]:
        """Larger is worse."""
        return SEVERITY[self.outcome], -self.slack


@dataclass(frozen=True, slots=True)
class _Interval:
    """An interval that surely holds its value."""

    value: float
    low: float
    high: float


def hold(limit: Limit, estimate: Estimate | None, where: str) -> Held:
    """Hold an estimate against a limit.

    Args:
        limit: its bounds; its scope has been seen to already.
        estimate: what was measured there, None when nothing was.
        where: the place in words, such as `on german`.
    """
    title = f"{measure_title(limit.measure)} {where}"
    if estimate is None:
        return Held("fail", f"{title} is missing: it was not measured")
    found = _interval(estimate)
    if isinstance(found, str):
        return Held("fail", f"{title} is missing: {found}", estimate)
    worst: Held | None = None
    for bound, sign in ((limit.minimum, 1), (limit.maximum, -1)):
        if bound is not None:
            one = _one_side(limit, estimate, found, bound, sign, where)
            worst = one if worst is None or one.order > worst.order else worst
    return worst or Held("fail", f"{title}: the limit has no bound, so nothing can hold it")


def _interval(estimate: Estimate) -> _Interval | str:
    """The interval, or what is missing of it."""
    value, low, high = estimate.value, estimate.low, estimate.high
    if value is None or not math.isfinite(value):
        return estimate.reason or "it is not a number"
    if low is None or high is None or not math.isfinite(low) or not math.isfinite(high):
        return f"it has no interval ({estimate.reason or 'nobody says why'})"
    if low > high:
        return "its interval ends before it begins"
    # A resampled interval need not hold the estimate itself; both must be on the good side.
    return _Interval(value, min(low, value), max(high, value))


def _one_side(
    limit: Limit, estimate: Estimate, found: _Interval, bound: float, sign: int, where: str
) -> Held:
    """One bound. With sign 1 it is a minimum, with -1 a maximum."""
    ends = sorted((sign * found.low, sign * found.high))
    slack = sign * (found.value - bound)
    shown = _shown(limit.measure, found, bound, where)
    asked = bound_words(limit)
    if ends[0] >= sign * bound:
        told = f"{shown}: {asked} holds{_margin(estimate, found, bound)}"
        return Held("pass", told, estimate, bound, None, slack)
    if ends[1] < sign * bound:
        side = "below" if sign > 0 else "above"
        told = f"{shown} lies wholly {side} the limit, {asked}{_margin(estimate, found, bound)}"
        return Held("fail", told, estimate, bound, None, slack)
    needed = positions_needed(
        found.value, found.low, found.high, bound, estimate.positions,
        spread=NO_SPREAD not in (estimate.reason or ""),
    )  # fmt: skip
    needed = needed if estimate.positions else None
    told = f"{shown}: the interval reaches over the limit, {asked}{_more(estimate, needed)}"
    return Held("undecided", told, estimate, bound, needed, slack)


def _shown(measure: str, found: _Interval, bound: float, where: str) -> str:
    """The estimate in words, with as many decimals as tell it from the bound."""
    more = digits_apart(measure, bound, (found.value, found.low, found.high))
    value, low, high = (number(measure, v, more) for v in (found.value, found.low, found.high))
    return f"{measure_title(measure)} {value} ({low} to {high}) {where}"


def _more(estimate: Estimate, needed: int | None) -> str:
    if not estimate.positions:
        return "; only measuring it decides"
    if needed is None:
        return "; the estimate lies on the limit itself, so more text may not decide it"
    return f"; about {needed:,} positions would decide it, {estimate.positions:,} were compared"


def _margin(estimate: Estimate, found: _Interval, bound: float) -> str:
    """The distance from the bound in standard errors, where the interval tells one."""
    reach = found.value - found.low if found.value > bound else found.high - found.value
    if reach <= 0 or not estimate.positions or NO_SPREAD in (estimate.reason or ""):
        return ""
    error = reach / float(special.ndtri((1 + estimate.level) / 2))
    return f", by {abs(found.value - bound) / error:.1f} standard errors"
