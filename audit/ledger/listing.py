"""Lists of runs: the newest first, a few at a time, counted over all of them.

A filter on candidates means one and the same candidate: `--verdict fidelity --gate fail` finds runs
with a fidelity cut that failed, not those with one of each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Select, Subquery, case, func, select

from audit.errors import BadUsageError, NotFoundError
from audit.ledger.reviewing import WORST_FIRST
from audit.ledger.schema import candidates, judgements, reviews, runs, waivers

NONE = "none"
Gate = Literal["pass", "fail", "undecided", "none"]
_NEWEST = (runs.c.created.desc(), runs.c.recorded.desc(), runs.c.id.desc())


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs to list, and which part of the list."""

    verdict: str | None = None
    gate: str | None = None
    """The gate's newest answer, or `none`."""
    head: str | None = None
    """Part of a candidate's name, in either case."""
    head_sha256: str | None = None
    """Beginning of a candidate's hash."""
    reference: str | None = None
    """Part of the reference's name, or beginning of its hash."""
    since: str | None = None
    """Made at this time or later, UTC, ISO 8601 as runs tell it."""
    until: str | None = None
    """Made before this time."""
    reviewed: bool | None = None
    limit: int | None = 20
    offset: int = 0


@dataclass(frozen=True, slots=True)
class CandidateRow:
    """One candidate in a list."""

    name: str
    head_sha256: str
    encoding: str
    bits_per_weight: float | None
    stored_bytes: int | None
    verdict: str
    worst_retention: float | None
    """On the corpus where it keeps least, with its interval."""
    worst_low: float | None
    worst_high: float | None
    worst_corpus: str | None
    gate: str | None
    """The gate's answer that stands: the worst of the newest under each policy; None when it was
    never judged."""
    policy: str | None
    decision: str | None
    """The newest review's."""
    reviewer: str | None
    reviews: int


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run in a list."""

    run: str
    created: str
    reference_name: str
    reference_sha256: str
    corpora: tuple[str, ...]
    positions: int
    measures_version: int
    missing: bool
    """Its files are gone; the index still remembers it."""
    candidates: tuple[CandidateRow, ...]


@dataclass(frozen=True, slots=True)
class RunList:
    """Part of a list of runs, and counts over all of it."""

    runs: tuple[RunRow, ...]
    matching: int
    """Runs that fit the filter."""
    counts: dict[str, Any]
    """Over the whole ledger: runs, candidates, verdicts, gates, decisions."""
    truncated: bool
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Id -> why, for runs that are there and can not be read; no filter hides them."""


def newest(connection: Connection) -> Sequence[str]:
    """Ids of all runs, the newest first."""
    return connection.execute(select(runs.c.id).order_by(*_NEWEST)).scalars().all()


def find_head(connection: Connection, wanted: str) -> str:
    """A head's whole hash from its beginning. Raises NotFoundError, BadUsageError."""
    if re.fullmatch("[0-9a-f]{64}", wanted):
        return wanted
    return _only(connection, candidates.c.head_sha256, wanted, "head", "see: audit runs --json")


def find_waiver(connection: Connection, wanted: str) -> str:
    """A waiver's whole id from its beginning. Raises NotFoundError, BadUsageError."""
    return _only(connection, waivers.c.id, wanted, "waiver", "see: audit waivers")


def _only(connection: Connection, column: Any, wanted: str, what: str, hint: str) -> str:
    fitting = select(column).distinct().where(column.startswith(wanted, autoescape=True))
    found = connection.execute(fitting).scalars().all() if wanted else []
    if len(found) > 1:
        raise BadUsageError(f"{wanted} fits {len(found)} {what}s", hint="give more characters")
    if not found:
        raise NotFoundError(f"no {what} {wanted!r} is known in this ledger", hint=hint)
    return str(found[0])


def list_runs(connection: Connection, wanted: RunFilter) -> RunList:
    """The runs that fit a filter. Which of them miss their files, the caller must say."""
    facts = _facts()
    fitting = select(runs).where(*_run_conditions(wanted))
    if conditions := _candidate_conditions(facts, wanted):
        fitting = fitting.where(runs.c.id.in_(select(facts.c.run).where(*conditions)))
    matching = connection.execute(select(func.count()).select_from(fitting.subquery())).scalar_one()
    page = fitting.order_by(*_NEWEST).offset(wanted.offset).limit(wanted.limit)
    found = connection.execute(page).all()
    members = _members(connection, facts, page)
    rows = tuple(
        RunRow(
            run=row.id,
            corpora=tuple(json.loads(row.corpora)),
            missing=False,
            candidates=tuple(members.get(row.id, ())),
            **{name: getattr(row, name) for name in _SHARED},
        )
        for row in found
    )
    truncated = wanted.offset + len(rows) < matching
    return RunList(rows, matching, _counts(connection, facts), truncated)


