"""The queue: order, one at a time, cancel, crash, kill, restart, several workers at once."""

from __future__ import annotations

import os
import platform
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from audit.errors import BadUsageError, NotFoundError
from audit.jobs import JobQueue, JobState
from audit.jobs import queue as queue_module
from audit.jobs.folder import JobFolder
from audit.jobs.locking import queue_lock
from audit.jobs.process import born, wait_or_end
from audit.jobs.worker import WRITING, next_job
from audit.progress import Step
from tests.jobs.fakes import a_worker, add, lines, newest, run_all, until


@pytest.fixture
def queue(tmp_path: Path) -> JobQueue:
    """A queue that starts no worker by itself."""
    return JobQueue(tmp_path / "jobs", start=lambda folder: None)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def working(queue: JobQueue) -> Iterator[None]:
    """A worker in a thread, from the first job until nothing is open."""
    done = threading.Event()

    def loop() -> None:
        while not done.is_set():
            if next_job(queue.folder) is not None:
                run_all(queue)
            time.sleep(0.02)

    thread = threading.Thread(target=loop)
    thread.start()
    yield
    done.set()
    thread.join()


def test_jobs_run_one_after_the_other_in_their_order(queue: JobQueue, log: Path) -> None:
    names = [add(queue, what, log) for what in ("ok1", "ok2", "ok3")]
    waiting = queue.jobs()
    assert [job.id for job in waiting] == names[::-1] and len(set(names)) == 3
    assert [(job.status, job.ahead) for job in waiting] == [
        ("queued", 2), ("queued", 1), ("queued", 0),
    ]  # fmt: skip
    run_all(queue)
    told = [line[:2] for line in lines(log)]
    assert told == [[word, what] for what in ("ok1", "ok2", "ok3") for word in ("begin", "end")]
    for job, what in zip(queue.jobs(), ("ok3", "ok2", "ok1"), strict=True):
        assert job.status == "done" and job.state is not None and job.ahead == 0
        assert (job.state.run, job.state.exit_code) == (f"run-of-{what}", 0)
        assert job.state.ended is not None and job.error is None


def test_a_run_that_its_gate_failed_is_done(queue: JobQueue, log: Path) -> None:
    add(queue, "gated", log)
    run_all(queue)
    state = newest(queue).state
    assert state is not None and (state.status, state.run, state.exit_code) == ("done", "gated", 1)


@pytest.mark.parametrize(
    ("what", "message", "hint"),
    [
        ("refused", "no head [x.gguf]", "give one"),
        ("crash", "exit code 1: RuntimeError: boom", "at the terminal"),
        ("killed", "SIGKILL", "free memory"),
        ("terminated", "ended by SIGTERM", "at the terminal"),
        ("silent", "exit code 5 and said nothing", "at the terminal"),
    ],
)
def test_what_fails_says_why_and_blocks_nothing(
    queue: JobQueue, log: Path, what: str, message: str, hint: str
) -> None:
    add(queue, what, log)
    add(queue, "ok", log)
    run_all(queue)
    after, failed = queue.jobs()
    assert after.status == "done" and failed.status == "failed" and failed.error is not None
    assert message in failed.error.message and hint in failed.error.hint


def test_a_waiting_job_is_cancelled_before_it_begins(queue: JobQueue, log: Path) -> None:
    name = add(queue, "ok", log)
    queue.cancel(name)
    assert newest(queue).status == "cancelled"
    run_all(queue)
    assert newest(queue).status == "cancelled" and lines(log) == []
    with pytest.raises(NotFoundError, match="no job 'nothing'"):
        queue.cancel("nothing")


@pytest.mark.usefixtures("working")
def test_a_running_job_shows_where_it_is_and_is_interrupted(queue: JobQueue, log: Path) -> None:
    name = add(queue, "hang", log)
    last = add(queue, "ok", log)
    until(lambda: queue.find(name).step)
    running = queue.find(name)
    assert running.status == "running" and running.step == Step("compare on code", 3, 4)
    assert running.step.share == 0.75 and queue.find(last).ahead == 1
    queue.cancel(name)
    until(lambda: queue.find(last).status == "done")
    ended = queue.find(name)
    assert ended.status == "cancelled" and ended.state is not None and ended.error is None
    assert ended.state.exit_code == 130, "it was interrupted, not killed"
    queue.cancel(name)
    assert queue.find(name) == ended


def test_who_does_not_listen_is_killed(log: Path) -> None:
    from subprocess import Popen
    from sys import executable

    from tests.jobs.fakes import FAKE

    child = Popen([executable, str(FAKE), "stubborn", str(log)], start_new_session=True)
    until(lambda: len(lines(log)) == 2)
    wait_or_end(lambda: child.poll() is None, lambda: True, child.pid, grace_seconds=0.2)
    assert child.wait() == -signal.SIGKILL


def test_a_run_that_was_finished_counts_though_it_was_cancelled(queue: JobQueue, log: Path) -> None:
    """The run is in the ledger by then, and must be found."""
    from audit.jobs.ending import ended

    begun = JobState(status="running", started="", host="h")
    found = ended(begun, b'{"run": "abc", "candidates": []}', "", 0, unwanted=True)
    assert (found.status, found.run) == ("done", "abc")
    for told in (b'{"run": "abc", "cand', b"[1]", b'{"error": 1}', b"\xff", b"[" * 100_000):
        assert ended(begun, told, "", 130, unwanted=True).status == "cancelled"
        assert ended(begun, told, "", 130, unwanted=False).status == "failed"


