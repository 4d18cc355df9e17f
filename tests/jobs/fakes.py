"""A worker whose audits are fakes; `python -m tests.jobs.fakes JOBS` is one as a process."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from audit.jobs import Job, JobQueue, JobRequest, Upload
from audit.jobs.worker import work

FAKE = Path(__file__).with_name("fake_audit.py")
PATIENCE = 20.0


def fake_command(request: JobRequest) -> list[str]:
    """The log lies in what the request calls its ledger."""
    return [sys.executable, str(FAKE), request.ref, request.ledger]


def run_all(queue: JobQueue) -> None:
    """Work in this process until nothing is open."""
    work(queue.folder, fake_command)


def add(queue: JobQueue, what: str, log: Path, uploads: Sequence[Upload] = ()) -> str:
    """Submit a job that does `what`."""
    return queue.submit(uploads, request=lambda folder: {"ledger": str(log), "ref": what})


def lines(log: Path) -> list[list[str]]:
    """What the fakes noted."""
    return [line.split() for line in log.read_text().splitlines()] if log.exists() else []


def until(holds: Callable[[], object], patience: float = PATIENCE) -> None:
    """Wait, but not for ever."""
    end = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def a_worker(folder: Path) -> subprocess.Popen[bytes]:
    """A worker with fakes, as a process of its own."""
    return subprocess.Popen([sys.executable, "-m", "tests.jobs.fakes", str(folder)])


def newest(queue: JobQueue) -> Job:
    return queue.jobs()[0]


if __name__ == "__main__":
    work(Path(sys.argv[1]), fake_command)
