"""`manifest.toml`: what a corpus is, its licence, and its text or where that comes from.

A corpus is a folder with a manifest and either `documents/` (the text itself, listed under
`[files]` with its hashes) or a `[source]` table (see `external`). A manifest may come from a
stranger: it can only name files inside its own folder.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, ValidationError, model_validator

from audit.errors import NotFoundError, UnreadableError, first_line
from audit.records import Record, Register

FILE = "manifest.toml"
NAME = r"^\w[\w.-]*$"
"""What a corpus can be called: it is also the name of a file."""
_COMMIT = re.compile(r"[0-9a-f]{40}")

Count = Annotated[int, Field(ge=1)]
Text = Annotated[str, Field(min_length=1)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def _file_name(name: str) -> str:
    """One plain name, so that it can lie nowhere but in `documents/`."""
    if name in {"", ".", ".."} or "/" in name or "\\" in name or "\0" in name:
        raise ValueError(f"{name!r} is not the plain name of a file")
    return name


def _inside(path: str) -> str:
    """A relative path or pattern that does not climb out of its folder."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith(("/", "~")) or ".." in parts or "\\" in path or "\0" in path:
        raise ValueError(f"{path!r} does not stay inside the corpus folder")
    return path


class Filter(Record):
    """Which documents of a source count. Lengths are in characters."""

    min_characters: Count = 1
    max_characters: Count | None = None
    contains: tuple[Text, ...] = ()
    """Every one of these must occur."""
    excludes: tuple[Text, ...] = ()
    """None of these may occur."""
    script: str | None = None
    """A script as Unicode names its letters: LATIN, CYRILLIC, HEBREW, CJK ..."""
    min_script_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of a document's letters that must belong to `script`."""


class _Drawn(Record):
    """What all sources share: where the text stands in a row, and how rows are drawn."""

    column: Text = "text"
    """Column or field with the text; dots lead into nested ones."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    buffer: Count = 10_000
    """Rows among which the next one is drawn: a stream is never shuffled as a whole."""
    filter: Filter = Filter()


class HubSource(_Drawn):
    """A data set of the Hugging Face hub."""

    kind: Literal["hub"]
    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")]
    config: Text | None = None
    split: Text = "train"
    revision: Text
    """The commit, 40 hexadecimal digits; or a branch or tag, which must be pinned before use."""

    @property
    def pinned(self) -> bool:
        """Whether the revision is a commit, whose content can not change."""
        return _COMMIT.fullmatch(self.revision) is not None


class LocalSource(_Drawn):
    """Files beside the manifest, read by the same library in the same way."""

    kind: Literal["local"]
    format: Literal["parquet", "json", "csv", "text"]
    """`json` is one object per line, or one list of objects; each `text` file is one row."""
    paths: Annotated[tuple[Annotated[str, AfterValidator(_inside)], ...], Field(min_length=1)]
    """Files or patterns such as `data/*.parquet`, relative to the manifest."""


def _source_kind(value: Any) -> str | None:
    """The tag of a `source`; None, which pydantic reports, for what is none of them."""
    if isinstance(value, str):
        return "words"
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return kind if kind in ("hub", "local") else None


Source = Annotated[
    Annotated[Text, Tag("words")]
    | Annotated[HubSource, Tag("hub")]
    | Annotated[LocalSource, Tag("local")],
    Discriminator(_source_kind),
]


class Manifest(Record):
    """`manifest.toml` of one corpus."""

    schema_version: Literal[1] = Field(alias="schema")
    name: Annotated[str, Field(pattern=NAME, max_length=100)]
    register_: Register = Field(alias="register")
    language: Text
    """BCP 47 tag, or `code:LANGUAGE`."""
    title: Text
    description: Text
    licence: Text
    source: Source
    """Where the text is from, in words; or the table that it is drawn by."""
    documents: Count
    """Number of documents; of a source, the first so many after the shuffle."""
    sha256: Sha256 | None = None
    """Hash of the content (`documents.content_sha256`); a source may leave it open."""
    files: dict[Annotated[str, AfterValidator(_file_name)], Sha256] | None = None
    """Hash of each file in `documents/`; None with a source table."""
    tokens: dict[str, Count] = Field(default_factory=dict)
    """Token counts by tokenizer, as counted when it was written."""

    @model_validator(mode="after")
    def _text_or_source(self) -> Manifest:
        if not isinstance(self.source, str):
            if self.files is not None:
                raise ValueError("[files] and a [source] table exclude each other")
            return self
        if self.files is None or self.sha256 is None:
            raise ValueError("it needs [files] and sha256, or a [source] table")
        if len(self.files) != self.documents:
            raise ValueError(f"documents is {self.documents}, but [files] lists {len(self.files)}")
        return self


@dataclass(frozen=True, slots=True)
class Corpus:
    """One corpus on disk: its manifest and the folder that this lies in."""

    manifest: Manifest
    folder: Path

    @property
    def external(self) -> bool:
        """Whether its text is drawn from a source rather than lying beside the manifest."""
        return self.manifest.files is None


def read_corpus(folder: Path) -> Corpus:
    """One corpus from its folder; its text is not read here.

    Raises:
        NotFoundError: there is no manifest.
        UnreadableError: it is malformed, with the key concerned.
    """
    path = folder / FILE
    try:
        manifest = Manifest.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise NotFoundError(
            f"there is no {FILE} in {folder}", hint="name the folder of a corpus", where=path
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableError(
            f"this is not a corpus manifest: {_reason(error)}",
            hint="see docs/corpora.md, or the bundled corpora, for the keys it needs",
            where=path,
        ) from error
    return Corpus(manifest, folder)


def _reason(error: Exception) -> str:
    """The first thing that is wrong, with its key."""
    if not isinstance(error, ValidationError):
        return first_line(error)
    first = error.errors()[0]
    tags = {"words", "hub", "local"}
    key = ".".join(str(part) for part in first["loc"] if part not in tags)
    words = first["msg"].removeprefix("Value error, ")
    if first["type"] == "union_tag_not_found":
        words = "it is neither words nor a table of kind 'hub' or 'local'"
    return f"{key}: {words}" if key else words
