"""The ledger: one object for all that is kept of audits and of what people decided on them.

Files first, then the index: a crash between the two leaves a run that the next listing finds. This
object only brings the parts together; opening it touches nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sqlalchemy import ColumnElement, Connection

from audit.calibration import Calibration
from audit.errors import AuditError, BadUsageError, NotFoundError, UnreadableError
from audit.ledger import keep, schema
from audit.ledger.database import ENVIRONMENT as DATABASE
from audit.ledger.database import parse_url
from audit.ledger.documents import Judgement, seal, storable
from audit.ledger.entries import append, entries
from audit.ledger.index import Index, add_run
from audit.ledger.listing import RunFilter, RunList, find_head, find_waiver, list_runs, newest
from audit.ledger.objects import ObjectStore
from audit.ledger.reviewing import check_review, check_seen, check_waiver, standing
from audit.ledger.runs import RunFiles, no_runs
from audit.ledger.store import LocalStore, Store
from audit.provenance import now_utc
from audit.records import GateResult, Review, Run, Waiver
from audit.table import Frame

ENVIRONMENT = "AUDIT_LEDGER"
DEFAULT_FOLDER = "audit-ledger"
LATEST = "latest"


class Ledger:
    """Runs, calibrations, policies, and what people said of them."""

    def __init__(self, store: Store, index: Index) -> None:
        self.store, self.index = store, index
        self.files = RunFiles(store)

    @property
    def where(self) -> str:
        """The folder or URL."""
        return self.store.where()

    def check_writable(self) -> None:
        """Make the ledger if need be. Raises AuditError when files or index can not be written."""
        self.store.check_writable()
        self.index.database(writes=True)

    # Runs

    def save_run(self, run: Run, frames: Sequence[Frame]) -> Run:
        """Keep a run with its position tables; return it with id and table hash filled in.

        The same content is one run, however often it is saved.

        Raises:
            BadUsageError: the ledger can not be written.
            UnreadableError: the database can not be used; the run is kept all the same.
        """
        saved = self.files.save(run, frames)
        recorded = self.files.recorded(saved.run)
        try:
            self.index.write(lambda connection: add_run(connection, saved, recorded))
        except AuditError as error:
            raise UnreadableError(
                f"run {saved.run} is kept, but could not be indexed: {error.message}",
                hint="nothing is lost: `audit runs` indexes it as soon as the database answers",
                where=error.where,
            ) from error
        return saved

    def run_ids(self) -> list[str]:
        """Ids of all runs, sorted by id; needs no database."""
        return self.files.ids()

    def resolve_id(self, wanted: str) -> str:
        """A full id from a full id, a unique beginning of one, or `latest`.

        Raises:
            NotFoundError: no such run; near matches are named.
            BadUsageError: the beginning fits several runs.
        """
        if wanted != LATEST:
            return self.files.find(wanted)
        database, _ = self.index.catch_up()
        for run in database.read(newest):
            if self.files.has(run):
                return run
        raise no_runs(self.where)

    def load_run(self, wanted: str) -> Run:
        """A run, its document and its table checked against its id.

        Raises:
            NotFoundError, BadUsageError: see `resolve_id`.
            UnreadableError: not a run, of a newer schema, or changed since it was written.
        """
        run = self.files.document(self.resolve_id(wanted))
        self.files.check_table(run)
        return run

    def load_positions(self, run: Run, columns: Sequence[str] | None = None) -> Frame:
        """The position table of a run, or some columns of it."""
        return self.files.positions(run, columns)

    def runs(self, wanted: RunFilter | None = None) -> RunList:
        """Runs that fit a filter, the newest first; none is hidden for want of an index."""
        database, broken = self.index.catch_up()
        found = database.read(lambda connection: list_runs(connection, wanted or RunFilter()))
        there = set(self.files.names())
        rows = tuple(replace(row, missing=row.run not in there) for row in found.runs)
        return replace(found, runs=rows, unreadable=broken)

    # Calibrations and policies

    def save_calibration(self, calibration: Calibration) -> str:
        """Keep a reference's calibration and return its name."""
        return keep.save_calibration(self.store, calibration)

    def load_calibration(
        self, reference: str, traces: Mapping[str, str] | None = None
    ) -> Calibration | None:
        """The newest calibration of a reference, on these traces if there is one; see `keep`."""
        return keep.load_calibration(self.store, reference, traces)

    def save_policy(self, text: str) -> str:
        """Keep the text of a policy and return its hash."""
        return keep.save_policy(self.store, text)

    def policy_text(self, sha256: str) -> str:
        """The text of a policy. Raises NotFoundError, UnreadableError."""
        return keep.policy_text(self.store, sha256)

    # What people and the gate said

    def find_head(self, wanted: str) -> str:
        """The whole hash of a head from the whole hash, or the beginning of one known here."""
        database, _ = self.index.catch_up()
        return database.read(lambda connection: find_head(connection, wanted.lower()))

    def find_waiver(self, wanted: str) -> str:
        """The whole id of a waiver from a unique beginning of it."""
        return self.index.read(lambda connection: find_waiver(connection, wanted.lower()))

    def add_judgement(self, run: str, head_sha256: str, gate: GateResult) -> Judgement:
        """Append the gate's answer on a candidate of a run. Keep the policy's text first.

        Raises:
            BadUsageError: the run has no such candidate.
        """
        self._check_subject(run, head_sha256)
        entry = Judgement(id="", run=run, head_sha256=storable(head_sha256), gate=gate)
        judgement = seal(entry)
        self.index.write(lambda connection: append(connection, judgement))
        return judgement

    def judgements_of(self, run: str) -> list[Judgement]:
        """The gate's answers on a run, the first one first."""
        mine = schema.judgements.c.run == run
        return self.index.read(lambda connection: _judgements(connection, mine))

    def answers(self, run: str, head_sha256: str) -> tuple[GateResult, ...]:
        """The gate's answers that stand on one candidate, the worst first; see `reviewing`."""
        return self.index.read(lambda connection: _answers(connection, run, head_sha256))

    def add_review(
        self,
        review: Review,
        new_waivers: Sequence[Waiver] = (),
        seen: Sequence[str] | None = None,
    ) -> Review:
        """Append a review, with the waivers it brings along; return it with its id and theirs.

        Args:
            seen: ids of the candidate's reviews that the reviewer knew of, which must be all there
                are; None where the reviewer looked at no list of them.

        Raises:
            BadUsageError, MismatchError: see `reviewing`.
            NotFoundError: it names a waiver that is not there.
        """
        self._check_subject(review.run, review.head_sha256)
        today = now_utc()[:10]
        fresh = [seal(waiver) for waiver in new_waivers]
        for waiver in fresh:
            check_waiver(waiver, today)
        names = dict.fromkeys([*review.waivers, *(waiver.id for waiver in fresh)])
        sealed = seal(review.model_copy(update={"waivers": tuple(names)}))

        def work(connection: Connection) -> None:
            known = {waiver.id: waiver for waiver in entries(connection, Waiver)}
            known |= {waiver.id: waiver for waiver in fresh}
            if unknown := [name for name in sealed.waivers if name not in known]:
                raise NotFoundError(f"there is no waiver {unknown[0]}", hint="see: audit waivers")
            if seen is not None:
                check_seen(_reviews(connection, sealed), seen, sealed.run)
            judged = _answers(connection, sealed.run, sealed.head_sha256)
            check_review(sealed, judged, [known[name] for name in sealed.waivers], today)
            for waiver in fresh:
                append(connection, waiver)
            append(connection, sealed)

        self.index.write(work)
        return sealed

    def reviews_of(self, run: str) -> list[Review]:
        """All reviews of a run, the first one first."""
        mine = schema.reviews.c.run == run
        return self.index.read(lambda connection: entries(connection, Review, mine))

    def add_waiver(self, waiver: Waiver) -> Waiver:
        """Append a waiver and return it with its id. Raises BadUsageError: see `reviewing`."""
        check_waiver(waiver, now_utc()[:10])
        sealed = seal(waiver)
        self.index.write(lambda connection: append(connection, sealed))
        return sealed

    def _check_subject(self, run: str, head_sha256: str) -> None:
        heads = {one.head.sha256 for one in self.files.document(run).candidates}
        if head_sha256 not in heads:
            raise BadUsageError(
                f"run {run} has no candidate with the hash {head_sha256[:12]}",
                hint=f"see: audit show {run}",
                where=self.where,
            )

    def waivers_of(self, head_sha256: str) -> list[Waiver]:
        """All waivers for a head, spent ones too."""
        mine = schema.waivers.c.head_sha256 == head_sha256
        return self.index.read(lambda connection: entries(connection, Waiver, mine))

    def all_waivers(self) -> list[Waiver]:
        """All waivers, the first one first, spent ones too."""
        return self.index.read(lambda connection: entries(connection, Waiver))


