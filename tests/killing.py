"""Run an `audit` command again and again and kill it at random moments, until one run ends itself.

    python tests/killing.py SEEDS KILLS FOLDER ARG ...

Each of the SEEDS (as 0,1,2) works in a folder of its own inside FOLDER, which stands for `{}` in
the arguments. A process of its own, because its children are forks of it: everything is imported
once, and no thread of torch runs yet. Writing a trace is made slow, as it is for a large one, so
that kills fall into it too. Prints how often it killed, and how many hidden files that left.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import audit.traces.capture
import audit.traces.trace
import audit.traces.verifier
from audit.cli import main

SECONDS_TO_WRITE = 0.5
_save_file = audit.traces.trace.save_file


def _slow(tensors: object, path: object, metadata: object) -> None:
    _save_file(tensors, path, metadata=metadata)
    time.sleep(SECONDS_TO_WRITE)


def _start(args: list[str]) -> int:
    child = os.fork()
    if child:
        return child
    audit.traces.trace.save_file = _slow
    try:
        main(args)
    except SystemExit as stop:
        os._exit(int(stop.code or 0))
    os._exit(99)


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def _wait_for_work(child: int, folder: Path) -> int | None:
    """Until the child writes something into the folder; its status if it ends before."""
    before = _names(folder)
    while not _names(folder) - before:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.02)
    return None


def _killed(child: int, folder: Path, rng: random.Random) -> int:
    """The child's wait status: killed at a moment from anywhere in its work, or ended before."""
    if (status := _wait_for_work(child, folder)) is not None:
        return status
    time.sleep(rng.random() * 2 * SECONDS_TO_WRITE)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def run(seed: int, most: int, folder: Path, args: list[str]) -> dict[str, int]:
    rng, kills, left = random.Random(seed), 0, 0
    while True:
        child = _start(args)
        status = _killed(child, folder, rng) if kills < most else os.waitpid(child, 0)[1]
        if not os.WIFSIGNALED(status):
            return {"code": os.waitstatus_to_exitcode(status), "kills": kills, "left": left}
        kills += 1
        left += sum(name.startswith(".") for name in _names(folder))


def _run_all(seeds: str, most: str, folder: str, *args: str) -> list[dict[str, int]]:
    told = []
    for seed in map(int, seeds.split(",")):
        place = Path(folder) / str(seed)
        told.append(run(seed, int(most), place, [arg.replace("{}", str(place)) for arg in args]))
    return told


if __name__ == "__main__":
    print(json.dumps(_run_all(*sys.argv[1:])))
