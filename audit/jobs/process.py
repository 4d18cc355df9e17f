"""Processes by pid and start time, and how one is asked to end.

A pid alone names nothing: after a restart another process may have it. Linux tells start times in
/proc, elsewhere `ps` does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

GRACE_SECONDS = 10.0
"""From asking a process to end until it is killed."""
_POLL_SECONDS = 0.1
_STATE, _STARTED = 0, 19
"""Places in /proc/PID/stat, counted after the command's name."""


def born(pid: int) -> str | None:
    """When this process started, in a form that only serves to be compared; None if it is gone.

    One that has ended and is not yet collected by its parent counts as gone.
    """
    if Path("/proc/self/stat").exists():
        try:
            # The name stands in brackets and may itself hold brackets and spaces.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (OSError, UnicodeDecodeError):
            return None
        return None if fields[_STATE] in "ZX" else fields[_STARTED]
    told = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or None


def python_module(module: str, *args: str) -> list[str]:
    """The command that runs a module; never one that lies in the working folder (`-P`)."""
    return [sys.executable, "-P", "-m", module, *args]


def own_environment(**more: str) -> dict[str, str]:
    """Ours, with the folder of this very package on Python's path."""
    here = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH", ""))))
    return os.environ | {"PYTHONPATH": path} | more


def wait_or_end(
    alive: Callable[[], bool],
    unwanted: Callable[[], bool],
    pid: int,
    grace_seconds: float = GRACE_SECONDS,
) -> None:
    """Wait until a process has ended; once it is `unwanted`, interrupt it, later kill it.

    Args:
        pid: leader of its own process group.
    """
    asked_at: float | None = None
    while alive():
        if asked_at is None and unwanted():
            asked_at = time.monotonic()
            _signal(pid, signal.SIGINT)
        elif asked_at is not None and time.monotonic() - asked_at > grace_seconds:
            _signal(pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
