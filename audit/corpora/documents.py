"""A document: what every corpus and every file of a user becomes. Knows no files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Document:
    """One text that is read on its own: no window of it reaches into another document."""

    name: str
    """Its file's path; `#2` is the second document, line or row of that file."""
    text: str


def text_sha256(text: str) -> str:
    """Hex SHA-256 of a text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def content_sha256(files: Mapping[str, str]) -> str:
    """One hash for documents, given the hash of each by its name.

    It is that of what `sha256sum documents/*` prints, so the same text under the same names has
    the same hash whether it lies on disk or was just drawn from a source.
    """
    lines = (f"{files[name]}  documents/{name}\n" for name in sorted(files))
    return hashlib.sha256("".join(lines).encode()).hexdigest()
