"""The queue as a dashboard sees it: submit, look, cancel. Never waits for an audit."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from audit.errors import AuditError, BadUsageError, NotFoundError
from audit.jobs.folder import JobFolder
from audit.jobs.locking import queue_lock
from audit.jobs.process import own_environment, python_module
from audit.jobs.records import JobError, JobRequest, JobState
from audit.jobs.uploads import FOLDER, Upload, safe_names, store
from audit.jobs.worker import WRITING, folders, next_job
from audit.progress import Step
from audit.provenance import now_utc

__all__ = ["Job", "JobQueue", "Upload"]

KEPT = 100
"""Ended jobs that a queue remembers; the runs they made stay in the ledger."""
_LOG = "worker.log"
_SECONDS_AFTER_FAILURE = 5.0


@dataclass(frozen=True, slots=True)
class Job:
    """One job at one moment."""

    id: str
    request: JobRequest | None
    """None where it can not be read."""
    state: JobState | None
    cancelled: bool
    step: Step | None
    """Where the audit is; None before it says so."""
    ahead: int
    """Jobs that come first."""

    @property
    def status(self) -> str:
        """queued, running, cancelling, done, failed or cancelled."""
        if self.state is None:
            return "cancelled" if self.cancelled else "queued"
        if self.state.status == "running" and self.cancelled:
            return "cancelling"
        return self.state.status

    @property
    def is_open(self) -> bool:
        """It has not come to its end."""
        return self.status in ("queued", "running", "cancelling")

    @property
    def error(self) -> JobError | None:
        """Why it failed; files by their names."""
        told = self.state.error if self.state else None
        if told is None or self.request is None:
            return told
        short = self.request.without_folders
        return JobError(message=short(told.message), hint=short(told.hint))


class JobQueue:
    """The jobs in one folder.

    Args:
        start: starts a worker for the folder; for tests.
    """

    def __init__(self, folder: Path, start: Callable[[Path], None] | None = None) -> None:
        self.folder = folder
        self._start = start or _start_worker

    def submit(
        self, uploads: Sequence[Upload] = (), *, request: Callable[[Path], dict[str, Any]]
    ) -> str:
        """Add an audit and return its id.

        Args:
            uploads: files that belong to it.
            request: gives the fields of the JobRequest; called with the folder where the uploads
                will be, under their harmless names.

        Raises:
            BadUsageError: an upload is refused, or nothing can be written here.
        """
        made = datetime.now(UTC)
        name = f"{made:%Y%m%d-%H%M%S-%f}-{secrets.token_hex(3)}"
        final = self.folder / name
        safe_names(uploads)
        fields = request(final / FOLDER)
        wanted = JobRequest(id=name, created=now_utc(), **fields)
        self._publish(wanted, uploads, final)
        self._forget()
        self.wake()
        return name

    def _publish(self, wanted: JobRequest, uploads: Sequence[Upload], final: Path) -> None:
        """A job appears whole or not at all."""
        temporary: Path | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(dir=self.folder, prefix=WRITING))
            store(uploads, temporary / FOLDER)
            JobFolder(temporary).write_request(wanted)
            temporary.rename(final)
        except OSError as error:
            raise BadUsageError(
                f"the queue of audits can not be written: {error.strerror}",
                hint="give the dashboard a ledger that it may write",
                where=self.folder,
            ) from error
        finally:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)

    def jobs(self) -> list[Job]:
        """All jobs, the newest first."""
        out: list[Job] = []
        ahead = 0
        for folder in folders(self.folder):
            job = _look(folder, ahead)
            ahead += job.is_open
            out.append(job)
        return out[::-1]

    def find(self, name: str) -> Job:
        """One job. Raises NotFoundError."""
        for job in self.jobs():
            if job.id == name:
                return job
        raise NotFoundError(f"there is no job {name!r}", hint="it may have been forgotten since")

    def cancel(self, name: str) -> None:
        """Say that a job is not wanted any more; one that has ended stays as it is.

        Raises:
            NotFoundError: there is no such job.
        """
        job = self.find(name)
        if job.is_open:
            JobFolder(self.folder / job.id).cancel()
        self.wake()

    def wake(self) -> None:
        """Start a worker where there is work and nobody at it. Cheap: call it whenever you look.

        Raises:
            BadUsageError: nothing can be written here, or the system has no locks.
        """
        if next_job(self.folder) is None:
            return
        with queue_lock(self.folder) as free:
            pass
        if free:
            self._start(self.folder)

    def _forget(self) -> None:
        """Remove the oldest ended jobs beyond those that are kept."""
        ended = [job for job in self.jobs() if not job.is_open and job.state is not None]
        for job in ended[KEPT:]:
            shutil.rmtree(self.folder / job.id, ignore_errors=True)


class _Starter:
    """Starts workers as processes of their own, and collects those that have ended."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []
        self._failed_at = -_SECONDS_AFTER_FAILURE

    def __call__(self, folder: Path) -> None:
        if any(one.poll() for one in self._running):
            self._failed_at = time.monotonic()
        self._running = [one for one in self._running if one.poll() is None]
        # One that can not even start must not be started again at every look.
        if time.monotonic() - self._failed_at < _SECONDS_AFTER_FAILURE:
            return
        with (folder / _LOG).open("ab") as log:
            process = subprocess.Popen(
                python_module("audit.jobs", str(folder)), stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env=own_environment(), start_new_session=True,
            )  # fmt: skip
        self._running.append(process)


_start_worker = _Starter()
"""One for the process: a queue is made anew whenever a page is drawn."""


def _look(folder: JobFolder, ahead: int) -> Job:
    state = folder.state()
    try:
        request = folder.request()
    except AuditError:
        request = None
    step = folder.step() if state is not None and state.status == "running" else None
    return Job(folder.id, request, state, folder.cancelled, step, ahead)
