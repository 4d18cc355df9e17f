"""Hashes, versions and canonical JSON. Imports no torch."""

from __future__ import annotations

import functools
import hashlib
import json
import platform
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO

from audit import __version__

_CHUNK_BYTES = 1 << 22
_SURROGATE = re.compile("[\ud800-\udfff]")
_VERSIONED = ("torch", "numpy", "scipy", "transformers", "safetensors", "gguf")


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes, read in chunks."""
    with path.open("rb") as stream:
        return sha256_stream(stream)


def sha256_stream(stream: BinaryIO) -> str:
    """Hex SHA-256 of what is left in a stream, read in chunks."""
    digest = hashlib.sha256()
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


def vocabulary_sha256(words: Mapping[str, int]) -> str:
    """Hex SHA-256 of the sorted (token, id) pairs: one hash however the vocabulary was stored."""
    pairs = [list(pair) for pair in sorted(words.items())]
    # A GGUF may hold tokens that are half a character.
    text = canonical_json(pairs).encode(errors="backslashreplace")
    return hashlib.sha256(text).hexdigest()


def json_text(value: Any, indent: int | None = 1) -> str:
    """JSON for people, files and `--json`, that can always be written as UTF-8: see `visible`."""
    return visible(json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False))


def sha256_json(value: Any) -> str:
    """Hex SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(visible(canonical_json(value)).encode()).hexdigest()


def visible(text: str) -> str:
    """JSON text in which bytes of file names that are not UTF-8 read as a backslash and `udcff`."""
    return _SURROGATE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text)


def versions() -> dict[str, str]:
    """Versions of this package, of Python and of the libraries that compute."""
    found = {"head-audit": __version__, "python": platform.python_version()}
    return found | {name: known for name in _VERSIONED if (known := _version(name))}


# Looking one up parses the metadata of its package, which takes milliseconds.
@functools.cache
def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def now_utc() -> str:
    """The time in UTC as ISO 8601 with seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
