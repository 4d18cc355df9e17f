"""The one function that gives the outcome of a gate; every format and exit code derives from it.

Pure: a Run, a policy, waivers and the time go in; the same Run with a `GateResult` in each
candidate comes out. A limit that could not be held for lack of evidence has failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from audit.errors import UnreadableError
from audit.gating.bounds import SEVERITY
from audit.gating.limits import judge_limit
from audit.gating.requirements import judge_controls, judge_requirement
from audit.gating.waivers import apply_waivers, check_waivers
from audit.policy import CONTROLS_LIMIT, Limit, Policy, Requirement
from audit.records import Candidate, GateResult, LimitResult, Outcome, Run, Waiver
from audit.report.wording import clean
from audit.words import count

EXIT_CODES: dict[Outcome, int] = {"pass": 0, "fail": 1, "undecided": 3}


def judge_run(
    run: Run, policy: Policy, waivers: Sequence[Waiver] = (), *, now: datetime
) -> Run:  # fmt: skip
    """The run with the gate's answer in every candidate.

    Args:
        run: a finished audit; what an earlier gate said of it is replaced.
        policy: what a head must show.
        waivers: from a file or a ledger; those for other heads do nothing.
        now: with its time zone; decides what is stale and what has expired.

    Raises:
        UnreadableError: the run holds no candidate.
        BadUsageError: a waiver's hash fits two candidates.
    """
    if not run.candidates:
        raise UnreadableError("this run holds no candidate to judge", hint="run the audit again")
    check_waivers(waivers, run)
    judged = [
        candidate.model_copy(update={"gate": _gate(run, candidate, policy, waivers, now)})
        for candidate in run.candidates
    ]
    return run.model_copy(update={"candidates": tuple(judged)})


def outcome_of(run: Run) -> Outcome:
    """The worst outcome of a judged run's candidates; a candidate nobody judged has failed."""
    return worst_outcome(
        "fail" if candidate.gate is None else candidate.gate.outcome for candidate in run.candidates
    )


def worst_outcome(outcomes: Iterable[Outcome]) -> Outcome:
    """Fail before undecided before pass; nothing at all has failed."""
    return max(outcomes, key=SEVERITY.__getitem__, default="fail")


def _gate(
    run: Run, candidate: Candidate, policy: Policy, waivers: Sequence[Waiver], now: datetime
) -> GateResult:
    results = [_judge_part(run, candidate, part, now) for part in policy.parts]
    if not any(result.measure == CONTROLS_LIMIT for result in results):
        results.insert(0, judge_controls(run))
    sha256, today = candidate.head.sha256, now.date()
    results = [apply_waivers(result, waivers, sha256, today) for result in results]
    outcome = worst_outcome("pass" if r.waiver else r.outcome for r in results)
    return GateResult(
        outcome=outcome,
        sentence=_sentence(outcome, results),
        limits=tuple(results),
        policy=policy.record,
        changes=tuple(change.sentence for change in policy.changes),
        judged=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    )


def _judge_part(
    run: Run, candidate: Candidate, part: Limit | Requirement, now: datetime
) -> LimitResult:
    if isinstance(part, Requirement):
        return judge_requirement(run, candidate, part, now)
    return judge_limit(run, candidate, part)


def _sentence(outcome: Outcome, results: Sequence[LimitResult]) -> str:
    """The outcome in one sentence, the limits behind it by name."""
    open_ = [result for result in results if result.waiver is None]
    failed = [r for r in open_ if r.outcome == "fail"]
    undecided = [r for r in open_ if r.outcome == "undecided"]
    waived = [r for r in results if r.waiver is not None]
    parts = []
    if failed:
        parts.append(f"{len(failed)} of {count(len(results), 'limit')} failed: {_names(failed)}")
    if undecided:
        parts.append(f"{len(undecided)} undecided: {_names(undecided)}")
    if not parts:
        parts.append(f"{len(results) - len(waived)} of {count(len(results), 'limit')} hold")
    if waived:
        parts.append(f"{len(waived)} waived: {_names(waived)}")
    return f"{outcome}: {'; '.join(parts)}"


def _names(results: Sequence[LimitResult]) -> str:
    return ", ".join(
        f"{clean(r.limit)}{f' on {clean(r.corpus)}' if r.corpus else ''}" for r in results
    )
