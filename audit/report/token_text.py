"""What token ids say, by a tokenizer that the reader names. Token text comes from strangers.

Only the files of a `tokenizers` library are read, never code; a GGUF's vocabulary is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from audit.errors import NotFoundError, UnreadableError, first_line
from audit.provenance import vocabulary_sha256
from audit.report.wording import clean

FILE = "tokenizer.json"
_MARKS = {ord("\n"): "↵", ord("\t"): "⇥"}
"""The two control characters that text is full of; others stand as their escapes."""
TokenText = Callable[[int], str]
"""From a target id to the id with its text in quotes, or the id alone where it has none."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenReader:
    """The text of ids, one by one or as they follow each other; always on one line."""

    tokenizer: Any
    size: int

    def one(self, id_: int) -> str:
        """The id with its text in quotes, or the id alone where it has none."""
        if not 0 <= id_ < self.size:
            return str(id_)
        return f"{id_} “{self._text([id_])}”"

    def many(self, ids: Sequence[int]) -> str:
        """Text of consecutive ids; those without text stand as ⟨id⟩."""
        out, known = [], []
        for id_ in (*ids, -1):
            if 0 <= id_ < self.size:
                known.append(id_)
                continue
            out.append(self._text(known))
            out.append(f"⟨{id_}⟩")
            known = []
        return "".join(out[:-1])

    def _text(self, ids: Sequence[int]) -> str:
        text = self.tokenizer.decode(list(ids), skip_special_tokens=False)
        return clean(text.translate(_MARKS))

    def sha256(self) -> str:
        """Hash of the vocabulary, as a trace of the same tokenizer carries it."""
        return vocabulary_sha256(self.tokenizer.get_vocab(with_added_tokens=True))


def read_tokenizer(place: Path) -> TokenReader:
    """The tokenizer of a model's folder, or of a tokenizer.json.

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
    return TokenReader(tokenizer, tokenizer.get_vocab_size(with_added_tokens=True))


def token_text(place: Path) -> TokenText:
    """Text by id, from a model's folder or its tokenizer.json; raises as `read_tokenizer`."""
    return read_tokenizer(place).one
