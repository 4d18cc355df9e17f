"""The text beside a manifest: read it, and compare it with the hashes that the manifest lists."""

from __future__ import annotations

from pathlib import Path

from audit.corpora.documents import Document, content_sha256
from audit.corpora.manifest import Corpus
from audit.corpora.text_files import read_text
from audit.errors import UnreadableError
from audit.provenance import sha256_file

_FOLDER = "documents"


def stored_documents(corpus: Corpus) -> list[Document]:
    """The documents of a corpus that holds its text, checked first, in the order of their names.

    Raises:
        UnreadableError: the text is not what the manifest describes, or is not UTF-8.
    """
    verify(corpus)
    return read_documents(corpus)


def read_documents(corpus: Corpus) -> list[Document]:
    """All files in the corpus's folder of documents, as they are, in the order of their names."""
    files = sorted((corpus.folder / _FOLDER).iterdir())
    return [Document(path.name, read_text(path)) for path in files]


def verify(*corpora: Corpus) -> None:
    """Check that the documents of each are those its manifest was written for.

    Raises:
        UnreadableError: naming each file that was changed, is missing or is not listed.
    """
    found = [(corpus.manifest.name, differences(corpus)) for corpus in corpora]
    if wrong := [f"{name}: {', '.join(files)}" for name, files in found if files]:
        raise UnreadableError(
            f"text is not what its manifest describes: {'; '.join(wrong)}",
            hint="restore it; numbers on changed text can not be compared",
            where=corpora[0].folder if len(corpora) == 1 else corpora[0].folder.parent,
        )


def differences(corpus: Corpus) -> list[str]:
    """What differs from the manifest, such as `changed documents/a.txt`; empty if nothing does.

    A corpus with a source has no text here that could differ.
    """
    listed = corpus.manifest.files
    if listed is None:
        return []
    folder = corpus.folder / _FOLDER
    present = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    out = []
    for name in sorted(present | set(listed)):
        state = _state(folder / name, corpus.folder, listed.get(name))
        if state:
            out.append(f"{state} {_FOLDER}/{name}")
    if not out and content_sha256(listed) != corpus.manifest.sha256:
        out.append("sha256 is not the hash of [files]")
    return out


def _state(path: Path, corpus: Path, sha256: str | None) -> str:
    """What is wrong with one document; empty when nothing is."""
    if not path.exists():
        return "missing"
    if not path.resolve().is_relative_to(corpus.resolve()):
        return "leading elsewhere"
    if sha256 is None:
        return "extra"
    return "" if path.is_file() and sha256_file(path) == sha256 else "changed"
