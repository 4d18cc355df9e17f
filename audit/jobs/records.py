"""What a job is: its request and its state, as the files of its folder hold them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from audit.records import Record

Status = Literal["running", "done", "failed", "cancelled"]
"""Of a job that has begun; one without a state waits."""


class JobRequest(Record):
    """One audit that is wanted. All paths are absolute."""

    id: str
    created: str
    """UTC, ISO 8601."""
    ledger: str
    """Folder or URL, as `--ledger` takes it."""
    ref: str
    cands: tuple[str, ...] = ()
    trims: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()
    head: str | None = None
    policy: str | None = None
    kl: bool = False

    @property
    def title(self) -> str:
        """What is compared with what, by file names."""
        cands = ", ".join(Path(path).name for path in (*self.cands, *self.trims))
        return f"{cands} against {Path(self.ref).name}"

    def without_folders(self, text: str) -> str:
        """A sentence about its files as whoever asked knows them: without the server's folders."""
        paths = (self.ref, *self.cands, *self.trims, *self.traces, self.policy or "")
        folders = {str(Path(path).parent) for path in paths if Path(path).is_absolute()} - {"/"}
        for folder in sorted(folders, key=len, reverse=True):
            text = text.replace(f"{folder}/", "").replace(folder, "its folder")
        return text

    def arguments(self) -> list[str]:
        """The command line of `audit` that does it."""
        options = ["--json", "--ledger", self.ledger]
        options += [part for path in self.traces for part in ("--trace", path)]
        options += [part for path in self.trims for part in ("--trim", path)]
        if self.head:
            options += ["--head", self.head]
        if self.policy:
            options += ["--gate", self.policy]
        if self.kl:
            options += ["--kl"]
        return ["compare", *options, "--", self.ref, *self.cands]


class JobError(Record):
    """Why a job failed, as `--json` tells it."""

    message: str
    hint: str = ""


class JobState(Record):
    """How far a job has come."""

    status: Status
    started: str
    """UTC, ISO 8601."""
    host: str
    """Name of the machine that runs it: a pid means something on that one only."""
    pid: int | None = None
    born: str | None = None
    """When the process of that pid started, as the system counts; pids are used again."""
    ended: str | None = None
    run: str | None = None
    """The run that it made."""
    exit_code: int | None = None
    error: JobError | None = None
