"""The run that is asked for: from the ledger, or from a run document anywhere.

A document outside a ledger is checked as the ledger would check it: its content must give its id,
and a table of positions beside it must have the hash that the document names.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from audit.errors import NotFoundError, UnreadableError
from audit.ledger import Ledger, content_id, parse_run
from audit.provenance import sha256_file
from audit.records import Run
from audit.table import Frame, read_positions


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


def open_run(wanted: str, ledger: Ledger, *, positions: bool) -> tuple[Run, Frame | None]:
    """The run, and its table of positions when it is wanted and there.

    Args:
        wanted: an id, a unique prefix, `latest`, or the path of a run document.

    Raises:
        AuditError: there is no such run, or what is there was changed.
    """
    path = document_path(wanted)
    if path is None:
        run = ledger.load_run(wanted)
        return run, ledger.load_positions(run) if positions and run.positions_sha256 else None
    run, table = read_document(path), path.with_name("positions.parquet")
    if not positions or not run.positions_sha256 or not table.is_file():
        return run, None
    if sha256_file(table) != run.positions_sha256:
        raise UnreadableError(
            "this table of positions is not the run's: its hash is another",
            hint="put the run's own table beside it, or take it away",
            where=table,
        )
    return run, read_positions(table)
