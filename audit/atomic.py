"""Files that appear whole or not at all, whatever ends the process that writes them.

A file is made inside a private folder beside its place, since libraries put temporary files of
their own next to what they write, and is renamed when it is complete. An exception removes the
folder. A killed process can not; but its lock on the folder ends with it, so that the next to
write the same file knows what is left over from what is being written.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from audit.errors import BadUsageError

try:
    import fcntl
except ImportError:
    _CAN_LOCK = False  # as on Windows, where leftovers stay
else:
    _CAN_LOCK = True

_SUFFIX = ".part"
_NAME_BYTES = 200


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary path near `path`; it becomes `path` only if the block succeeds.

    An exception, Ctrl-C included, removes everything temporary, so nothing half-written stays.

    Raises:
        BadUsageError: there can be no file.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path)
        folder, lock = _private_folder(path)
    except OSError as error:
        raise BadUsageError(
            f"the file cannot be written: {error.strerror}", hint="choose another place", where=path
        ) from error
    temporary = folder / path.name
    try:
        yield temporary
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        _apply_umask(temporary)
        temporary.replace(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def remove_leftovers(path: Path) -> None:
    """Remove what killed processes left of `path`; what a living one is writing stays."""
    if not _CAN_LOCK or not path.parent.is_dir():
        return
    for found in path.parent.iterdir():
        if found.name.startswith(_prefix(path)) and found.name.endswith(_SUFFIX):
            with contextlib.suppress(OSError):
                lock = _lock(found)
                shutil.rmtree(found, ignore_errors=True)
                os.close(lock)


def _private_folder(path: Path) -> tuple[Path, int | None]:
    """A new folder beside `path` and the lock on it; None where folders can not be locked."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=_prefix(path), suffix=_SUFFIX))
        if not _CAN_LOCK:
            return folder, None
        try:
            lock = _lock(folder)
        except (BlockingIOError, FileNotFoundError):
            continue  # taken for a leftover before it was locked
        except OSError:
            return folder, None
        if folder.exists():
            return folder, lock
        os.close(lock)


def _lock(folder: Path) -> int:
    """An open handle that holds the folder's lock. Raises OSError where another has it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def _prefix(path: Path) -> str:
    """A name may be as long as the file system allows; the temporary one is longer."""
    return f".{os.fsdecode(os.fsencode(path.name)[:_NAME_BYTES])}."


def _apply_umask(path: Path) -> None:
    """Give the mode an ordinary new file would have; libraries make their own private."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)