def open_ledger(folder_or_url: str | Path | None = None, database_url: str | None = None) -> Ledger:
    """The ledger at a folder or URL, else at AUDIT_LEDGER, else in ./audit-ledger.

    Args:
        folder_or_url: a folder, or a URL that fsspec knows (s3://bucket/ledger).
        database_url: SQLite or PostgreSQL, else AUDIT_DB_URL, else a SQLite file in the folder.

    Raises:
        BadUsageError: the URL means nothing, or a ledger that is no folder has no database.
        MissingExtraError: the URL needs a library that is not installed.
    """
    given = str(folder_or_url or os.environ.get(ENVIRONMENT) or DEFAULT_FOLDER)
    scheme, separator, rest = given.partition("://")
    if separator and scheme != "file":
        store: Store = ObjectStore(given)
    else:
        store = LocalStore(Path(rest if separator else given))
    named = database_url or os.environ.get(DATABASE)
    return Ledger(store, Index(store, parse_url(named) if named else None))


def _reviews(connection: Connection, like: Review) -> list[Review]:
    columns = schema.reviews.c
    mine = (columns.run == like.run) & (columns.head_sha256 == like.head_sha256)
    return entries(connection, Review, mine)


def _judgements(connection: Connection, mine: ColumnElement[bool]) -> list[Judgement]:
    return sorted(entries(connection, Judgement, mine), key=lambda one: one.gate.judged)


def _answers(connection: Connection, run: str, head_sha256: str) -> tuple[GateResult, ...]:
    columns = schema.judgements.c
    mine = (columns.run == run) & (columns.head_sha256 == storable(head_sha256))
    return standing([one.gate for one in _judgements(connection, mine)])
