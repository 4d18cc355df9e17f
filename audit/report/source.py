"""The run that is asked for: from the ledger, or from a run document anywhere.

A document outside a ledger is checked as the ledger would check it: its content must give its id,
and a table of positions beside it must have the hash that the document names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from audit.errors import NotFoundError, UnreadableError
from audit.ledger import Judgement, Ledger, content_id, parse_run, standing, storable
from audit.provenance import sha256_file
from audit.records import Candidate, Review, Run
from audit.table import Frame, read_positions


@dataclass(frozen=True, slots=True)
class Opened:
    """A run and what was said of it since."""

    run: Run
    """As it was recorded."""
    judged: Run
    """The same with the gate's answers that stand, which the record can not hold."""
    positions: Frame | None
    reviews: tuple[Review, ...] = ()
    """The oldest first; none for a document outside a ledger."""


def document_path(wanted: str) -> Path | None:
    """The run document that is meant by a path; None for an id of the ledger.

    Raises:
        NotFoundError: the path of a document that is not there.
    """
    path = Path(wanted)
    # What no file could be called, such as a name of a thousand characters, is none.
    with contextlib.suppress(OSError, ValueError):
        if path.is_dir() and (path / "run.json").is_file():
            path = path / "run.json"
        if path.is_file():
            return path
    if path.suffix == ".json":
        raise NotFoundError(
            "there is no such run document", hint="audit show latest --json", where=path
        )
    return None


def read_document(path: Path) -> Run:
    """The run of a document that lies outside a ledger.

    Raises:
        UnreadableError: it is no run, or has changed since it was written.
    """
    run = parse_run(path.read_bytes(), str(path))
    # Printed with --no-record, a run never got an id to be held against.
    if run.run and content_id(run) != run.run:
        raise UnreadableError(
            "this run was changed after it was written: its content no longer gives its id",
            hint="a run is immutable; restore it from a copy, or run the audit again",
            where=path,
        )
    return run


def open_run(wanted: str, ledger: Ledger, *, positions: bool) -> Opened:
    """The run, its table of positions when it is wanted and there, and what was said since.

    Args:
        wanted: an id, a unique prefix, `latest`, or the path of a run document.

    Raises:
        AuditError: there is no such run, or what is there was changed.
    """
    path = document_path(wanted)
    if path is None:
        run = ledger.load_run(wanted)
        frame = ledger.load_positions(run) if positions and run.positions_sha256 else None
        judged = with_standing_gate(run, ledger.judgements_of(run.run))
        return Opened(run, judged, frame, tuple(ledger.reviews_of(run.run)))
    run, table = read_document(path), path.with_name("positions.parquet")
    if not positions or not run.positions_sha256 or not table.is_file():
        return Opened(run, run, None)
    if sha256_file(table) != run.positions_sha256:
        raise UnreadableError(
            "this table of positions is not the run's: its hash is another",
            hint="put the run's own table beside it, or take it away",
            where=table,
        )
    return Opened(run, run, read_positions(table))


def with_standing_gate(run: Run, judgements: Sequence[Judgement]) -> Run:
    """The run with the gate's standing answer on each candidate in the place of the recorded one.

    Args:
        judgements: the gate's answers on this run, the first one first.
    """

    def judged(candidate: Candidate) -> Candidate:
        mine = storable(candidate.head.sha256)
        answers = standing([one.gate for one in judgements if one.head_sha256 == mine])
        return candidate.model_copy(update={"gate": answers[0] if answers else candidate.gate})

    return run.model_copy(update={"candidates": tuple(map(judged, run.candidates))})
