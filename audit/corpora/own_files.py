"""A user's own text: files of text, JSON Lines, Parquet, and folders of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from audit.corpora.documents import Document
from audit.corpora.rows import JSON_LINES, PARQUET, row_documents
from audit.corpora.text_files import text_documents
from audit.errors import BadUsageError, UnreadableError

ROWS = JSON_LINES | PARQUET
TEXT = frozenset(
    {".txt", ".text", ".md", ".markdown", ".rst", ".tex", ".adoc", ".org", ".html", ".xml"}
    | {".py", ".pyi", ".c", ".h", ".cc", ".cpp", ".hpp", ".cu", ".cs", ".go", ".rs", ".java"}
    | {".kt", ".scala", ".swift", ".js", ".jsx", ".ts", ".tsx", ".rb", ".php", ".pl", ".lua"}
    | {".r", ".jl", ".hs", ".ml", ".ex", ".erl", ".clj", ".sh", ".sql", ".css", ".toml", ".yaml"}
)
"""What counts as text inside a folder; a file that is named itself may have any suffix."""


def own_documents(
    paths: Sequence[Path], *, split_blank_lines: bool, field: str | None
) -> list[Document]:
    """Documents of files and folders, in the order given; a folder's by their paths.

    `.jsonl`, `.ndjson` and `.parquet` hold one document per row; any other file is text. In
    folders, at any depth, hidden files and those of other suffixes are passed over.

    Args:
        split_blank_lines: whether two or more blank lines separate documents of a text file.
        field: dotted path of the text in each row; None takes `text`, else the chat in
            `messages` or `conversations`, which becomes plain text (see `chat`).

    Raises:
        BadUsageError: no files, or an option that none of them obeys.
        NotFoundError: a file is not there.
        UnreadableError: not UTF-8, no JSON, a row without its field, a file or row without
            text, a folder without files of text; with the line, row or byte.
    """
    if not paths:
        raise BadUsageError("no text was given", hint="name at least one file with --text")
    files = [found for path in paths for found in _files(path)]
    kinds = {path.suffix.lower() in ROWS for path, _ in files}
    if field and kinds == {False}:
        raise BadUsageError(
            "a field was named, but only .jsonl and .parquet files have fields",
            hint="leave --field out, or save one object per line as .jsonl",
        )
    if split_blank_lines and kinds == {True}:
        raise BadUsageError(
            "blank lines separate documents of text files only, and there is none here",
            hint="leave --split out: each row is a document already",
        )
    out: list[Document] = []
    for path, name in files:
        if path.suffix.lower() in ROWS:
            out += row_documents(path, name, field)
        else:
            out += text_documents(path, name, split_blank_lines)
    return out


def _files(path: Path) -> Iterator[tuple[Path, str]]:
    """A file under its own name, or those of a folder under their paths in it."""
    if not path.is_dir():
        yield path, path.name
        return
    found = sorted(
        (inside.relative_to(path).as_posix(), inside)
        for inside in path.rglob("*")
        if inside.suffix.lower() in TEXT | ROWS
        and inside.is_file()
        and not any(part.startswith(".") for part in inside.relative_to(path).parts)
    )
    if not found:
        raise UnreadableError(
            f"{path} cannot be read as text: it holds no file with a suffix such as .txt or .jsonl",
            hint="name the files themselves if their suffix is another",
            where=path,
        )
    for name, inside in found:
        # A folder from elsewhere may link to what its reader never meant to record.
        if not inside.resolve().is_relative_to(path.resolve()):
            raise UnreadableError(
                f"{inside} leads out of the folder {path}",
                hint="remove the link, or name the file itself",
                where=inside,
            )
        yield inside, name
