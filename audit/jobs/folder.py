"""The folder of one job: its files, each with a single writer. See the package's docstring."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from audit.errors import UnreadableError
from audit.jobs.records import JobRequest, JobState
from audit.progress import Step, last_step
from audit.provenance import json_text
from audit.records import Record

_REQUEST, _STATE, _CANCEL, _PROGRESS = "request.json", "state.json", "cancel", "progress"
_TOLD_BYTES = 1 << 26
_TAIL_BYTES = 1 << 14
_RECORD_BYTES = 1 << 20
_Kind = TypeVar("_Kind", bound=Record)


class JobFolder:
    """One job's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stdout, self.stderr = path / "stdout", path / "stderr"
        self.progress_file = path / _PROGRESS

    @property
    def id(self) -> str:
        """The job's name."""
        return self.path.name

    def request(self) -> JobRequest:
        """What is wanted. Raises UnreadableError where that can not be told any more."""
        found = _read(self.path / _REQUEST, JobRequest)
        if found is None:
            raise UnreadableError(
                "what this job was asked for can not be read",
                hint="ask again; its folder may be removed",
                where=self.path,
            )
        return found

    def write_request(self, request: JobRequest) -> None:
        """Say what is wanted, once."""
        _write(self.path / _REQUEST, request)

    def state(self) -> JobState | None:
        """What became of it; None while it waits."""
        return _read(self.path / _STATE, JobState)

    def write_state(self, state: JobState) -> None:
        """For the worker: say how far it is."""
        _write(self.path / _STATE, state)

    def cancel(self) -> None:
        """Say that it is not wanted any more."""
        (self.path / _CANCEL).touch()

    @property
    def cancelled(self) -> bool:
        """Whether someone said so."""
        return (self.path / _CANCEL).exists()

    def step(self) -> Step | None:
        """Where the audit is."""
        return last_step(self.progress_file)

    def told(self) -> bytes:
        """What the audit wrote on stdout: one JSON document, if it came to that."""
        with contextlib.suppress(OSError), self.stdout.open("rb") as stream:
            return stream.read(_TOLD_BYTES)
        return b""

    def complaint(self) -> str:
        """The last line that the audit wrote on stderr; empty where there is none."""
        with contextlib.suppress(OSError), self.stderr.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = stream.read(_TAIL_BYTES).decode(errors="replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ""


def _read(path: Path, kind: type[_Kind]) -> _Kind | None:
    try:
        with path.open("rb") as stream:
            return kind.model_validate_json(stream.read(_RECORD_BYTES))
    except (OSError, ValidationError):
        return None


def _write(path: Path, record: Record) -> None:
    """Whole or not at all. Not `atomic_path`: a state need not outlive a loss of power."""
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(json_text(record.model_dump(mode="json")), encoding="utf-8")
    temporary.replace(path)
