"""An engine's own measurements, with the head and without: JSON or CSV.

JSON is a list of objects, CSV has a header; both name `head`, `tokens_per_second`,
`plain_tokens_per_second`, `runs` and, if one likes, `engine`. They are shown beside the model's
figures and never mixed into them.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from audit.cost.records import Measurement
from audit.errors import NotFoundError, UnreadableError, first_wrong

_MOST_BYTES = 1 << 20
_HINT = "columns: head, tokens_per_second, plain_tokens_per_second, runs, and engine if you like"


def read_measured(path: Path) -> tuple[Measurement, ...]:
    """The measurements in a file, in its order.

    Raises:
        NotFoundError: there is no such file.
        UnreadableError: it is no such table, is empty, or holds values that no engine measures.
    """
    if not path.is_file():
        raise NotFoundError(f"there is no file {path}", hint=_HINT, where=path)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UnreadableError("this file is too long for a few measurements", where=path)
        text = path.read_text(encoding="utf-8-sig")
        lines = _objects(text) if text.lstrip()[:1] in ("[", "{") else _table(text)
        found = tuple(Measurement.model_validate(line) for line in lines)
    except ValidationError as error:
        raise UnreadableError(
            f"the measurements can not be read: {first_wrong(error, 'a line')}",
            hint=_HINT,
            where=path,
        ) from error
    except (OSError, ValueError, csv.Error, RecursionError) as error:
        raise UnreadableError(
            f"the measurements can not be read: {error}", hint=_HINT, where=path
        ) from error
    if not found:
        raise UnreadableError("there is no measurement in it", hint=_HINT, where=path)
    return found


def _objects(text: str) -> list[Any]:
    value = json.loads(text)
    lines = value if isinstance(value, list) else [value]
    return [dict(line) for line in lines]


def _table(text: str) -> list[dict[str, Any]]:
    lines = list(csv.DictReader(io.StringIO(text)))
    for number, line in enumerate(lines, start=2):
        if None in line:  # where csv keeps what has no name
            raise ValueError(f"line {number} has more values than the first line has names")
    return [{key: value for key, value in line.items() if value != ""} for line in lines]
