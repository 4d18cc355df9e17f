"""Where the ledger's files lie: a local folder, or any place that fsspec reaches (`objects`).

Every file is written once and whole. A folder of files becomes visible by its marker: on a disk it
is renamed as a whole, on an object store the marker is put last. Knows bytes, not what they mean.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO

from audit.atomic import atomic_path
from audit.errors import BadUsageError

WRITING = ".writing-"
"""Beginning of the name of what is being written; a leftover when its writer was killed."""


class Store(ABC):
    """Files by name, relative to the ledger, with `/` between the parts."""

    @abstractmethod
    def where(self, name: str = "") -> str:
        """The full path or URL, for people."""

    @abstractmethod
    def children(self, folder: str) -> list[str]:
        """Sorted names in a folder; none when it is not there."""

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Whether this file is there."""

    @abstractmethod
    def open(self, name: str) -> BinaryIO:
        """The file for reading. Raises FileNotFoundError."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Write a file whole or not at all."""

    @abstractmethod
    def staging(self) -> AbstractContextManager[Path]:
        """A local folder to prepare files in; whatever is left of it is removed at the end."""

    @abstractmethod
    def publish(self, staged: Path, folder: str, marker: str) -> None:
        """Make the staged files this folder; without its marker the folder does not count.

        A folder that already has the marker stays as it is.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file or folder; what is not there is no error."""

    @abstractmethod
    def modified(self, name: str) -> float:
        """When a file or folder was written, seconds since 1970; 0 where nothing tells."""

    @abstractmethod
    def check_writable(self) -> None:
        """Raises BadUsageError when nothing can be written here."""

    def read(self, name: str) -> bytes:
        """The whole file. Raises FileNotFoundError."""
        with self.open(name) as stream:
            return stream.read()

    def age(self, name: str) -> float:
        """Seconds since a file, or the newest file right in a folder, was written."""
        if self.exists(name):
            return time.time() - self.modified(name)
        inside = [self.modified(f"{name}/{child}") for child in self.children(name)]
        return time.time() - max([*inside, self.modified(name)])


class LocalStore(Store):
    """A folder on a disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def where(self, name: str = "") -> str:
        return str(self.folder / name)

    def children(self, folder: str) -> list[str]:
        try:
            return sorted(path.name for path in (self.folder / folder).iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise BadUsageError(
                f"the ledger can not be read: {error.strerror}",
                hint="choose another folder with --ledger or AUDIT_LEDGER",
                where=self.folder / folder,
            ) from error

    def exists(self, name: str) -> bool:
        return (self.folder / name).is_file()

    def open(self, name: str) -> BinaryIO:
        return (self.folder / name).open("rb")

    def write(self, name: str, content: bytes) -> None:
        with self._writable(), atomic_path(self.folder / name) as temporary:
            temporary.write_bytes(content)

    @contextmanager
    def staging(self) -> Iterator[Path]:
        runs = self.folder / "runs"
        with self._writable():
            runs.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(dir=runs, prefix=WRITING))
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def publish(self, staged: Path, folder: str, marker: str) -> None:
        target = self.folder / folder
        staged.chmod(0o755)
        for path in staged.iterdir():
            _sync(path)
        _sync(staged)
        try:
            staged.rename(target)
        except OSError:  # something is there already
            if (target / marker).is_file():
                return
            for path in sorted(staged.iterdir(), key=lambda path: path.name == marker):
                path.replace(target / path.name)
        _sync(target.parent)

    def remove(self, name: str) -> None:
        path = self.folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def modified(self, name: str) -> float:
        return (self.folder / name).stat().st_mtime

    def check_writable(self) -> None:
        with self.staging():
            pass

    @contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BadUsageError(
                f"the ledger can not be written: {error.strerror}",
                hint="choose another folder with --ledger or AUDIT_LEDGER",
                where=self.folder,
            ) from error


def _sync(path: Path) -> None:
    """Force a file or a folder's entries to the disk, so that a rename never outlives its bytes."""
    with contextlib.suppress(OSError):  # some file systems sync no folders
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
