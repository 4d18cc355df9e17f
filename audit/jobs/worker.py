"""The worker of one queue: runs its jobs one after the other, and ends when there is none left.

A process of its own (`python -m audit.jobs`), so that audits go on while dashboards come and go.
Only one can be: the lock.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from audit.errors import AuditError
from audit.jobs.ending import ended
from audit.jobs.folder import JobFolder
from audit.jobs.locking import queue_lock
from audit.jobs.process import born, own_environment, python_module, wait_or_end
from audit.jobs.records import JobError, JobRequest, JobState
from audit.progress import ENVIRONMENT as PROGRESS
from audit.provenance import now_utc

WRITING = ".writing-"
"""Beginning of the name of a job that is being submitted."""
_STALE_SECONDS = 3600.0
Command = Callable[[JobRequest], list[str]]


def audit_command(request: JobRequest) -> list[str]:
    """The process that does what is wanted."""
    return python_module("audit", *request.arguments())


def work(queue: Path, command: Command = audit_command) -> None:
    """Run all jobs of a queue. Does nothing where another worker is at it.

    Args:
        command: what to run for a request; for tests.
    """
    while True:
        with queue_lock(queue) as held:
            if not held:
                return
            _remove_leftovers(queue)
            while (job := next_job(queue)) is not None:
                _settle(job, command)
        # Whoever added a job while the lock was held has started no worker for it.
        if next_job(queue) is None:
            return


def folders(queue: Path) -> list[JobFolder]:
    """All jobs, the first one first."""
    try:
        found = sorted(path for path in queue.iterdir() if path.is_dir())
    except OSError:
        return []
    return [JobFolder(path) for path in found if not path.name.startswith(".")]


def next_job(queue: Path) -> JobFolder | None:
    """The first job that has not come to its end."""
    for job in folders(queue):
        state = job.state()
        if state is None or state.status == "running":
            return job
    return None


def _settle(job: JobFolder, command: Command) -> None:
    """Bring one job to its end: run it, or take it over from a worker that died."""
    begun = job.state()
    if begun is not None:
        _take_over(job, begun)
        return
    begun = JobState(status="running", started=now_utc(), host=platform.node())
    if job.cancelled:
        job.write_state(begun.model_copy(update={"status": "cancelled", "ended": begun.started}))
        return
    job.write_state(begun)
    try:
        _run(job, begun, command(job.request()))
    except (AuditError, OSError) as error:
        told = JobError(message=f"the audit could not be started: {error}")
        failed = {"status": "failed", "ended": now_utc(), "error": told}
        job.write_state(begun.model_copy(update=failed))


def _run(job: JobFolder, begun: JobState, command: list[str]) -> None:
    environment = own_environment(**{PROGRESS: str(job.progress_file)})
    with job.stdout.open("wb") as out, job.stderr.open("wb") as err:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment,
            start_new_session=True,
        )  # fmt: skip
    begun = begun.model_copy(update={"pid": child.pid, "born": born(child.pid)})
    job.write_state(begun)
    wait_or_end(lambda: child.poll() is None, lambda: job.cancelled, child.pid)
    _end(job, begun, child.wait())


def _take_over(job: JobFolder, begun: JobState) -> None:
    """A worker died over this job. Its audit may live on: then wait for it as for our own."""
    pid = begun.pid
    if pid is not None and begun.born is not None and begun.host == platform.node():
        wait_or_end(lambda: born(pid) == begun.born, lambda: job.cancelled, pid)
    _end(job, begun, None)


def _end(job: JobFolder, begun: JobState, exit_code: int | None) -> None:
    job.write_state(ended(begun, job.told(), job.complaint(), exit_code, unwanted=job.cancelled))


def _remove_leftovers(queue: Path) -> None:
    """What dashboards left that were killed while a job was submitted."""
    for path in queue.glob(f"{WRITING}*"):
        if time.time() - path.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(path, ignore_errors=True)
