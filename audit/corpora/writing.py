"""Write a corpus: its documents and the manifest that lists them, all or nothing."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from audit.corpora.documents import Document, content_sha256, text_sha256
from audit.corpora.manifest import FILE, Corpus, Manifest
from audit.errors import BadUsageError


def sealed(manifest: Manifest, documents: Sequence[Document]) -> Manifest:
    """The manifest with the hashes and the number of these documents.

    Token counts are dropped: they were those of other text.
    """
    files = {document.name: text_sha256(document.text) for document in documents}
    update = {
        "files": files,
        "sha256": content_sha256(files),
        "documents": len(documents),
        "tokens": {},
    }
    return Manifest.model_validate(manifest.model_dump(by_alias=True) | update)


def write_corpus(manifest: Manifest, documents: Sequence[Document], folder: Path) -> Corpus:
    """Write documents and manifest to a folder that must not exist yet.

    An exception, Ctrl-C included, leaves nothing behind.

    Raises:
        BadUsageError: the folder is there already, or cannot be made.
    """
    check_new_folder(folder)
    manifest = sealed(manifest, documents)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    except OSError as error:
        raise BadUsageError(
            f"{folder} cannot be made: {error.strerror}",
            hint="choose another place with -o",
            where=folder,
        ) from error
    try:
        (temporary / "documents").mkdir()
        for document in documents:
            (temporary / "documents" / document.name).write_bytes(document.text.encode())
        (temporary / FILE).write_text(manifest_toml(manifest), encoding="utf-8")
        temporary.chmod(0o755)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Corpus(manifest, folder)


def check_new_folder(folder: Path) -> None:
    """Raises BadUsageError if something is there already."""
    if folder.exists() or folder.is_symlink():
        raise BadUsageError(
            f"{folder} is there already", hint="choose another place with -o", where=folder
        )


def manifest_toml(manifest: Manifest) -> str:
    """The text of `manifest.toml`, which reads back to the same manifest."""
    values = manifest.model_dump(by_alias=True, mode="json", exclude_none=True)
    values |= {"schema": manifest.schema_version}
    return "\n".join(_lines(values, "")) + "\n"


def _lines(table: Mapping[str, Any], name: str) -> Iterator[str]:
    """A table's own keys, then the tables within it, as TOML wants them."""
    for key, value in table.items():
        if not isinstance(value, Mapping):
            yield f"{_key(key)} = {_value(value)}"
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            full = f"{name}.{_key(key)}" if name else _key(key)
            yield from ("", f"[{full}]")
            yield from _lines(value, full)


def _key(key: str) -> str:
    plain = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if plain else _value(key)


def _value(value: Any) -> str:
    """JSON's strings, numbers and lists are TOML's, but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
