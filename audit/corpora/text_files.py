"""Documents from text files: UTF-8, word for word, one file one document or several."""

from __future__ import annotations

import re
from pathlib import Path

from audit.corpora.documents import Document
from audit.errors import NotFoundError, UnreadableError

_TWO_BLANK_LINES = re.compile(r"\r?\n(?:[ \t]*\r?\n){2,}")


def text_documents(path: Path, name: str, split_blank_lines: bool) -> list[Document]:
    """A text file as one document, or as several separated by two or more blank lines.

    Raises:
        NotFoundError: the file is not there.
        UnreadableError: it is not UTF-8 (with the byte offset), or holds no text.
    """
    text = read_text(path)
    parts = _TWO_BLANK_LINES.split(text) if split_blank_lines else [text]
    found = [part for part in parts if part.strip()]
    if not found:
        raise UnreadableError(f"{path} holds no text", hint="leave it out or fill it", where=path)
    if not split_blank_lines:
        return [Document(name, text)]
    return [Document(f"{name}#{n}", part.strip("\r\n")) for n, part in enumerate(found, start=1)]


def read_text(path: Path) -> str:
    """A file's text without a byte order mark; line ends stay as they are.

    Raises:
        NotFoundError: the file is not there.
        UnreadableError: it cannot be read, or is not UTF-8.
    """
    try:
        return decode(path.read_bytes(), path)
    except FileNotFoundError as error:
        raise NotFoundError(
            f"there is no text file {path}", hint="check the path after --text", where=path
        ) from error
    except OSError as error:
        raise UnreadableError(
            f"{path} cannot be read: {error.strerror}",
            hint="name a readable text file",
            where=path,
        ) from error


def decode(data: bytes, path: Path, place: str = "") -> str:
    """Bytes of `path` as UTF-8 without a byte order mark.

    Args:
        place: where in the file they stand, such as ` line 3`.

    Raises:
        UnreadableError: they are something else, with the offset of the first wrong byte.
    """
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise UnreadableError(
            f"{path}{place} is not UTF-8 text: byte {error.start} is 0x{data[error.start]:02x}",
            hint=f"convert it first: iconv -f latin1 -t utf-8 {path.name} > utf8.txt",
            where=path,
        ) from error
