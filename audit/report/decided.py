"""What was decided, as rows: the policy's limits as the gate held them, and people's reviews."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from audit.records import Candidate, LimitResult, Review, Run
from audit.report import wording
from audit.report.tables import Table
from audit.report.wording import clean


@dataclass(frozen=True, slots=True)
class LimitLine:
    """One limit of the policy, held against one candidate."""

    limit: str
    measure: str
    scope: str
    bound: str
    value: str
    interval: str
    outcome: str
    """pass, fail, undecided, or waived: a failure that a waiver lifts."""
    note: str
    """Whether it was predicted, waived, or how many positions would decide it."""
    sentence: str
    reason: str
    """Why the policy has it, and since when."""

    @property
    def cells(self) -> tuple[str, ...]:
        """The columns of LIMIT_HEADER."""
        outcome = f"{self.outcome} ({self.note})" if self.note else self.outcome
        return (self.limit, self.scope, self.bound, self.value, self.interval, outcome)


LIMIT_HEADER = ("limit", "on", "must hold", "estimate", "interval", "outcome")
LIMIT_NUMBERS = (3,)


def limit_lines(candidate: Candidate) -> tuple[LimitLine, ...]:
    """The policy's limits as the gate held them; what failed or is open comes first."""
    limits = candidate.gate.limits if candidate.gate else ()
    order = {"fail": 0, "undecided": 1, "waived": 2, "pass": 3}
    lines = [_limit(limit) for limit in limits]
    return tuple(sorted(lines, key=lambda line: order[line.outcome]))


def _limit(limit: LimitResult) -> LimitLine:
    notes = []
    if limit.waiver:
        notes.append(f"waiver {clean(limit.waiver[:12])}")
    if limit.predicted:
        notes.append("predicted, not measured")
    if limit.outcome == "undecided" and limit.positions_needed:
        notes.append(f"about {limit.positions_needed:,} positions would decide it")
    return LimitLine(
        limit=clean(limit.limit),
        measure=wording.measure_title(limit.measure),
        scope=wording.scope(limit),
        bound=clean(limit.bound),
        value=wording.number(limit.measure, limit.value),
        interval="–" if limit.low is None or limit.high is None else wording.interval(limit),
        outcome="waived" if limit.waiver and limit.outcome != "pass" else limit.outcome,
        note="; ".join(notes),
        sentence=clean(limit.sentence),
        reason=clean(f"{limit.reason} ({limit.date})"),
    )


def review_table(run: Run, reviews: Sequence[Review]) -> Table:
    """Decisions of people on this run, the oldest first."""
    names = {candidate.head.sha256: candidate.head.name for candidate in run.candidates}
    rows = tuple(
        (
            clean(review.created),
            clean(names.get(review.head_sha256, review.head_sha256[:12])),
            review.decision,
            clean(review.reason),
            clean(review.reviewer) + ("" if review.authenticated else " (unauthenticated)"),
        )
        for review in reviews
    )
    return Table(("when", "head", "decision", "reason", "reviewer"), rows)
