"""What was decided, as rows: the policy's limits as the gate held them, and people's reviews."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from audit.records import Candidate, LimitResult, Review, Run
from audit.report import wording
from audit.report.tables import Table
from audit.report.wording import clean

LIMIT_HEADER = ("limit", "measure", "on", "estimate", "interval", "bound", "outcome")
LIMIT_NUMBERS = (3,)
_ORDER = {"fail": 0, "undecided": 1, "waived": 2, "pass": 3}


@dataclass(frozen=True, slots=True)
class LimitLine:
    """One limit of the policy, held against one candidate."""

    cells: tuple[str, ...]
    """The columns of LIMIT_HEADER."""
    limit: str
    scope: str
    """Where it was decided; empty for what is asked of the run as a whole."""
    outcome: str
    """pass, fail, undecided, or waived: a failure that a waiver lifts."""
    sentence: str
    why: str
    """Why the policy has it and since when, and what lifts it."""


def limit_lines(candidate: Candidate) -> tuple[LimitLine, ...]:
    """The policy's limits as the gate held them; what failed or is open comes first."""
    lines = [_limit(limit) for limit in (candidate.gate.limits if candidate.gate else ())]
    return tuple(sorted(lines, key=lambda line: _ORDER[line.outcome]))


def _limit(limit: LimitResult) -> LimitLine:
    why = [f"{limit.reason}, since {limit.date}" if limit.date else limit.reason]
    placed = limit.corpus or limit.register_ or limit.token_class
    if limit.positions_needed and limit.outcome == "undecided":
        why.append(f"about {limit.positions_needed:,} positions would decide it")
    if limit.waiver:
        why.append(f"lifted by waiver {limit.waiver[:16]}")
    return LimitLine(
        cells=tuple(wording.limit_cells(limit)),
        limit=clean(limit.limit),
        scope=wording.scope(limit) if placed else "",
        outcome="waived" if limit.waiver and limit.outcome != "pass" else limit.outcome,
        sentence=clean(limit.sentence),
        why=clean("; ".join(why)),
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
