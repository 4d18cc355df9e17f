"""The lock on a queue: whoever holds it is the one worker; it ends with the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from audit.errors import BadUsageError

try:
    import fcntl
except ImportError:
    _CAN_LOCK = False  # as on Windows
else:
    _CAN_LOCK = True
_NAME = "worker.lock"


@contextmanager
def queue_lock(folder: Path) -> Iterator[bool]:
    """Whether the lock of the queue in `folder` could be taken; if so, it is held in the block.

    Raises:
        BadUsageError: there can be no lock here.
    """
    if not _CAN_LOCK:
        raise BadUsageError(
            "background audits need file locks, which this system lacks",
            hint="run the audit at the terminal: audit compare REF CAND",
        )
    try:
        handle = os.open(folder / _NAME, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise BadUsageError(
            f"the queue of audits can not be written: {error.strerror}",
            hint="give the dashboard a ledger that it may write",
            where=folder,
        ) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)
