"""Where Runs are kept: one folder per run, immutable, named by the hash of its content.

    LEDGER/runs/<id>/run.json           the document
    LEDGER/runs/<id>/positions.parquet  the table of positions
    LEDGER/calibrations/<head>.json     a reference's yardsticks, from `audit study`

A run is written into a temporary folder and renamed, so a half-written one is never seen. Reading
checks the hashes again. Imports no torch.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError

from audit.atomic import atomic_path
from audit.calibration import Calibration
from audit.errors import BadUsageError, NotFoundError, UnreadableError, first_line
from audit.provenance import canonical_json, sha256_file
from audit.records import SCHEMA_VERSION, Run
from audit.table import Frame, read_positions, write_positions

ENVIRONMENT = "AUDIT_LEDGER"
DEFAULT_FOLDER = Path("audit-ledger")
ID_LENGTH = 16
"""Hex digits of the SHA-256 that name a run: 64 bits, ample for any ledger."""
LATEST = "latest"
_SURROGATE = re.compile("[\ud800-\udfff]")


def ledger_folder(given: Path | None) -> Path:
    """The ledger's folder: what was given, else AUDIT_LEDGER, else ./audit-ledger."""
    return given or Path(os.environ.get(ENVIRONMENT) or DEFAULT_FOLDER)


def content_id(run: Run) -> str:
    """The id that a run's content gives: hash of the document with `run` empty."""
    blank = run.model_copy(update={"run": ""})
    text = _visible(canonical_json(blank.model_dump(by_alias=True, mode="json")))
    return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]


def save_run(run: Run, frames: Sequence[Frame], folder: Path) -> Run:
    """Write a run with its position table and return it with id and table hash filled in.

    Writing the same content twice leaves the first copy as it is.

    Raises:
        BadUsageError: the ledger's folder can not be written.
    """
    temporary = _writing_folder(folder)
    try:
        table = temporary / "positions.parquet"
        write_positions(pd.concat(frames, ignore_index=True), table)
        run = run.model_copy(update={"positions_sha256": sha256_file(table)})
        run = run.model_copy(update={"run": content_id(run)})
        (temporary / "run.json").write_text(run_json(run) + "\n", encoding="utf-8")
        temporary.chmod(0o755)
        target = temporary.with_name(run.run)
        if not target.exists():
            temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return run


def check_writable(folder: Path) -> None:
    """Make the ledger's folder if need be. Raises BadUsageError when it can not be written."""
    _writing_folder(folder).rmdir()


def _writing_folder(folder: Path) -> Path:
    """A new temporary folder beside the runs."""
    runs = folder / "runs"
    try:
        runs.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=runs, prefix=".writing-"))
    except OSError as error:
        raise BadUsageError(
            f"the ledger can not be written: {error.strerror}",
            hint="choose another folder with --ledger or AUDIT_LEDGER",
            where=folder,
        ) from error


def save_calibration(calibration: Calibration, folder: Path) -> Path:
    """Keep a reference's calibration; one per head, the newest counts."""
    path = _calibration_path(calibration.reference, folder)
    text = json_text(calibration.model_dump(by_alias=True, mode="json"), indent=None)
    with atomic_path(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
    return path


def load_calibration(reference: str, folder: Path) -> Calibration | None:
    """The calibration of the reference head with this hash; None when there is none.

    Raises:
        UnreadableError: it is there and can not be read.
    """
    path = _calibration_path(reference, folder)
    if not path.is_file():
        return None
    try:
        return Calibration.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnreadableError(
            f"this calibration can not be read: {first_line(error)}",
            hint="make it again with `audit study`, or remove the file",
            where=path,
        ) from error


def _calibration_path(reference: str, folder: Path) -> Path:
    return folder / "calibrations" / f"{reference[:ID_LENGTH]}.json"


def run_json(run: Run) -> str:
    """The run as the one JSON document that `--json` prints and the ledger keeps."""
    return json_text(run.model_dump(by_alias=True, mode="json"))


def json_text(value: Any, indent: int | None = 1) -> str:
    """JSON that can always be written as UTF-8: see `_visible`."""
    return _visible(json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False))


def _visible(text: str) -> str:
    """JSON text in which bytes of file names that are not UTF-8 read as a backslash and `udcff`."""
    return _SURROGATE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text)


def list_ids(folder: Path) -> list[str]:
    """Ids of all runs, the oldest first by the time they were made; other files do not count."""
    runs = folder / "runs"
    if not runs.is_dir():
        return []
    folders = (path for path in runs.iterdir() if not path.name.startswith("."))
    found = [path for path in folders if (path / "run.json").is_file()]
    return [path.name for path in sorted(found, key=lambda p: (p.stat().st_mtime_ns, p.name))]


def resolve_id(wanted: str, folder: Path) -> str:
    """A full id from a full id, a unique prefix, or `latest`.

    Raises:
        NotFoundError: no such run; near matches are named.
        BadUsageError: the prefix fits several runs.
    """
    ids = list_ids(folder)
    if not ids:
        raise NotFoundError(
            "this ledger holds no runs", hint="make one: audit compare REF CAND", where=folder
        )
    if wanted == LATEST:
        return ids[-1]
    matches = [name for name in ids if name.startswith(wanted)] if wanted else []
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise BadUsageError(
            f"{wanted} fits {len(matches)} runs: {', '.join(matches[:5])}",
            hint="give more characters",
            where=folder,
        )
    near = difflib.get_close_matches(wanted, ids, n=3, cutoff=0.4) or ids[-3:]
    raise NotFoundError(
        f"there is no run {wanted!r} in this ledger",
        hint=f"did you mean {', '.join(near)}?",
        where=folder,
    )


def load_run(wanted: str, folder: Path) -> Run:
    """Read a run and check its id and its table against its content.

    Raises:
        NotFoundError, BadUsageError: see `resolve_id`.
        UnreadableError: not a run, of a newer schema, or changed since it was written.
    """
    name = resolve_id(wanted, folder)
    path = folder / "runs" / name / "run.json"
    run = parse_run(path)
    if run.run != name or content_id(run) != name:
        raise _changed(path, "its content no longer gives its id")
    table = path.with_name("positions.parquet")
    if run.positions_sha256 and sha256_file_or_none(table) != run.positions_sha256:
        raise _changed(table, "the table of positions is missing or has changed")
    return run


def load_positions(run: Run, folder: Path) -> Frame:
    """The position table of a run in this ledger."""
    return read_positions(folder / "runs" / run.run / "positions.parquet")


def parse_run(path: Path) -> Run:
    """A run document from its file.

    Raises:
        UnreadableError: it is missing, no run, or of a newer schema.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version = content.get("schema") if isinstance(content, dict) else None
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise UnreadableError(
                f"this run has schema {version}, this version reads up to {SCHEMA_VERSION}",
                hint="install a newer head-audit",
                where=path,
            )
        return Run.model_validate(content)
    except (OSError, ValueError, ValidationError) as error:
        raise UnreadableError(
            f"this is not a run document: {first_line(error)}",
            hint="restore the file from a copy, or run the audit again",
            where=path,
        ) from error


def sha256_file_or_none(path: Path) -> str | None:
    """The file's hash, None when there is no such file."""
    return sha256_file(path) if path.is_file() else None


def _changed(path: Path, why: str) -> UnreadableError:
    return UnreadableError(
        f"this run was changed after it was written: {why}",
        hint="a run is immutable; restore it from a copy, or run the audit again",
        where=path,
    )
