"""Documents from text files: what `audit capture` runs the verifier over.

Leaves out corpora with a manifest: those name their own files, which then come through here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from audit.errors import BadUsageError, NotFoundError, UnreadableError

_TWO_BLANK_LINES = re.compile(r"\r?\n(?:[ \t]*\r?\n){2,}")


@dataclass(frozen=True, slots=True)
class Document:
    """One text that is read on its own: no window of it reaches into another document."""

    name: str
    """The file's name, with `#2` for the second document of a file that was split."""
    text: str


def read_documents(paths: Sequence[Path], split_blank_lines: bool) -> list[Document]:
    """Read UTF-8 files, each one document, or several separated by two blank lines.

    Args:
        paths: the files, in the order in which their documents are wanted.
        split_blank_lines: whether two or more blank lines separate documents.

    Raises:
        BadUsageError: no files were given.
        NotFoundError: a file is not there.
        UnreadableError: a file is not UTF-8 (with the byte offset), or holds no text.
    """
    if not paths:
        raise BadUsageError("no text was given", hint="name at least one file with --text")
    documents: list[Document] = []
    for path in paths:
        text = _read_text(path)
        parts = _TWO_BLANK_LINES.split(text) if split_blank_lines else [text]
        found = [part for part in parts if part.strip()]
        if not found:
            raise UnreadableError(
                f"{path} holds no text", hint="leave it out or fill it", where=path
            )
        if not split_blank_lines:
            documents.append(Document(path.name, text))
            continue
        numbered = enumerate(found, start=1)
        documents += [Document(f"{path.name}#{n}", part.strip("\r\n")) for n, part in numbered]
    return documents


def _read_text(path: Path) -> str:
    """A file's text without a byte order mark; line ends stay as they are."""
    try:
        return path.read_bytes().decode("utf-8").removeprefix("\ufeff")
    except FileNotFoundError as error:
        raise NotFoundError(
            f"there is no text file {path}", hint="check the path after --text", where=path
        ) from error
    except UnicodeDecodeError as error:
        raise UnreadableError(
            f"{path} is not UTF-8 text: byte {error.start} is 0x{error.object[error.start]:02x}",
            hint=f"convert it first: iconv -f latin1 -t utf-8 {path.name} > utf8.txt",
            where=path,
        ) from error
    except OSError as error:
        raise UnreadableError(
            f"{path} cannot be read: {error.strerror}",
            hint="name a readable text file",
            where=path,
        ) from error
