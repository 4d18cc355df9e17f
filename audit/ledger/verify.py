"""What is damaged in a ledger, and what of it can be mended.

Every hash is computed again: documents, tables, policies, calibrations, reviews, waivers and
judgements. Mended are what a killed writer leaves (its temporary files, a run that the index lacks)
and an index that says something else than the files. Nothing that a person wrote, no run and no
table is ever changed or removed: those are restored from a copy, by hand.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from sqlalchemy import Connection, Row, func, select, text

from audit.errors import AuditError, NotFoundError
from audit.ledger import keep, schema
from audit.ledger.database import Database
from audit.ledger.documents import ID_LENGTH, Judgement
from audit.ledger.entries import changed_entries
from audit.ledger.identity import is_started, lost_index
from audit.ledger.index import add_run, drop_run, rows_of
from audit.ledger.ledger import Ledger
from audit.ledger.runs import FOLDER, TABLE
from audit.ledger.store import WRITING
from audit.records import Review, Run, Waiver

STALE_SECONDS = 3600.0
"""A writer that has not finished after so long was killed."""
_RUN = re.compile(rf"[0-9a-f]{{{ID_LENGTH}}}")
_HASH = re.compile("[0-9a-f]{64}")
_LOST = (
    "this index is not the one that the ledger had: reviews, waivers and judgements of that one "
    "are not here, and come back from a copy only; --repair goes on without them"
)
Kind = Literal["run", "policy", "calibration", "database", "entry", "index", "leftover"]
Progress = Callable[[str, int, int], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is not as it should be."""

    kind: Kind
    where: str
    sentence: str
    repairable: bool = False
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class Verification:
    """The state of a ledger."""

    counts: dict[str, int]
    problems: tuple[Problem, ...]

    @property
    def sound(self) -> bool:
        """Nothing is damaged, or all of it has been mended."""
        return all(problem.repaired for problem in self.problems)


def verify(
    ledger: Ledger,
    *,
    repair: bool = False,
    stale_seconds: float = STALE_SECONDS,
    progress: Progress | None = None,
) -> Verification:
    """Check everything, and mend what can be mended when `repair` is set.

    Raises:
        AuditError: the ledger can not be read at all, or is to be mended and can not be written.
    """
    if not is_started(ledger.store):
        raise NotFoundError(
            "there is no ledger here",
            hint="audit compare starts one; name another place with --ledger or AUDIT_LEDGER",
            where=ledger.where,
        )
    lost = lost_index(ledger.index.database(), ledger.store)
    database = ledger.index.database(writes=repair)
    work = _Work(ledger, database, repair, stale_seconds, progress or (lambda *told: None))
    problems = [Problem("database", database.shown, _LOST, True, repair)] if lost else []
    problems += [*work.database_file(), *work.leftovers(), *work.runs(), *work.gone()]
    problems += [*work.kept_files(), *work.entries()]
    problems += [*work.waivers_missing(), *work.policies_missing()]
    return Verification(work.counts, tuple(problems))


