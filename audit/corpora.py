"""The bundled corpora: manifests become documents. Imports no torch.

One folder per corpus: `manifest.toml` (what it is, its licence, its hash) and `documents/`.
The hash is that of the text `sha256sum documents/*` prints.
"""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pydantic import Field, ValidationError

from audit.errors import NotFoundError, UnreadableError, first_line
from audit.provenance import sha256_file
from audit.records import Record, Register

PACKAGE = "audit_corpora"
"""Name under which the repository's `corpora/` folder is installed."""


class Manifest(Record):
    """`manifest.toml` of one corpus."""

    schema_version: int = Field(alias="schema")
    name: str
    register_: Register = Field(alias="register")
    language: str
    """BCP 47 tag, or `code:LANGUAGE`."""
    title: str
    description: str
    licence: str
    source: str
    documents: int
    sha256: str
    tokens: dict[str, int] = Field(default_factory=dict)
    """Token counts by tokenizer, as counted when it was written."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """One corpus on disk."""

    manifest: Manifest
    folder: Path

    @property
    def files(self) -> list[Path]:
        """Its documents, in order."""
        return sorted(path for path in (self.folder / "documents").iterdir() if path.is_file())

    def sha256(self) -> str:
        """The hash of what is on disk now."""
        lines = (f"{sha256_file(path)}  documents/{path.name}\n" for path in self.files)
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def bundled_folder() -> Path:
    """Where the bundled corpora lie. Raises NotFoundError when they were not installed."""
    spec = find_spec(PACKAGE)
    for place in (spec.submodule_search_locations or []) if spec else []:
        if Path(place).is_dir():
            return Path(place)
    raise NotFoundError(
        "the bundled corpora are not installed with this package",
        hint="install head-audit again, or give your own text with --text",
    )


def load_corpora(folder: Path | None = None) -> list[Corpus]:
    """All corpora in a folder, by name; the bundled ones by default.

    Raises:
        NotFoundError: there are none.
        UnreadableError: a manifest is malformed.
    """
    folder = folder or bundled_folder()
    found = [read_corpus(path.parent) for path in sorted(folder.glob("*/manifest.toml"))]
    if not found:
        raise NotFoundError("there is no corpus in this folder", where=folder)
    return found


def read_corpus(folder: Path) -> Corpus:
    """One corpus from its folder; its text is not checked here (see `verify`)."""
    path = folder / "manifest.toml"
    try:
        manifest = Manifest.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise UnreadableError(
            f"this is not a corpus manifest: {first_line(error)}",
            hint="see the bundled corpora for the keys it needs",
            where=path,
        ) from error
    return Corpus(manifest, folder)


def verify(corpus: Corpus) -> None:
    """Check that the documents are those the manifest was written for.

    Raises:
        UnreadableError: another number of documents, or other bytes.
    """
    manifest, files = corpus.manifest, corpus.files
    if len(files) == manifest.documents and corpus.sha256() == manifest.sha256:
        return
    raise UnreadableError(
        f"the text of {manifest.name} is not what its manifest describes "
        f"({len(files)} documents, {manifest.documents} declared)",
        hint="restore the corpus; numbers on changed text can not be compared",
        where=corpus.folder,
    )
