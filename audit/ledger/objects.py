"""A ledger on an object store or a far file system, through fsspec: s3://, gs://, memory://, …

No rename is needed: each file is one put, which such stores show whole or not at all, and a run's
table is put before its document. On far file systems whose puts are not atomic (sftp) a document
cut short by a crash is reported as unreadable, never taken for a run.
"""

from __future__ import annotations

import posixpath
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from audit.errors import AuditError, BadUsageError, MissingExtraError, UnreadableError, first_line
from audit.ledger.store import WRITING, Store


class ObjectStore(Store):
    """Files under one URL."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._fs, self._root = _connect(url)

    def where(self, name: str = "") -> str:
        return f"{self._url}/{name}" if name else self._url

    def children(self, folder: str) -> list[str]:
        with self._told(folder):
            self._fs.invalidate_cache()  # other writers add files that a cached listing lacks
            try:
                found = self._fs.ls(self._path(folder), detail=False)
            except FileNotFoundError:
                return []
            return sorted({posixpath.basename(path.rstrip("/")) for path in found} - {""})

    def exists(self, name: str) -> bool:
        with self._told(name):
            return bool(self._fs.isfile(self._path(name)))

    def open(self, name: str) -> BinaryIO:
        with self._told(name):
            return cast(BinaryIO, self._fs.open(self._path(name), "rb"))

    def write(self, name: str, content: bytes) -> None:
        self._put(name, lambda path: self._fs.pipe_file(path, content))

    @contextmanager
    def staging(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="audit-ledger-") as folder:
            yield Path(folder)

    def publish(self, staged: Path, folder: str, marker: str) -> None:
        if self.exists(f"{folder}/{marker}"):
            return
        for staged_file in sorted(staged.iterdir(), key=lambda path: path.name == marker):
            upload = partial(self._fs.put_file, str(staged_file))
            self._put(f"{folder}/{staged_file.name}", upload)

    def remove(self, name: str) -> None:
        with self._told(name):
            if self._fs.exists(self._path(name)):
                self._fs.rm(self._path(name), recursive=True)

    def modified(self, name: str) -> float:
        with self._told(name):
            try:
                return float(self._fs.modified(self._path(name)).timestamp())
            except (NotImplementedError, KeyError, OSError):  # such stores have no folders
                return 0.0

    def check_writable(self) -> None:
        probe = f"runs/{WRITING}{uuid.uuid4().hex}"
        try:
            self.write(probe, b"")
            self.remove(probe)
        except AuditError as error:
            raise BadUsageError(
                f"the ledger can not be written: {error.message}",
                hint="choose another place with --ledger or AUDIT_LEDGER",
                where=self.where(),
            ) from error

    def _path(self, name: str) -> str:
        return posixpath.join(self._root, name) if name else self._root

    def _put(self, name: str, put: Callable[[str], None]) -> None:
        """Put one file. Where the place has folders they are made, but never the root: a bucket
        with a mistyped name must not come into being."""
        path = self._path(name)
        with self._told(name):
            try:
                put(path)
            except FileNotFoundError:
                if not self._fs.exists(self._root):
                    raise BadUsageError(
                        "the ledger can not be written: this place does not exist",
                        hint="make the bucket or folder first, or check the URL",
                        where=self.where(),
                    ) from None
                self._fs.makedirs(posixpath.dirname(path), exist_ok=True)
                put(path)

    @contextmanager
    def _told(self, name: str) -> Iterator[None]:
        """Each provider raises errors of its own; all become one kind that says where."""
        try:
            yield
        except (AuditError, FileNotFoundError):
            raise
        except Exception as error:
            raise UnreadableError(
                f"the ledger's place can not be used: {first_line(error)}",
                hint="check the URL, the network and your credentials",
                where=self.where(name),
            ) from error


def _connect(url: str) -> tuple[Any, str]:
    """The file system of a URL and the path in it."""
    import fsspec

    try:
        fs, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise MissingExtraError(
            f"a ledger at {url} needs a library that is not installed: {first_line(error)}",
            hint="for s3:// pip install 'head-audit[s3]'; for others the fsspec package it names",
        ) from error
    except Exception as error:
        raise BadUsageError(
            f"this place is no ledger: {first_line(error)}",
            hint="give a folder, or a URL that fsspec knows such as s3://bucket/ledger",
            where=url,
        ) from error
    return fs, str(root).rstrip("/")
