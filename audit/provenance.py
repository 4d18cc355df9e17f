"""Hashes, versions, canonical JSON and atomic writes. Imports no torch."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from audit import __version__
from audit.errors import BadUsageError

_CHUNK_BYTES = 1 << 22
_NAME_BYTES = 200
_VERSIONED = ("torch", "numpy", "scipy", "transformers", "safetensors", "gguf")


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes, read in chunks."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def sha256_files(paths: list[Path]) -> str:
    """One hash for several files: of their names and hashes, as `sha256sum` would list them."""
    lines = (f"{sha256_file(path)}  {path.name}\n" for path in sorted(paths, key=lambda p: p.name))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def canonical_json(value: Any) -> str:
    """JSON whose text depends on the content only: sorted keys, no spaces, never NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def versions() -> dict[str, str]:
    """Versions of this package, of Python and of the libraries that compute."""
    found = {"head-audit": __version__, "python": platform.python_version()}
    for name in _VERSIONED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def now_utc() -> str:
    """The time in UTC as ISO 8601 with seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; it becomes `path` only if the block succeeds.

    An exception, Ctrl-C included, removes the temporary file, so nothing half-written stays.

    Raises:
        BadUsageError: there can be no file.
    """
    # A name may be as long as the file system allows, and this one is longer.
    short = os.fsdecode(os.fsencode(path.name)[:_NAME_BYTES])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{short}.", suffix=".part")
    except OSError as error:
        raise BadUsageError(
            f"the file cannot be written: {error.strerror}",
            hint="choose another place",
            where=path,
        ) from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        _apply_umask(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _apply_umask(path: Path) -> None:
    """Give the mode an ordinary new file would have; mkstemp makes it private."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)