_SHARED = ("created", "reference_name", "reference_sha256", "positions", "measures_version")


def _facts() -> Subquery:
    """One row per candidate: what the run says, the gate's answer that stands, the newest review.

    Which answer stands is told in `reviewing`; here it is found without reading each of them.
    """
    newest = judgements.c.judged.desc(), judgements.c.entry.desc()
    of_each = _first_of(judgements, newest, judgements.c.policy_name)
    severity = case({name: i for i, name in enumerate(WORST_FIRST)}, value=of_each.c.outcome)
    judged = _first_of(of_each, (severity, of_each.c.judged.desc(), of_each.c.entry.desc()))
    said = _first_of(reviews, (reviews.c.entry.desc(),))
    joined = candidates.outerjoin(judged, _same_head(judged)).outerjoin(said, _same_head(said))
    return (
        select(
            candidates,
            judged.c.outcome.label("gate"),
            judged.c.policy_name.label("policy"),
            said.c.decision,
            said.c.reviewer,
            func.coalesce(said.c.total, 0).label("reviews"),
        )
        .select_from(joined)
        .subquery("facts")
    )


def _first_of(table: Any, order: Sequence[Any], *more: ColumnElement[Any]) -> Subquery:
    """The first entry per run and head (and `more`), and how many there are."""
    by = (table.c.run, table.c.head_sha256, *more)
    columns = [column for column in table.c if column.name not in ("rank", "total")]
    ranked = select(
        *columns,
        func.row_number().over(partition_by=by, order_by=order).label("rank"),
        func.count().over(partition_by=by).label("total"),
    ).subquery()
    return select(ranked).where(ranked.c.rank == 1).subquery()


def _same_head(entry: Subquery) -> ColumnElement[bool]:
    same: ColumnElement[bool] = (entry.c.run == candidates.c.run) & (
        entry.c.head_sha256 == candidates.c.head_sha256
    )
    return same


def _run_conditions(wanted: RunFilter) -> list[ColumnElement[bool]]:
    out: list[ColumnElement[bool]] = []
    if wanted.reference is not None:
        named = runs.c.reference_name.icontains(wanted.reference, autoescape=True)
        hashed = runs.c.reference_sha256.startswith(wanted.reference, autoescape=True)
        out.append(named | hashed)
    if wanted.since is not None:
        out.append(runs.c.created >= wanted.since)
    if wanted.until is not None:
        out.append(runs.c.created < wanted.until)
    return out


def _candidate_conditions(facts: Subquery, wanted: RunFilter) -> list[ColumnElement[bool]]:
    out: list[ColumnElement[bool]] = []
    if wanted.verdict is not None:
        out.append(facts.c.verdict == wanted.verdict)
    if wanted.gate is not None:
        out.append(func.coalesce(facts.c.gate, NONE) == wanted.gate)
    if wanted.head is not None:
        out.append(facts.c.name.icontains(wanted.head, autoescape=True))
    if wanted.head_sha256 is not None:
        out.append(facts.c.head_sha256.startswith(wanted.head_sha256, autoescape=True))
    if wanted.reviewed is not None:
        out.append((facts.c.reviews > 0) == wanted.reviewed)
    return out


def _members(
    connection: Connection, facts: Subquery, page: Select[Any]
) -> dict[str, list[CandidateRow]]:
    ids = page.subquery()
    found = connection.execute(
        select(facts).where(facts.c.run.in_(select(ids.c.id))).order_by(facts.c.run, facts.c.place)
    )
    members: dict[str, list[CandidateRow]] = {}
    for row in found:
        fields = {name: getattr(row, name) for name in CandidateRow.__slots__}
        members.setdefault(row.run, []).append(CandidateRow(**fields))
    return members


def _counts(connection: Connection, facts: Subquery) -> dict[str, Any]:
    def by(column: ColumnElement[Any]) -> dict[str, int]:
        value = func.coalesce(column, NONE)
        found = connection.execute(select(value, func.count()).select_from(facts).group_by(value))
        return {str(name): int(number) for name, number in found}

    return {
        "runs": connection.execute(select(func.count()).select_from(runs)).scalar_one(),
        "verdicts": by(facts.c.verdict),
        "gates": by(facts.c.gate),
        "decisions": by(facts.c.decision),
    }
