"""Progress for programs: lines of JSON in a file that AUDIT_PROGRESS names.

A bar is for people at a terminal; whoever starts an audit in the background reads these lines. One
line per step, at most a few a second, each whole. They are never needed: a file that can not be
written is refused at the start, and one that fills its disk later is left alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from audit.errors import BadUsageError

ENVIRONMENT = "AUDIT_PROGRESS"
Progress = Callable[[str, int, int], None]
"""Called with (what is being done, steps done, steps in all)."""
_SECONDS_BETWEEN = 0.2
_TAIL_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Step:
    """Where an audit is."""

    what: str
    done: int
    total: int

    @property
    def share(self) -> float:
        """Of what is being done now, from 0 to 1."""
        return min(1.0, max(0.0, self.done / self.total)) if self.total > 0 else 0.0


@contextmanager
def progress_lines(path: Path) -> Iterator[Progress]:
    """A progress callback that appends lines to `path`: {"what": …, "done": …, "total": …}.

    Raises:
        BadUsageError: nothing can be written there.
    """
    try:
        stream = path.open("a", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise BadUsageError(
            f"the progress cannot be written: {error.strerror}",
            hint=f"let {ENVIRONMENT} name a file, or unset it",
            where=path,
        ) from error
    told, at = "", 0.0

    def report(what: str, done: int, total: int) -> None:
        nonlocal told, at
        now = time.monotonic()
        if what == told and done < total and now - at < _SECONDS_BETWEEN:
            return
        told, at = what, now
        with contextlib.suppress(OSError):
            stream.write(json.dumps({"what": what, "done": done, "total": total}) + "\n")
            stream.flush()

    try:
        yield report
    finally:
        with contextlib.suppress(OSError):
            stream.close()


def last_step(path: Path) -> Step | None:
    """The newest whole line of a file of progress; None where there is none yet."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL_BYTES))
            tail = stream.read(_TAIL_BYTES)
    except OSError:
        return None
    for line in reversed(tail.split(b"\n")[:-1]):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            found = json.loads(line)
            return Step(str(found["what"]), int(found["done"]), int(found["total"]))
    return None
