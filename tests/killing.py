"""Run an `audit` command again and again and kill it at random moments, until one run ends itself.

Each run is a process of its own, started afresh: a fork of a process in which torch was imported
may hang on a lock that nobody holds there. Writing a trace is made slow, as it is for a large one,
so that kills fall into it too.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

SECONDS_TO_WRITE = 0.5
SECONDS_TO_START = 300.0


@dataclass(frozen=True)
class Killed:
    """How the last run ended, how often one was killed, how many hidden files the kills left."""

    code: int
    kills: int
    left: int


def kill_until_done(args: list[str], folder: Path, *, seed: int, kills: int) -> Killed:
    """Kills `kills` runs that write into the folder, then lets one end."""
    rng, done, left = random.Random(seed), 0, 0
    while True:
        child = subprocess.Popen([sys.executable, "-m", "tests.killing", *args])
        if done < kills:
            _kill(child, folder, rng)
        code = child.wait(SECONDS_TO_START)
        if code >= 0:
            return Killed(code, done, left)
        done += 1
        left += sum(name.startswith(".") for name in _names(folder))


def _kill(child: subprocess.Popen[bytes], folder: Path, rng: random.Random) -> None:
    """At a moment from anywhere in the child's work, unless it ends before."""
    before, deadline = _names(folder), time.monotonic() + SECONDS_TO_START
    while child.poll() is None and not _names(folder) - before:
        if time.monotonic() > deadline:
            child.kill()
            raise TimeoutError(f"nothing was written into {folder} in {SECONDS_TO_START:.0f} s")
        time.sleep(0.02)
    try:
        child.wait(rng.random() * 2 * SECONDS_TO_WRITE)
    except subprocess.TimeoutExpired:
        child.kill()


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def _slow_main(args: list[str]) -> None:
    import audit.traces.trace as trace
    from audit.cli import main

    save = trace.save_file

    def slow(tensors: object, path: object, metadata: object) -> None:
        save(tensors, path, metadata=metadata)
        time.sleep(SECONDS_TO_WRITE)

    trace.save_file = slow
    main(args)


if __name__ == "__main__":
    _slow_main(sys.argv[1:])
