"""Corpora made for a test: manifests as TOML text, folders with documents."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from audit.corpora import Corpus, read_corpus

HEAD = """schema = 1
name = "made"
register = "domain_shift"
language = "en"
title = "Made"
description = "Made for a test."
licence = "none"
"""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def stored_toml(documents: dict[str, bytes]) -> str:
    """A manifest of stored text, its hashes computed here by hand."""
    listed = {name: sha256(data) for name, data in sorted(documents.items())}
    lines = "".join(f"{digest}  documents/{name}\n" for name, digest in listed.items())
    files = "".join(f'"{name}" = "{digest}"\n' for name, digest in listed.items())
    return (
        f'{HEAD}source = "a test"\ndocuments = {len(documents)}\n'
        f'sha256 = "{sha256(lines.encode())}"\n[files]\n{files}'
    )


def stored_corpus(folder: Path, documents: dict[str, bytes]) -> Corpus:
    """A folder with these documents and their manifest."""
    (folder / "documents").mkdir(parents=True)
    for name, data in documents.items():
        (folder / "documents" / name).write_bytes(data)
    (folder / "manifest.toml").write_text(stored_toml(documents))
    return read_corpus(folder)


def source_toml(documents: int, source: dict[str, Any], filter_: dict[str, Any] | None = None) -> str:
    """A manifest with a `[source]` table."""
    lines = [HEAD + f"documents = {documents}", "", "[source]"]
    lines += [f"{key} = {_toml(value)}" for key, value in source.items()]
    if filter_:
        lines += ["", "[source.filter]"]
        lines += [f"{key} = {_toml(value)}" for key, value in filter_.items()]
    return "\n".join(lines) + "\n"


def source_corpus(
    folder: Path, documents: int, source: dict[str, Any], filter_: dict[str, Any] | None = None
) -> Corpus:
    """A folder with that manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.toml").write_text(source_toml(documents, source, filter_))
    return read_corpus(folder)


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)
