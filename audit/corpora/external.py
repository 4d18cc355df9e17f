"""A corpus with a `[source]` table: rows are streamed, shuffled by a seed, filtered and cut off.

Hub data sets and local files go the same way through the library `datasets`, an optional extra.
What is drawn depends on the manifest alone: a hub source must name a commit. One that names a
branch is only resolved by `pinned`, which asks the hub, so that nothing ever changes unseen.
The order in which a stream is shuffled is the library's: a manifest with `sha256` notices if a
later version shuffles otherwise.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from audit.corpora.chat import row_text
from audit.corpora.documents import Document, content_sha256, text_sha256
from audit.corpora.hub import commit_of, open_hub, open_stream, reach_error
from audit.corpora.keeping import keeps
from audit.corpora.manifest import Corpus, HubSource, LocalSource
from audit.corpora.stored import stored_documents
from audit.errors import (
    AuditError,
    BadUsageError,
    MismatchError,
    NotFoundError,
    UnreadableError,
    first_line,
)

Progress = Callable[[int, int], None]
"""Called with (documents found, documents wanted)."""

_ROWS_PER_DOCUMENT = 1000
"""A filter that keeps less than one row of so many is a mistake; no stream is read to its end."""


def corpus_documents(corpus: Corpus, progress: Progress | None = None) -> list[Document]:
    """The text of any corpus: checked if it lies beside the manifest, else drawn from its source.

    Raises:
        BadUsageError: a hub source names no commit, or its filter keeps too little.
        NotFoundError: a local source's files are not there.
        UnreadableError: text, rows or files are damaged, or the hub is out of reach.
        MismatchError: what was drawn has another hash than the manifest says.
        MissingExtraError: a source needs the library `datasets`.
    """
    if not corpus.external:
        return stored_documents(corpus)
    documents = _draw(corpus, progress or (lambda found, wanted: None))
    sha256 = content_sha256({d.name: text_sha256(d.text) for d in documents})
    if corpus.manifest.sha256 not in (None, sha256):
        raise MismatchError(
            f"what was drawn for {corpus.manifest.name} is not the text of its manifest: "
            f"sha256 is {sha256}",
            hint="another version of datasets may shuffle in another order, and local files may "
            "have changed; correct sha256 only if the new text is meant",
            where=corpus.folder,
        )
    return documents


def pinned(corpus: Corpus, revision: str | None = None, allow_moving: bool = False) -> Corpus:
    """The same corpus with its hub source at a commit; others as they are.

    Args:
        revision: take this commit, branch or tag instead of the manifest's.
        allow_moving: ask the hub which commit a branch or tag names now.

    Raises:
        BadUsageError: a revision for a corpus that is not on the hub, or one that moves.
        UnreadableError: the hub is out of reach, or knows no such data set or revision.
        MissingExtraError: the library `datasets` is not installed.
    """
    source = corpus.manifest.source
    if not isinstance(source, HubSource):
        if revision is not None:
            raise BadUsageError(
                f"{corpus.manifest.name} is no data set of the hub, so it has no revision",
                hint="leave --revision out",
            )
        return corpus
    wanted = source.model_copy(update={"revision": revision or source.revision})
    if not wanted.pinned:
        if not allow_moving:
            raise _moving(corpus, wanted)
        wanted = wanted.model_copy(update={"revision": commit_of(wanted)})
    return Corpus(corpus.manifest.model_copy(update={"source": wanted}), corpus.folder)


def _moving(corpus: Corpus, source: HubSource) -> AuditError:
    name = corpus.manifest.name
    return BadUsageError(
        f"{name} names {source.id} at {source.revision!r}, which moves: its text could change "
        "unseen",
        hint=f"audit corpora fetch {name} --allow-unpinned -o FOLDER keeps what it holds now and "
        "says which commit that is; then give FOLDER as the corpus",
        where=corpus.folder,
    )


def _draw(corpus: Corpus, progress: Progress) -> list[Document]:
    """The first documents that the filter keeps, named 0001.txt and so on; none comes twice."""
    manifest, out = corpus.manifest, list[Document]()
    assert not isinstance(manifest.source, str)
    column, seen, read = manifest.source.column, set[str](), 0
    with _library_errors(corpus):
        for read, row in enumerate(_rows(corpus), start=1):
            text = _text(row, column, read, corpus)
            if keeps(manifest.source.filter, text) and text_sha256(text) not in seen:
                seen.add(text_sha256(text))
                out.append(Document(f"{len(out) + 1:04d}.txt", text))
                progress(len(out), manifest.documents)
            if len(out) == manifest.documents:
                return out
            if read == _ROWS_PER_DOCUMENT * manifest.documents:
                break
    raise BadUsageError(
        f"{manifest.name} wants {manifest.documents} documents, but only {len(out)} different ones "
        f"of {read:,} rows pass its filter",
        hint="ask for fewer documents, or loosen [source.filter]",
        where=corpus.folder,
    )


def _rows(corpus: Corpus) -> Iterable[Mapping[str, Any]]:
    """The source's rows, shuffled."""
    source = corpus.manifest.source
    assert not isinstance(source, str)
    if isinstance(source, HubSource):
        if not source.pinned:
            raise _moving(corpus, source)
        stream = open_hub(source)
    else:
        options = {"sample_by": "document"} if source.format == "text" else {}
        # The library reads patterns too, and a name may look like one.
        files = [glob.escape(str(path)) for path in _local_files(source, corpus)]
        stream = open_stream(source.format, data_files=files, split="train", **options)
    shuffled: Iterable[Mapping[str, Any]] = stream.shuffle(
        seed=source.seed, buffer_size=source.buffer
    )
    return shuffled


def _local_files(source: LocalSource, corpus: Corpus) -> list[Path]:
    """The files of a local source, sorted, each inside the corpus's folder."""
    root = corpus.folder.resolve()
    files: list[Path] = []
    for pattern in source.paths:
        found = sorted(path.resolve() for path in root.glob(pattern) if path.is_file())
        if not found:
            raise NotFoundError(
                f"{corpus.manifest.name} names {pattern!r}, but there is no such file",
                hint="paths are relative to the folder of the manifest",
                where=corpus.folder,
            )
        if outside := [path for path in found if not path.is_relative_to(root)]:
            raise UnreadableError(
                f"{pattern!r} leads out of the corpus folder, to {outside[0]}",
                hint="a manifest may only name files beside it: remove the link",
                where=corpus.folder,
            )
        files += found
    return list(dict.fromkeys(files))


def _text(row: Mapping[str, Any], column: str, number: int, corpus: Corpus) -> str:
    try:
        return row_text(row, column).removeprefix("\ufeff")
    except ValueError as error:
        raise UnreadableError(
            f"row {number} of {corpus.manifest.name} after the shuffle: {error}",
            hint="name the column that holds the text in [source]",
            where=corpus.folder,
        ) from error


@contextmanager
def _library_errors(corpus: Corpus) -> Iterator[None]:
    """Say in a sentence what went wrong inside `datasets`, which raises whatever it met."""
    try:
        yield
    except (AuditError, MemoryError):
        raise
    except Exception as error:
        source = corpus.manifest.source
        if isinstance(source, HubSource):
            raise reach_error(source, error) from error
        raise UnreadableError(
            f"datasets cannot read the files of {corpus.manifest.name}: {_root_cause(error)}",
            hint="check their format against the manifest's",
            where=corpus.folder,
        ) from error


def _root_cause(error: BaseException) -> str:
    """The innermost error: the library wraps it in one that says only that there was one."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error) if isinstance(error, Exception) else type(error).__name__
