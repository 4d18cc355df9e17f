"""Runs that one requirement of a policy must refuse, made from a run that passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, get_args

from audit.policy import Requirement
from audit.records import Estimate, Finding, Run, VerdictKind

Spoiled = Iterator[tuple[str, Run]]


def spoiled_requirements(good: Run, asked: Requirement, now: datetime) -> Spoiled:
    """What was done, and the run that came of it; nothing where no run at all could be refused."""
    return _SPOIL[asked.what](good, asked, now)


def _verdicts(good: Run, asked: Requirement, now: datetime) -> Spoiled:
    (candidate,) = good.candidates
    for kind in get_args(VerdictKind):
        if kind not in (asked.verdicts or ()):
            verdict = candidate.verdict.model_copy(update={"kind": kind})
            yield f"the verdict {kind}", _candidate(good, verdict=verdict)


def _controls(good: Run, asked: Requirement, now: datetime) -> Spoiled:
    for i, control in enumerate(good.controls):
        failed = control.model_copy(update={"passed": False})
        others = (*good.controls[:i], *good.controls[i + 1 :])
        if control.name in (asked.controls or ()):
            yield f"{control.name} did not run", _run(good, controls=others)
        yield f"{control.name} failed", _run(good, controls=(*others, failed))
    yield "no controls", _run(good, controls=())


def _registers(good: Run, asked: Requirement, now: datetime) -> Spoiled:
    for register in asked.registers or ():
        kept = {t.info.corpus for t in good.traces if t.info.register_ != register}
        yield f"no text {register}", _only(good, kept)


def _corpora(good: Run, asked: Requirement, now: datetime) -> Spoiled:
    for corpus in asked.corpora or ():
        kept = {t.info.corpus for t in good.traces} - {corpus}
        yield f"{corpus} not audited", _only(good, kept)


def _only(good: Run, corpora: set[str]) -> Run:
    """The run as if only these corpora had been audited."""
    (candidate,) = good.candidates
    traces = tuple(t for t in good.traces if t.info.corpus in corpora)
    kept = tuple(e for e in candidate.estimates if e.corpus is None or e.corpus in corpora)
    return _run(_candidate(good, estimates=kept), traces=traces)


def _amount(good: Run, asked: Requirement, now: datetime) -> Spoiled:
    (candidate,) = good.candidates
    one_less = getattr(asked, asked.what) - 1

    def fewer(estimate: Estimate) -> Estimate:
        return estimate.model_copy(update={asked.what: one_less})

    estimates = tuple(map(fewer, candidate.estimates))
    yield f"{one_less} {asked.what}", _candidate(good, estimates=estimates)
    yield "no estimates", _candidate(good, estimates=())


def _compressed(good: Run, asked: Requirement, now: datetime) -> Spoiled:
    (candidate,) = good.candidates
    name = candidate.head.name
    note = Finding(code="NOT_COMPRESSED", severity="warning", subject=name, sentence="self-test")
    yield "the reference's own weights", _run(good, preflight=(note,))
    for what, size in (("as many bytes", good.reference.stored_bytes), ("no bytes known", None)):
        head = candidate.head.model_copy(update={"stored_bytes": size})
        yield what, _candidate(good, head=head)


def _no_findings(good: Run, asked: Requirement, now: datetime) -> Spoiled:
    (candidate,) = good.candidates
    for code in asked.no_findings or ():
        for subject in (candidate.head.name, "reference"):
            found = Finding(code=code, severity="warning", subject=subject, sentence="self-test")
            yield f"{code} found on {subject}", _run(good, preflight=(found,))


def _run_age(good: Run, asked: Requirement, now: datetime) -> Spoiled:
    for what, created in _bad_days(asked.run_age_days, now):
        provenance = good.provenance.model_copy(update={"created": created})
        yield what, _run(good, provenance=provenance)


def _calibration_age(good: Run, asked: Requirement, now: datetime) -> Spoiled:
    for what, created in _bad_days(asked.calibration_age_days, now):
        yield what, _run(good, calibration={"created": created})
    yield "no calibration", _run(good, calibration=None)


def _bad_days(most: int | None, now: datetime) -> Iterator[tuple[str, str]]:
    # Beyond the first year there are no dates; nobody's evidence is that old.
    days = min((most or 0) + 1, (now.replace(tzinfo=None) - datetime.min).days)
    yield f"made {days} days ago", (now - timedelta(days=days)).isoformat()
    yield "made at no time", ""


def _versions(good: Run, asked: Requirement, now: datetime) -> Spoiled:
    for what, made in (("made by the first version", {"head-audit": "0"}), ("no version", {})):
        provenance = good.provenance.model_copy(update={"versions": made})
        yield what, _run(good, provenance=provenance)


def _measures(good: Run, asked: Requirement, now: datetime) -> Spoiled:
    older = (asked.measures_version or 0) - 1
    provenance = good.provenance.model_copy(update={"measures_version": older})
    yield f"measures of version {older}", _run(good, provenance=provenance)


def _run(good: Run, **changes: Any) -> Run:
    return good.model_copy(update=changes)


def _candidate(good: Run, **changes: Any) -> Run:
    (candidate,) = good.candidates
    return _run(good, candidates=(candidate.model_copy(update=changes),))


_SPOIL: dict[str, Callable[[Run, Requirement, datetime], Spoiled]] = {
    "verdicts": _verdicts,
    "controls": _controls,
    "registers": _registers,
    "corpora": _corpora,
    "positions": _amount,
    "sequences": _amount,
    "compressed": _compressed,
    "no_findings": _no_findings,
    "run_age_days": _run_age,
    "calibration_age_days": _calibration_age,
    "audit_version": _versions,
    "measures_version": _measures,
}
