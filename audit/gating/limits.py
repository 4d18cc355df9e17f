"""One limit of a policy against one candidate: every place it is for, the worst of which counts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from audit.gating.bounds import Held, hold
from audit.gating.places import Place, nowhere, places_of, seen_places
from audit.policy import Limit
from audit.policy.words import bound_words
from audit.records import Candidate, Estimate, LimitResult, Run
from audit.report.wording import measure_title

_WHERE_ONE_FLIPS = {
    "harm": "disagreement",
    "harm_covered": "disagreement_covered",
    "flip_margin": "disagreement",
    "near_tie_auc": "disagreement",
}
"""Measures of disagreements, and the rate that says whether there are any."""


def judge_limit(run: Run, candidate: Candidate, limit: Limit) -> LimitResult:
    """The outcome of one limit. Never raises: what can not be told fails."""
    places, rare = seen_places(candidate, limit, places_of(run, limit))
    if limit.allow_predicted and not _measured(candidate, limit, places):
        return _result(limit, _predicted(candidate, limit), Place("domain_shift", None), True)
    if not places:
        missing = f"{measure_title(limit.measure)} is missing: {nowhere(limit, rare)}"
        return _result(limit, Held("fail", missing), None, False)
    held = [_held_at(candidate, limit, place) for place in places]
    worst = max(range(len(held)), key=lambda i: held[i].order)
    told = held[worst].sentence
    if len(held) > 1:
        told += f"; the worst of {_amount(limit, len(held))}"
    if rare:
        told += f"; passed over on {rare} with fewer than {limit.ignore_fewer_than} positions"
    return _result(limit, replace(held[worst], sentence=told), places[worst], False)


def _held_at(candidate: Candidate, limit: Limit, place: Place) -> Held:
    estimate = place.estimate(candidate, limit.measure)
    if estimate is not None and estimate.value is None and _never_flips(candidate, limit, place):
        title = measure_title(limit.measure)
        why = f"{title} {place.words}: the candidate never disagrees, exactly, so nothing is harmed"
        return Held("pass", why, estimate, slack=math.inf)
    return hold(limit, estimate, place.words)


def _measured(candidate: Candidate, limit: Limit, places: list[Place]) -> bool:
    found = (place.estimate(candidate, limit.measure) for place in places)
    return any(estimate is not None and estimate.value is not None for estimate in found)


def _never_flips(candidate: Candidate, limit: Limit, place: Place) -> bool:
    """True for a measure of disagreements where there are none, as is known and not estimated."""
    rate = _WHERE_ONE_FLIPS.get(limit.measure)
    found = place.estimate(candidate, rate) if rate else None
    return found is not None and found.value == found.low == found.high == 0.0


def _predicted(candidate: Candidate, limit: Limit) -> Held:
    """The limit against what the yardsticks foretell of tax or loss."""
    content: Any = (candidate.prediction or {}).get(limit.measure)
    title = measure_title(limit.measure)
    if not isinstance(content, dict):
        why = "neither measured nor predicted (a prediction needs `audit study`)"
        return Held("fail", f"{title} is missing: it was {why}")
    try:
        # No positions stand behind it, so more of them would not decide.
        estimate = Estimate(
            measure=limit.measure,
            corpus=None,
            register="domain_shift",
            value=content.get("value"),
            low=content.get("low"),
            high=content.get("high"),
            level=content.get("level") or 0.0,
            positions=0,
            sequences=0,
            reason=content.get("reason"),
        )
    except ValidationError:
        return Held("fail", f"{title} is missing: its prediction can not be read")
    where = f"predicted from text in distribution at {100 * estimate.level:.0f} %, not measured"
    return hold(limit, estimate, where)


def _amount(limit: Limit, places: int) -> str:
    return f"{places} {'registers' if limit.over == 'register' else 'corpora'}"


def _result(limit: Limit, held: Held, place: Place | None, predicted: bool) -> LimitResult:
    estimate = held.estimate
    bound = limit.maximum if limit.minimum is None else limit.minimum
    return LimitResult(
        limit=limit.name,
        measure=limit.measure,
        register=place.register if place else limit.register_,
        corpus=place.corpus if place else limit.corpus,
        token_class=limit.token_class,
        bound=bound_words(limit),
        threshold=bound if held.threshold is None else held.threshold,
        value=_finite(estimate.value) if estimate else None,
        low=_finite(estimate.low) if estimate else None,
        high=_finite(estimate.high) if estimate else None,
        positions_needed=held.needed,
        predicted=predicted,
        outcome=held.outcome,
        sentence=held.sentence,
        reason=limit.reason,
        date=limit.date.isoformat(),
    )


def _finite(value: float | None) -> float | None:
    """What can be kept: a record refuses NaN, even one that it reports."""
    return value if value is not None and math.isfinite(value) else None