def test_two_workers_never_run_two_jobs_at_once(queue: JobQueue, log: Path) -> None:
    for i in range(6):
        add(queue, f"ok{i}", log)
    workers = [a_worker(queue.folder) for _ in range(3)]
    assert [worker.wait(30) for worker in workers] == [0, 0, 0]
    told = [line[:2] for line in lines(log)]
    assert told == [[word, f"ok{i}"] for i in range(6) for word in ("begin", "end")]
    assert {job.status for job in queue.jobs()} == {"done"}


def test_waking_starts_a_worker_only_where_nobody_works(tmp_path: Path, log: Path) -> None:
    started: list[Path] = []
    first = JobQueue(tmp_path / "jobs", start=started.append)
    second = JobQueue(tmp_path / "jobs", start=started.append)
    second.wake()
    assert started == [], "there is nothing to do, not even a folder"
    with_lock = add(first, "ok", log)
    assert started == [first.folder]
    with queue_lock(first.folder) as held:
        assert held
        add(second, "ok", log)
        second.wake()
        assert len(started) == 1
    second.wake()
    assert len(started) == 2
    run_all(first)
    second.wake()
    assert len(started) == 2 and first.find(with_lock).status == "done"


def test_the_next_worker_takes_over_what_a_killed_one_left(queue: JobQueue, log: Path) -> None:
    """The audit lives on, is not begun a second time, and its result counts."""
    name = add(queue, "slow", log)
    worker = a_worker(queue.folder)
    until(lambda: lines(log) and (queue.find(name).state or JobState).pid)
    worker.kill()
    worker.wait()
    assert queue.find(name).status == "running"
    run_all(queue)
    state = queue.find(name).state
    assert state is not None and (state.status, state.run) == ("done", "slow")
    assert [line[0] for line in lines(log)] == ["begin", "end"]


def test_an_audit_that_died_with_its_worker_is_told_so(queue: JobQueue, log: Path) -> None:
    name = add(queue, "hang", log)
    worker = a_worker(queue.folder)
    until(lambda: queue.find(name).step and (queue.find(name).state or JobState).pid)
    worker.kill()
    worker.wait()
    state = queue.find(name).state
    assert state is not None and state.pid is not None
    os.kill(state.pid, signal.SIGKILL)
    add(queue, "ok", log)
    run_all(queue)
    after, lost = queue.jobs()
    assert after.status == "done" and lost.status == "failed" and lost.error is not None
    assert "while nobody watched it" in lost.error.message


def test_a_taken_over_audit_can_be_cancelled(queue: JobQueue, log: Path) -> None:
    name = add(queue, "hang", log)
    worker = a_worker(queue.folder)
    until(lambda: queue.find(name).step and (queue.find(name).state or JobState).pid)
    worker.kill()
    worker.wait()
    queue.cancel(name)
    run_all(queue)
    job = queue.find(name)
    assert job.status == "cancelled" and job.state is not None
    until(lambda: job.state and job.state.pid and born(job.state.pid) is None)


@pytest.mark.parametrize("changes", [
    {"pid": os.getpid(), "born": "another time"},
    {"pid": os.getpid(), "born": born(os.getpid()), "host": "another machine"},
    {"pid": None, "born": None},
    {"pid": 2**22 + 1, "born": "1"},
])  # fmt: skip
def test_a_process_that_only_has_the_same_pid_is_let_alone(
    queue: JobQueue, log: Path, changes: dict[str, object]
) -> None:
    """Neither waited for nor signalled, though the job is cancelled too: it would end this test."""
    name = add(queue, "ok", log)
    begun = {"status": "running", "started": "then", "host": platform.node()}
    folder = JobFolder(queue.folder / name)
    folder.write_state(JobState.model_validate(begun | changes))
    folder.cancel()
    run_all(queue)
    assert queue.find(name).status == "cancelled" and lines(log) == []


def test_born_tells_one_process_from_the_next(queue: JobQueue, log: Path) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    until(lambda: born(child) is None)  # ended, and not yet collected
    os.waitpid(child, 0)
    assert born(child) is None and born(os.getpid()) == born(os.getpid()) is not None


def test_damaged_and_half_written_jobs_block_nothing(queue: JobQueue, log: Path) -> None:
    names = [add(queue, "ok", log) for _ in range(4)]
    (queue.folder / names[0] / "request.json").write_text('{"id": "x"')
    (queue.folder / names[1] / "request.json").unlink()
    (queue.folder / names[2] / "state.json").write_bytes(b"\x00")
    half = queue.folder / f"{WRITING}x"
    half.mkdir()
    (queue.folder / "notes.txt").write_text("not a job")
    assert [job.id for job in queue.jobs()] == names[::-1]
    run_all(queue)
    assert [job.status for job in queue.jobs()] == ["done", "done", "failed", "failed"]
    failed = queue.find(names[0])
    assert failed.request is None and failed.error is not None
    assert "can not be read" in failed.error.message
    assert half.exists(), "its dashboard may still be writing"
    os.utime(half, (0, 0))
    add(queue, "ok", log)
    run_all(queue)
    assert not half.exists()


def test_the_oldest_are_forgotten_and_the_open_never(
    queue: JobQueue, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_module, "KEPT", 2)
    ended = [add(queue, "silent", log) for _ in range(3)]
    run_all(queue)
    open_ = [add(queue, "ok", log) for _ in range(3)]
    assert [job.id for job in queue.jobs()] == [*open_[::-1], *ended[:0:-1]]


def test_a_folder_that_can_not_be_written_is_told(tmp_path: Path, log: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    queue = JobQueue(tmp_path / "file" / "jobs", start=lambda folder: None)
    assert queue.jobs() == []
    with pytest.raises(BadUsageError, match="can not be written") as caught:
        add(queue, "ok", log)
    assert caught.value.hint
