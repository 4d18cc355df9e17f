"""Proof that each limit of a policy can fail: the real judge on evidence that must fail it.

A gate that can not fail is worse than none. From a run that passes, one thing at a time is made
bad: the value, its interval, its being there at all. Every limit must pass the first and fail all
the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from audit.catalogue import possible_range
from audit.gating.judge import judge_run
from audit.gating.spoil import spoiled_requirements
from audit.gating.template import applies, good_value, passing_run
from audit.policy import CONTROLS_LIMIT, Limit, Policy, Requirement
from audit.records import Estimate, Outcome, Run

_BESIDE = 0.05
"""How far an interval reaches to both sides of a bound that it must not decide."""


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What one limit made of evidence whose outcome was known."""

    limit: str
    tried: int
    wrong: tuple[str, ...]
    """A sentence for each outcome that was not the right one; empty when the limit works."""


Spoiled = Iterator[tuple[str, Run, Outcome]]
"""What was done, the run that came of it, and the outcome that it must have."""


def selftest(policy: Policy, now: datetime) -> list[SelfTest]:
    """Try every limit of the policy, and the check of controls that each gate makes."""
    good = passing_run(policy, now)
    own = not any(part.controls for part in policy.requirements)
    out = [_always(policy, good, now)] if own else []
    return out + [_try(policy, good, part, now) for part in policy.parts]


def _always(policy: Policy, good: Run, now: datetime) -> SelfTest:
    failed = good.controls[0].model_copy(update={"passed": False})
    runs = [("a control failed", (*good.controls[1:], failed)), ("no controls", ())]
    spoiled: list[tuple[str, Run, Outcome]] = [
        (what, good.model_copy(update={"controls": controls}), "fail") for what, controls in runs
    ]
    return _run(policy, CONTROLS_LIMIT, [("all is well", good, "pass"), *spoiled], now)


def _try(policy: Policy, good: Run, part: Limit | Requirement, now: datetime) -> SelfTest:
    if isinstance(part, Requirement):
        spoiled: Spoiled = (
            (what, run, "fail") for what, run in spoiled_requirements(good, part, now)
        )
    else:
        spoiled = _spoiled_limit(good, part)
    return _run(policy, part.name, [("all is well", good, "pass"), *spoiled], now)


def _run(
    policy: Policy, name: str, cases: list[tuple[str, Run, Outcome]], now: datetime
) -> SelfTest:
    """Judge every case by the whole policy and look at one limit's outcome."""
    wrong = []
    for what, run, wanted in cases:
        (candidate,) = judge_run(run, policy, now=now).candidates
        assert candidate.gate is not None
        result = next(r for r in candidate.gate.limits if r.limit == name)
        let_through = wanted != "pass" and candidate.gate.outcome == "pass"
        if result.outcome != wanted or let_through:
            told = f"it should be {wanted}, and is {result.outcome}"
            wrong.append(f"{what}: {told} ({result.sentence})")
    if len(cases) == 1:
        wrong.append("no evidence whatever can fail it")
    return SelfTest(limit=name, tried=len(cases), wrong=tuple(wrong))


def _spoiled_limit(good: Run, limit: Limit) -> Spoiled:
    """Evidence that a limit on a measure must fail, or can not decide."""
    lowest, highest = possible_range(limit.measure)
    for key, bound, end, beyond in (
        ("minimum", limit.minimum, lowest, -1.0),
        ("maximum", limit.maximum, highest, 1.0),
    ):
        if bound is None:
            continue
        worst = end if math.isfinite(end) else bound + beyond
        yield (
            f"the worst value there is, {worst:g}",
            _worst_in_one_place(good, limit, worst),
            "fail",
        )
        if bound != end:
            low, high = max(lowest, bound - _BESIDE), min(highest, bound + _BESIDE)
            run = _changed(good, limit, {"value": bound, "low": low, "high": high})
            yield f"an interval over the {key}", run, "undecided"
    for field in ("value", "low", "high"):
        yield f"no {field}", _changed(good, limit, {field: None}), "fail"
    yield "a value that is not a number", _changed(good, limit, {"value": math.nan}), "fail"
    bare = _changed(good, limit, None)
    yield "no estimate", bare, "fail"
    if limit.allow_predicted:
        yield from _spoiled_prediction(bare, limit)


def _spoiled_prediction(bare: Run, limit: Limit) -> Spoiled:
    """Nothing measured, and a prediction that is good or bad."""
    low = -math.inf if limit.minimum is None else limit.minimum
    high = math.inf if limit.maximum is None else limit.maximum
    yield "a good prediction", _foretold(bare, limit, good_value(low, high)), "pass"
    bad = low - 1.0 if math.isinf(high) else high + 1.0
    yield "a bad prediction", _foretold(bare, limit, bad), "fail"


def _foretold(run: Run, limit: Limit, value: float) -> Run:
    (candidate,) = run.candidates
    told = {"value": value, "low": value, "high": value, "level": 0.9, "reason": None}
    update = {"prediction": {limit.measure: told}}
    return run.model_copy(update={"candidates": (candidate.model_copy(update=update),)})


def _worst_in_one_place(good: Run, limit: Limit, value: float) -> Run:
    """The worst place counts: only the last one where the limit is held is made bad."""
    (candidate,) = good.candidates
    last = [i for i, e in enumerate(candidate.estimates) if applies(limit, e)][-1:]
    bad = {"value": value, "low": value, "high": value}
    return _estimated(
        good,
        [e.model_copy(update=bad) if i in last else e for i, e in enumerate(candidate.estimates)],
    )


def _changed(good: Run, limit: Limit, update: dict[str, float | None] | None) -> Run:
    """Every estimate that the limit is held against changed, or left out."""
    (candidate,) = good.candidates
    kept = [e for e in candidate.estimates if update is not None or not applies(limit, e)]
    return _estimated(good, [e.model_copy(update=update) if applies(limit, e) else e for e in kept])


def _estimated(run: Run, estimates: list[Estimate]) -> Run:
    (candidate,) = run.candidates
    changed = candidate.model_copy(update={"estimates": tuple(estimates)})
    return run.model_copy(update={"candidates": (changed,)})