class _Work:
    """One pass over a ledger."""

    def __init__(
        self, ledger: Ledger, database: Database, repair: bool, stale: float, progress: Progress
    ) -> None:
        self.ledger, self.store, self.files = ledger, ledger.store, ledger.files
        self.database, self.repair, self.stale = database, repair, stale
        self.progress = progress
        self.indexed = {row.id for row in self._rows(select(schema.runs.c.id))}
        self.names = self.files.ids()
        self.counts = {"runs": len(self.names)}

    def database_file(self) -> Iterator[Problem]:
        """SQLite's own check of its file."""
        if self.database.dialect == "sqlite":
            for row in self._rows(text("PRAGMA integrity_check(3)")):
                if row[0] != "ok":
                    yield Problem("database", self.database.shown, str(row[0]))

    def leftovers(self) -> Iterator[Problem]:
        """What killed writers left; what a writer may still be busy with is left alone."""
        found = [f"{FOLDER}/{n}" for n in self.store.children(FOLDER) if n.startswith(WRITING)]
        for folder in (keep.CALIBRATIONS, keep.POLICIES):
            children = self.store.children(folder)
            found += [
                f"{folder}/{n}" for n in children if n.startswith(".") and n.endswith(".part")
            ]
        for name in set(self.files.names()) - set(self.names) - self.indexed:
            place = f"{FOLDER}/{name}"
            half = _RUN.fullmatch(name) and not self.store.exists(place)
            if half and set(self.store.children(place)) <= {TABLE}:
                found.append(place)
        for place in sorted(found):
            if self.store.age(place) >= self.stale:
                why = "a writer was killed here; nothing in it counts"
                yield self._mend("leftover", place, why, self.store.remove, place)

    def runs(self) -> Iterator[Problem]:
        """Documents, tables, and what the index says of them."""
        for done, name in enumerate(self.names):
            self.progress("runs", done, len(self.names))
            try:
                run = self.files.document(name)
                self.files.check_table(run)
            except AuditError as error:
                yield Problem("run", error.where, error.message)
                continue
            if name not in self.indexed:
                yield self._mend("index", f"{FOLDER}/{name}", "the index lacks it", self._add, run)
            elif not self.database.read(lambda c, run=run: _agrees(c, run)):  # type: ignore[misc]
                why = "the index says something else than the run"
                yield self._mend("index", f"{FOLDER}/{name}", why, self._add, run)
        self.progress("runs", len(self.names), len(self.names))

    def gone(self) -> Iterator[Problem]:
        """Runs that only the database remembers; one that someone spoke of stays in it."""
        said = Counter(
            row.run
            for table in (schema.reviews, schema.judgements)
            for row in self._rows(select(table.c.run))
        )
        for run in sorted((self.indexed | set(said)) - set(self.names)):
            where = f"{FOLDER}/{run}"
            if said[run]:
                why = f"the files of this run are gone, and {said[run]} entries are about it"
                yield Problem("run", self.store.where(where), why)
            else:
                why = "the files of this run are gone; nobody said anything of it"
                yield self._mend("index", where, why, self._forget, run)

    def kept_files(self) -> Iterator[Problem]:
        """Policies and calibrations against their names."""
        checks: tuple[tuple[Kind, str, Callable[[str], object]], ...] = (
            ("calibration", keep.CALIBRATIONS, lambda n: keep.read_calibration(self.store, n)),
            ("policy", keep.POLICIES, lambda n: self.ledger.policy_text(keep.policy_hash(n))),
        )
        for kind, folder, read in checks:
            names = keep.kept(self.store, folder)
            self.counts[folder] = len(names)
            for name in names:
                try:
                    read(name)
                except AuditError as error:
                    yield Problem(kind, error.where, error.message)

    def entries(self) -> Iterator[Problem]:
        """Reviews, waivers and judgements against their names."""
        for kind, table in (
            (Review, schema.reviews), (Waiver, schema.waivers), (Judgement, schema.judgements),
        ):  # fmt: skip
            (count,) = self._rows(select(func.count()).select_from(table))
            self.counts[table.name] = int(count[0])
            for name in self.database.read(lambda c, kind=kind: changed_entries(c, kind)):  # type: ignore[misc]
                why = f"this {kind.__name__.lower()} was changed after it was written"
                yield Problem("entry", f"{table.name} {name}", why)

    def waivers_missing(self) -> Iterator[Problem]:
        """Reviews that rest on a waiver nobody can read again."""
        known = {row.id for row in self._rows(select(schema.waivers.c.id))}
        for row in self._rows(select(schema.reviews.c.id, schema.reviews.c.waivers)):
            for waiver in _HASH.findall(row.waivers):
                if waiver not in known:
                    yield Problem("entry", f"reviews {row.id}", f"its waiver {waiver} is gone")

    def policies_missing(self) -> Iterator[Problem]:
        """Judgements whose policy nobody can read again."""
        for row in self._rows(select(schema.judgements.c.policy_sha256).distinct()):
            try:
                self.ledger.policy_text(row.policy_sha256)
            except NotFoundError as error:
                yield Problem("policy", error.where, "its text is missing, and it judged runs here")
            except AuditError:
                continue  # told among the policies

    def _rows(self, statement: Any) -> list[Row[Any]]:
        return self.database.read(lambda connection: list(connection.execute(statement).all()))

    def _add(self, run: Run) -> None:
        recorded = self.files.recorded(run.run)

        def work(connection: Connection) -> None:
            drop_run(connection, run.run)
            add_run(connection, run, recorded)

        self.database.write(work)

    def _forget(self, run: str) -> None:
        self.database.write(lambda connection: drop_run(connection, run))

    def _mend(
        self, kind: Kind, name: str, sentence: str, mend: Callable[[T], None], of: T
    ) -> Problem:
        if self.repair:
            mend(of)
        return Problem(kind, self.store.where(name), sentence, True, self.repair)


def _agrees(connection: Connection, run: Run) -> bool:
    """Whether the index holds just what the run's document says."""
    row, candidates, judgements = rows_of(run, 0.0)
    mine = select(schema.runs).where(schema.runs.c.id == run.run)
    members = select(schema.candidates).where(schema.candidates.c.run == run.run)
    found = [
        {name: value for name, value in one.items() if name != "recorded"}
        for query in (mine, members.order_by(schema.candidates.c.place))
        for one in connection.execute(query).mappings().all()
    ]
    del row["recorded"]
    columns = schema.judgements.c
    known = connection.execute(select(columns.id).where(columns.run == run.run)).scalars().all()
    return found == [row, *candidates] and {one.id for one in judgements} <= set(known)
