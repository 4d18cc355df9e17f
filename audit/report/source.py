"""The run that a report is asked for: from the ledger, or from a run document anywhere.

A document outside a ledger is checked as the ledger would check it: its content must give its id,
and a table of positions beside it must have the hash that the document names.
"""

from __future__ import annotations

from pathlib import Path

from audit.errors import NotFoundError, UnreadableError
from audit.ledger import content_id, load_positions, load_run, parse_run, sha256_file_or_none
from audit.records import Run
from audit.table import Frame, read_positions


def open_run(wanted: str, ledger: Path, *, positions: bool) -> tuple[Run, Frame | None]:
    """The run, and its table of positions when it is wanted and there.

    Args:
        wanted: an id, a unique prefix, `latest`, or the path of a run document.

    Raises:
        AuditError: there is no such run, or what is there was changed.
    """
    path = Path(wanted)
    if path.suffix == ".json" or _is_file(path):
        return _open_file(path, positions=positions)
    run = load_run(wanted, ledger)
    return run, load_positions(run, ledger) if positions and run.positions_sha256 else None


def _is_file(path: Path) -> bool:
    """Whether this names a file; what no file could be called does not."""
    try:
        return path.is_file()
    except OSError:
        return False


def _open_file(path: Path, *, positions: bool) -> tuple[Run, Frame | None]:
    if not _is_file(path):
        raise NotFoundError(
            "there is no such run document", hint="audit report latest takes one of the ledger",
            where=path,
        )  # fmt: skip
    run = parse_run(path)
    if run.run and content_id(run) != run.run:
        raise UnreadableError(
            "this run was changed after it was written: its content no longer gives its id",
            hint="a run is immutable; restore it from a copy, or run the audit again",
            where=path,
        )
    table = path.with_name("positions.parquet")
    if not positions or not run.positions_sha256 or not table.is_file():
        return run, None
    if sha256_file_or_none(table) != run.positions_sha256:
        raise UnreadableError(
            "this table of positions is not the run's: its hash is another",
            hint="put the run's own table beside it, or take it away",
            where=table,
        )
    return run, read_positions(table)
