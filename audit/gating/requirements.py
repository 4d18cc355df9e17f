"""What a release must show besides measures: each requirement passes or fails, with a sentence.

Nothing here can be undecided: the run either shows it or it does not. What it does not tell fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from packaging.version import InvalidVersion, Version

from audit.evidence import find
from audit.policy import CONTROLS_LIMIT, Requirement
from audit.policy.words import bound_words
from audit.records import Candidate, Estimate, LimitResult, Register, Run
from audit.report.wording import REGISTER_WORDS, clean, size
from audit.words import count

_AHEAD = timedelta(days=1)
"""A run from further in the future than clocks and time zones differ was not made when it says."""


@dataclass(frozen=True, slots=True)
class _Case:
    """What a requirement looks at."""

    run: Run
    candidate: Candidate
    asked: Requirement
    now: datetime


@dataclass(frozen=True, slots=True)
class _Found:
    """What a requirement saw."""

    passed: bool
    sentence: str
    value: float | None = None
    estimate: Estimate | None = None
    """The worst place, for those that are held on each corpus."""


def judge_requirement(
    run: Run, candidate: Candidate, asked: Requirement, now: datetime
) -> LimitResult:
    """The outcome of one requirement. Never raises: what can not be told fails."""
    found = _JUDGES[asked.what](_Case(run, candidate, asked, now))
    given = getattr(asked, asked.what)
    threshold = float(given) if isinstance(given, int) and given is not True else None
    return LimitResult(
        limit=asked.name,
        measure=asked.what,
        register=found.estimate.register_ if found.estimate else asked.register_,
        corpus=found.estimate.corpus if found.estimate else asked.corpus,
        bound=bound_words(asked),
        threshold=threshold,
        value=found.value,
        outcome="pass" if found.passed else "fail",
        sentence=found.sentence,
        reason=asked.reason,
        date=asked.date.isoformat(),
    )


def judge_controls(run: Run) -> LimitResult:
    """The check that every gate makes: an audit that fails its own controls decides nothing."""
    found = _controls(run, ())
    return LimitResult(
        limit=CONTROLS_LIMIT,
        measure=CONTROLS_LIMIT,
        bound="all passed",
        outcome="pass" if found.passed else "fail",
        sentence=found.sentence,
        reason="an audit that fails its own controls decides nothing",
        date="",
    )


def _controls(run: Run, wanted: tuple[str, ...]) -> _Found:
    if not run.controls:
        return _Found(False, "controls are missing: none ran")
    failed = [control for control in run.controls if not control.passed]
    if failed:
        told = "; ".join(f"{c.name} on {clean(c.corpus)}: {clean(c.sentence)}" for c in failed)
        return _Found(False, f"{count(len(failed), 'control')} failed, believe no number: {told}")
    ran = {control.name for control in run.controls}
    missing = [name for name in wanted if name not in ran]
    if missing:
        return _Found(False, f"controls are missing: {', '.join(missing)} did not run")
    return _Found(True, f"{count(len(run.controls), 'control')} ran, all passed")


def _verdicts(case: _Case) -> _Found:
    kind = case.candidate.verdict.kind
    allowed = case.asked.verdicts or ()
    passed = kind in allowed
    more = "" if passed else f"; only {' or '.join(allowed)} may pass"
    return _Found(passed, f"the verdict is {kind}{more}")


def _registers(case: _Case) -> _Found:
    audited = {
        estimate.register_
        for trace in case.run.traces
        if (estimate := _counted(case, trace.info.register_, trace.info.corpus)) is not None
    }
    missing = [REGISTER_WORDS[name] for name in case.asked.registers or () if name not in audited]
    if missing:
        return _Found(False, f"text is missing: nothing {' or '.join(missing)} was audited")
    return _Found(True, "every register asked for was audited")


def _corpora(case: _Case) -> _Found:
    audited = {
        trace.info.corpus
        for trace in case.run.traces
        if _counted(case, trace.info.register_, trace.info.corpus) is not None
    }
    missing = [name for name in case.asked.corpora or () if name not in audited]
    if missing:
        return _Found(False, f"corpora are missing: {', '.join(missing)} not audited")
    return _Found(True, "every corpus asked for was audited")


def _counted(case: _Case, register: Register, corpus: str) -> Estimate | None:
    """The candidate's disagreement on a corpus, if anything was counted there."""
    estimate = find(case.candidate.estimates, "disagreement", register, corpus)
    return estimate if estimate is not None and estimate.value is not None else None


