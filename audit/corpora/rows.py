"""Documents from files of rows: JSON Lines and Parquet. `chat.row_text` says what a row's text is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from audit.corpora.chat import CHAT_FIELDS, DEFAULT_FIELD, row_text
from audit.corpora.documents import Document
from audit.corpora.text_files import decode
from audit.errors import NotFoundError, UnreadableError, first_line

JSON_LINES = frozenset({".jsonl", ".ndjson"})
PARQUET = frozenset({".parquet"})


def row_documents(path: Path, name: str, field: str | None) -> list[Document]:
    """One document per row, named `FILE#12` by its line or row from 1; blank lines do not count.

    Args:
        field: dotted path of the text; None takes `text`, else a chat (see `chat.row_text`).

    Raises:
        NotFoundError: the file is not there.
        UnreadableError: it is no such file, or a row has no text, with its line or row.
    """
    lines = path.suffix.lower() in JSON_LINES
    rows = _json_rows(path) if lines else _parquet_rows(path, field)
    documents = []
    try:
        for number, row in rows:
            try:
                documents.append(Document(f"{name}#{number}", _filled(row_text(row, field))))
            except ValueError as error:
                raise UnreadableError(
                    f"{path} {'line' if lines else 'row'} {number}: {error}",
                    hint="name the field that holds the text with --field, or mend the row",
                    where=path,
                ) from error
    except FileNotFoundError as error:
        raise NotFoundError(
            f"there is no text file {path}", hint="check the path after --text", where=path
        ) from error
    except OSError as error:
        raise UnreadableError(
            f"{path} cannot be read: {first_line(error)}", hint="copy the file again", where=path
        ) from error
    if not documents:
        raise UnreadableError(f"{path} holds no rows", hint="leave it out or fill it", where=path)
    return documents


def _filled(text: str) -> str:
    if not text.strip():
        raise ValueError("its text is empty")
    return text


def _json_rows(path: Path) -> Iterator[tuple[int, Any]]:
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            text = decode(line, path, f" line {number}")
            try:
                yield number, json.loads(text)
            except (ValueError, RecursionError) as error:
                raise UnreadableError(
                    f"{path} line {number} is not JSON: {first_line(error)}",
                    hint="each line holds one object; give other text as a .txt file",
                    where=path,
                ) from error


def _parquet_rows(path: Path, field: str | None) -> Iterator[tuple[int, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with path.open("rb") as stream:
            table = pq.ParquetFile(stream)
            names = table.schema_arrow.names
            wanted = [field, field.partition(".")[0]] if field else [DEFAULT_FIELD, *CHAT_FIELDS]
            # Without the column, one row is enough to say which there are.
            columns = [name for name in wanted if name in names][:1] or None
            for batch in table.iter_batches(batch_size=1024, columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    # A column of text may hold bytes that are none: that is found when its values are taken out.
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise UnreadableError(
            f"{path} is not a readable Parquet file: {first_line(error)}",
            hint="copy the file again, or export it as JSON Lines",
            where=path,
        ) from error
