"""The index of runs, and the door to the database: opened late, brought up to date, never trusted.

What the files say counts. `catch_up` indexes every run that the database lacks, so that one written
by a crashed or an older program is not hidden, and reports those it can not read. A folder that
can only be read, or is not there yet, is served from a private copy of its index.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, delete, select

from audit.errors import AuditError, BadUsageError
from audit.evidence import worst_retention
from audit.ledger import schema
from audit.ledger.database import ENVIRONMENT, Database, insert_new, sqlite_file
from audit.ledger.documents import Judgement, seal, storable
from audit.ledger.entries import append
from audit.ledger.identity import identify
from audit.ledger.migrations import migrate
from audit.ledger.runs import RunFiles
from audit.ledger.store import LocalStore, Store
from audit.provenance import json_text
from audit.records import Candidate, Run

FILE = "index.sqlite"
_BATCH = 200
T = TypeVar("T")


class Index:
    """The database of one ledger."""

    def __init__(self, store: Store, url: URL | None) -> None:
        if url is None and not isinstance(store, LocalStore):
            raise BadUsageError(
                "this ledger is not a folder, so its index needs a database elsewhere",
                hint=f"set {ENVIRONMENT}, for instance postgresql://user@host/audit",
                where=store.where(),
            )
        self._store, self._url = store, url
        self._files = RunFiles(store)
        self._opened: Database | None = None
        self._identified = False

    def database(self, *, writes: bool = False) -> Database:
        """The database at its newest version.

        Raises:
            BadUsageError: it is to be written and can not be, or is another program's.
            MismatchError: it is another ledger's.
            UnreadableError: it can not be reached or used.
        """
        if self._opened is None:
            if self._url is None and not _can_write(self._local()):
                if not writes:
                    return _private_copy(self._local())
                self._store.check_writable()  # makes the folder, or tells why it can not
            if self._url is None and not _can_write(self._local()):
                raise BadUsageError(
                    "the ledger can not be written: its index is read-only here",
                    hint="work where the ledger is kept",
                    where=self._local() / FILE,
                )
            opened = Database(self._url or sqlite_file(self._local() / FILE))
            migrate(opened)
            self._opened = opened
        if not self._identified:
            self._identified = identify(self._opened, self._store, writes=writes)
        return self._opened

    def read(self, work: Callable[[Connection], T]) -> T:
        """What `work` returns, in one transaction."""
        return self.database().read(work)

    def write(self, work: Callable[[Connection], T]) -> T:
        """What `work` returns, once committed; `work` may run several times."""
        return self.database(writes=True).write(work)

    def catch_up(self) -> tuple[Database, dict[str, str]]:
        """Index all runs that are missing.

        Returns:
            The database, and id -> why for each run that can not be read.
        """
        database = self.database()
        known = set(database.read(lambda c: c.execute(select(schema.runs.c.id)).scalars().all()))
        missing = [run for run in self._files.names() if run not in known and self._files.has(run)]
        broken: dict[str, str] = {}
        for start in range(0, len(missing), _BATCH):
            found = []
            for run in missing[start : start + _BATCH]:
                try:
                    found.append((self._files.document(run), self._files.recorded(run)))
                except AuditError as error:
                    broken[run] = error.message
            database.write(partial(_add_runs, found=found))
        return database, broken

    def _local(self) -> Path:
        assert isinstance(self._store, LocalStore)
        return self._store.folder


def add_run(connection: Connection, run: Run, recorded: float) -> None:
    """Index a run, with the gate's answers that its document holds; once is enough."""
    row, candidates, judgements = rows_of(run, recorded)
    insert_new(connection, schema.runs, [row])
    insert_new(connection, schema.candidates, candidates)
    for judgement in judgements:
        append(connection, judgement)


def _add_runs(connection: Connection, found: Sequence[tuple[Run, float]]) -> None:
    for run, recorded in found:
        add_run(connection, run, recorded)


def drop_run(connection: Connection, run: str) -> None:
    """Forget a run's rows in the index; what people said of it stays."""
    connection.execute(delete(schema.candidates).where(schema.candidates.c.run == run))
    connection.execute(delete(schema.runs).where(schema.runs.c.id == run))


def rows_of(
    run: Run, recorded: float
) -> tuple[dict[str, Any], list[dict[str, Any]], list[Judgement]]:
    """What the index holds of a run: its row, its candidates' rows, its gate's answers."""
    row = {
        "id": run.run,
        "created": storable(run.provenance.created),
        "recorded": recorded,
        "reference_name": storable(run.reference.name),
        "reference_sha256": storable(run.reference.sha256),
        "corpora": json_text([trace.info.corpus for trace in run.traces], indent=None),
        "positions": sum(trace.positions for trace in run.traces),
        "measures_version": run.provenance.measures_version,
    }
    candidates = [_candidate(run.run, i, one) for i, one in enumerate(run.candidates)]
    judgements = [
        seal(Judgement(id="", run=run.run, head_sha256=storable(one.head.sha256), gate=one.gate))
        for one in run.candidates
        if one.gate is not None
    ]
    return row, candidates, judgements


def _candidate(run: str, place: int, candidate: Candidate) -> dict[str, Any]:
    worst = worst_retention(candidate.estimates)
    return {
        "run": run,
        "place": place,
        "name": storable(candidate.head.name),
        "head_sha256": storable(candidate.head.sha256),
        "encoding": storable(candidate.head.encoding),
        "bits_per_weight": candidate.head.bits_per_weight,
        "stored_bytes": candidate.head.stored_bytes,
        "verdict": candidate.verdict.kind,
        "worst_retention": worst.value if worst else None,
        "worst_low": worst.low if worst else None,
        "worst_high": worst.high if worst else None,
        "worst_corpus": storable(worst.corpus or "") if worst else None,
    }


def _can_write(folder: Path) -> bool:
    file = folder / FILE
    return os.access(folder, os.W_OK) and (not file.exists() or os.access(file, os.W_OK))


def _private_copy(folder: Path) -> Database:
    """A database of our own with what is in the folder's, if there is one."""
    place = Path(tempfile.mkdtemp(prefix="audit-index-"))
    for suffix in ("", "-wal", "-journal"):  # what a killed writer left belongs to it
        source = folder / f"{FILE}{suffix}"
        if source.is_file():
            shutil.copyfile(source, place / source.name)
    database = Database(sqlite_file(place / FILE))
    weakref.finalize(database, shutil.rmtree, place, ignore_errors=True)
    migrate(database)
    return database