def _amount(case: _Case) -> _Found:
    """Positions or sequences, on the corpus that has fewest of them."""
    what, wanted = case.asked.what, getattr(case.asked, case.asked.what)
    places = [
        (trace.info.register_, trace.info.corpus)
        for trace in case.run.traces
        if case.asked.register_ in (None, trace.info.register_)
        and case.asked.corpus in (None, trace.info.corpus)
    ]
    if not places:
        return _Found(False, f"{what} are missing: no such text was audited")
    found: list[Estimate] = []
    for register, corpus in places:
        estimate = _counted(case, register, corpus)
        if estimate is None:
            return _Found(False, f"{what} are missing: nothing was counted on {clean(corpus)}")
        found.append(estimate)
    least = min(found, key=lambda e: int(getattr(e, what)))
    have = int(getattr(least, what))
    told = f"{count(have, what.removesuffix('s'))} on {clean(least.corpus or '')}"
    more = f", the fewest of {len(found)} corpora" if len(found) > 1 else ""
    return _Found(have >= wanted, f"{told}{more}; {wanted:,} are asked for", have, least)


def _compressed(case: _Case) -> _Found:
    name = case.candidate.head.name
    same = any(f.code == "NOT_COMPRESSED" and f.subject == name for f in case.run.preflight)
    if same or case.candidate.verdict.kind == "identical":
        return _Found(False, "every weight equals the reference's: nothing was compressed")
    ours, theirs = case.candidate.head.stored_bytes, case.run.reference.stored_bytes
    if ours is None or theirs is None:
        return _Found(False, "its size is missing: bare proposals have no bytes to count")
    said = f"it takes {size(ours)}, the reference {size(theirs)}"
    return _Found(ours < theirs, said, float(ours))


def _no_findings(case: _Case) -> _Found:
    others = {c.head.name for c in case.run.candidates} - {case.candidate.head.name}
    unwanted = case.asked.no_findings or ()
    found = [f for f in case.run.preflight if f.code in unwanted and f.subject not in others]
    if not found:
        return _Found(True, f"the preflight found none of {', '.join(unwanted)}")
    told = "; ".join(f"{f.code}: {clean(f.sentence)}" for f in found)
    return _Found(False, f"the preflight found {told}")


def _run_age(case: _Case) -> _Found:
    return _age(case, "run", case.run.provenance.created, case.asked.run_age_days)


def _calibration_age(case: _Case) -> _Found:
    if case.run.calibration is None:
        return _Found(False, "the calibration is missing: make one with `audit study`")
    created = case.run.calibration.get("created")
    return _age(case, "calibration", created, case.asked.calibration_age_days)


def _age(case: _Case, what: str, created: Any, most: int | None) -> _Found:
    try:
        made = datetime.fromisoformat(str(created))
    except ValueError:
        return _Found(False, f"the age of the {what} is missing: it does not say when it was made")
    age = case.now - (made if made.tzinfo else made.replace(tzinfo=UTC))
    if age < -_AHEAD:
        return _Found(False, f"the {what} says that it was made in the future, on {made.date()}")
    days = max(0.0, age / timedelta(days=1))
    told = f"the {what} is {days:.1f} days old, made on {made.date()}"
    stale = most is None or days > most
    return _Found(not stale, f"stale evidence: {told}" if stale else told, days)


def _audit_version(case: _Case) -> _Found:
    made = case.run.provenance.versions.get("head-audit", "")
    try:
        new_enough = Version(made) >= Version(case.asked.audit_version or "")
    except InvalidVersion:
        return _Found(False, "the version of head-audit is missing from the run")
    return _Found(new_enough, f"made by head-audit {made}")


def _measures_version(case: _Case) -> _Found:
    have = case.run.provenance.measures_version
    least = case.asked.measures_version
    return _Found(
        least is not None and have >= least, f"the measures are of version {have}", float(have)
    )


_JUDGES: dict[str, Callable[[_Case], _Found]] = {
    "verdicts": _verdicts,
    "controls": lambda case: _controls(case.run, case.asked.controls or ()),
    "registers": _registers,
    "corpora": _corpora,
    "positions": _amount,
    "sequences": _amount,
    "compressed": _compressed,
    "no_findings": _no_findings,
    "run_age_days": _run_age,
    "calibration_age_days": _calibration_age,
    "audit_version": _audit_version,
    "measures_version": _measures_version,
}
