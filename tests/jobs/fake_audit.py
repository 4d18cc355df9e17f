"""Stands for `audit compare` in tests of the queue: does what its first argument names.

    python fake_audit.py WHAT LOG

Writes when it began and ended into LOG, as `begin|end WHAT pid nanoseconds`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

what, log = sys.argv[1].rpartition("/")[2], Path(sys.argv[2])


def note(word: str) -> None:
    with log.open("a") as stream:
        stream.write(f"{word} {what} {os.getpid()} {time.monotonic_ns()}\n")


def step(name: str, done: int, total: int) -> None:
    with Path(os.environ["AUDIT_PROGRESS"]).open("a") as stream:
        stream.write(json.dumps({"what": name, "done": done, "total": total}) + "\n")


def hang() -> None:
    step("compare on code", 3, 4)
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        print(json.dumps({"error": {"kind": "interrupted", "message": "interrupted"}}))
        sys.exit(130)


note("begin")
if what.startswith("ok"):
    time.sleep(0.1)
    print(json.dumps({"run": f"run-of-{what}", "candidates": []}))
elif what == "gated":
    print(json.dumps({"run": "gated", "candidates": []}))
    sys.exit(1)
elif what == "slow":
    time.sleep(1.0)
    print(json.dumps({"run": "slow", "candidates": []}))
elif what == "refused":
    error = {"kind": "unreadable", "message": "no head", "hint": "give one", "where": "x.gguf"}
    print(json.dumps({"error": error}))
    sys.exit(2)
elif what == "crash":
    raise RuntimeError("boom")
elif what == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
elif what == "terminated":
    os.kill(os.getpid(), signal.SIGTERM)
elif what == "silent":
    sys.exit(5)
elif what == "hang":
    hang()
elif what == "stubborn":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    note("deaf")
    time.sleep(60)
note("end")
