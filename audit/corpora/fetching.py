"""Draw an external corpus once and keep its text as a corpus of its own."""

from __future__ import annotations

from pathlib import Path

from audit.corpora.external import Progress, corpus_documents, pinned
from audit.corpora.manifest import Corpus, Manifest
from audit.corpora.writing import check_new_folder, write_corpus
from audit.errors import BadUsageError


def fetch_corpus(
    corpus: Corpus,
    output: Path,
    revision: str | None = None,
    allow_moving: bool = False,
    progress: Progress | None = None,
) -> Corpus:
    """The corpus in `output`, its text stored and hashed, the commit it came from in `source`.

    Args:
        revision: take this commit instead of the manifest's.
        allow_moving: a branch or tag will do; what it names now is recorded.

    Raises:
        BadUsageError: it holds its text already, `output` exists, or the revision moves.
        AuditError: as `corpus_documents`.
    """
    name = corpus.manifest.name
    if not corpus.external:
        raise BadUsageError(
            f"{name} holds its text already", hint=f"use it as it is: --corpus {name}"
        )
    check_new_folder(output)
    corpus = pinned(corpus, revision, allow_moving)
    documents = corpus_documents(corpus, progress)
    words = drawn_from(corpus.manifest)
    return write_corpus(corpus.manifest.model_copy(update={"source": words}), documents, output)


def drawn_from(manifest: Manifest) -> str:
    """A source in words, complete enough to draw it again."""
    source = manifest.source
    if isinstance(source, str):
        return source
    options = source.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    options |= {"seed": source.seed, "buffer": source.buffer}
    return "drawn from " + ", ".join(f"{key} {value}" for key, value in options.items())
