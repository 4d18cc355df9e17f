"""Token ids beside states that came without them: what llama.cpp's programs print or write.

int32 of llama-debug, JSON of llama-server's /tokenize or plain lists, the list that
`llama-tokenize --ids` prints, or the prompt file of llama-debug. One list per sequence.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from audit.dumps.listing import read_json
from audit.errors import NotFoundError, UnreadableError

_MOST_TEXT = 1 << 28
_NUMBER = re.compile(r"-?\d+")
_LINE = re.compile(r"^[\s\[]*(-?\d+[\s,]*)+\]?\s*$")


def read_tokens(path: Path) -> list[list[int]]:
    """Token ids by sequence.

    Raises:
        NotFoundError: there is no such file.
        UnreadableError: it is not a list of ids.
    """
    if not path.is_file():
        raise NotFoundError(
            f"there is no token file {path}", hint="check the path after --tokens", where=path
        )
    if path.suffix == ".bin":
        found = [_int32(path)]
    elif path.suffix == ".json":
        found = _lists(read_json(path, "a list of token ids", _MOST_TEXT), path)
    else:
        found = _text(path)
    if not found or not all(found):
        raise _bad(path, "it is empty, or names a sequence without tokens")
    return found


def beside(states: Path) -> Path | None:
    """The token file of a states file by its name: `NAME-tokens.bin`, `.json` or `.txt`."""
    stem = states.name.rsplit(".", 1)[0]
    places = (states.with_name(f"{stem}-tokens{suffix}") for suffix in (".bin", ".json", ".txt"))
    return next((place for place in places if place.is_file()), None)


def _int32(path: Path) -> list[int]:
    data = path.read_bytes()
    if len(data) % 4:
        raise _bad(path, f"its {len(data)} bytes are no whole number of int32 ids")
    return [int(value) for value in np.frombuffer(data, "<i4")]


def _lists(value: Any, path: Path) -> list[list[int]]:
    """Lists of ids in the forms that JSON replies take."""
    if isinstance(value, dict):
        value = value.get("tokens")
    if not isinstance(value, list) or not value:
        raise _bad(path, "it holds no list `tokens`")
    if isinstance(value[0], list) or (isinstance(value[0], dict) and "tokens" in value[0]):
        inner = [item.get("tokens") if isinstance(item, dict) else item for item in value]
        return [_ids(item, path) for item in inner]
    return [_ids(value, path)]


def _ids(value: Any, path: Path) -> list[int]:
    if not isinstance(value, list):
        raise _bad(path, "it mixes lists of ids with other things")
    ids = [item.get("id") if isinstance(item, dict) else item for item in value]
    wrong = next((item for item in ids if type(item) is not int), None)
    if wrong is not None or None in ids:
        raise _bad(path, f"{wrong!r:.40} is not a token id")
    return [item for item in ids if isinstance(item, int)]


def _text(path: Path) -> list[list[int]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(path, "it is not text") from error
    named = [line.partition(":")[2] for line in lines if line.startswith("token ids:")]
    wanted = named or [line for line in lines if line.strip()]
    for line in wanted:
        if not _LINE.match(line):
            raise _bad(path, f"the line {line[:40]!r} is not a list of whole numbers")
    return [[int(number) for number in _NUMBER.findall(line)] for line in wanted]


def _bad(path: Path, why: str) -> UnreadableError:
    return UnreadableError(
        f"{path} is no list of token ids: {why}",
        hint="give what `llama-tokenize --ids` prints, one line per text, or JSON lists of ids",
        where=path,
    )
