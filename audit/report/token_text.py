"""What a token id says, by a tokenizer that the reader names. Token text comes from strangers.

Only the files of a `tokenizers` library are read, never code; a GGUF's vocabulary is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from audit.errors import NotFoundError, UnreadableError, first_line
from audit.report.wording import clean

FILE = "tokenizer.json"
TokenText = Callable[[int], str]
"""From a target id to the id with its text in quotes, or the id alone where it has none."""


def token_text(place: Path) -> TokenText:
    """Text by id, from a model's folder or its tokenizer.json.

    Raises:
        NotFoundError: there is no such file.
        UnreadableError: it is no tokenizer.
    """
    from tokenizers import Tokenizer

    path = place / FILE if place.is_dir() else place
    if not path.is_file():
        raise NotFoundError(
            f"there is no {FILE} here", hint="name the verifier's folder", where=place
        )
    try:
        tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:
        # The library raises bare exceptions for whatever is wrong with the file.
        raise UnreadableError(
            f"this is no tokenizer: {first_line(error)}",
            hint="name the verifier's folder or its tokenizer.json",
            where=path,
        ) from error
    size = tokenizer.get_vocab_size(with_added_tokens=True)

    def text(id_: int) -> str:
        if not 0 <= id_ < size:
            return str(id_)
        return f"{id_} “{clean(tokenizer.decode([id_], skip_special_tokens=False))}”"

    return text
