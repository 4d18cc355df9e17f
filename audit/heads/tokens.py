"""What each token id is: stop, special or byte, and what text it stands for.

Needed to see what a trim threw away, and on which kinds of text a cut loses. Reads GGUF key-values
or tokenizer.json; how a piece is decoded and named is in `token_text`. Never runs a tokenizer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeGuard

import numpy as np
from numpy.typing import NDArray

from audit.errors import UnreadableError
from audit.files import Container
from audit.heads.token_text import Pieces, Style
from audit.provenance import vocabulary_sha256

Int64s = NDArray[np.int64]

_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_SIDECAR_LIMIT = 1 << 28  # the largest tokenizers take some 40 MB
_GGUF_UNKNOWN, _GGUF_CONTROL, _GGUF_USER, _GGUF_UNUSED, _GGUF_BYTE = 2, 3, 4, 5, 6
_GGUF_STYLES: dict[str, Style] = {
    "gpt2": "byte_level",
    "llama": "sentencepiece",
    "t5": "sentencepiece",
    "gemma4": "sentencepiece",
    "bert": "wordpiece",
}
_GGUF_STOP_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


@dataclass(frozen=True, slots=True)
class TokenKinds:
    """Ids by kind; a kind the files say nothing of is empty."""

    stop: frozenset[int] = frozenset()
    special: frozenset[int] = frozenset()
    byte: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """What a container says of its ids."""

    kinds: TokenKinds
    pieces: Pieces | None
    """None where no tokenizer is known, or one that nobody here can decode."""
    is_gguf: bool = False

    def of_trace(self, tokenizer_sha256: str | None) -> bool:
        """False when these are surely not the words of the trace with this tokenizer hash.

        The words of a GGUF are never held against it: converters rewrite some of them.
        """
        if self.pieces is None or self.is_gguf or tokenizer_sha256 is None:
            return True
        words = {word: index for index, word in self.pieces.words.items()}
        return vocabulary_sha256(words) == tokenizer_sha256

    def classes(self, ids: Int64s) -> NDArray[np.object_]:
        """The class of each id [n]; None for ids that the tokenizer does not know."""
        unique, place = np.unique(ids, return_inverse=True)
        return np.array([self._class(int(index)) for index in unique], dtype=object)[place]

    def _class(self, index: int) -> str | None:
        if self.pieces is None or index not in self.pieces.words:
            return None
        for name in ("stop", "special", "byte"):
            if index in getattr(self.kinds, name):
                return name
        return self.pieces.class_of(index)


def token_kinds(container: Container) -> TokenKinds:
    """Kinds from GGUF key-values, or from tokenizer.json and the configurations beside the file."""
    return read_tokens(container).kinds


def read_tokens(container: Container) -> Tokens:
    """Kinds and pieces of a container's ids.

    Raises:
        UnreadableError: a file beside the weights is not what its name says.
    """
    if container.format == "gguf":
        metadata = container.metadata
        return Tokens(_of_gguf(metadata), _pieces_of_gguf(metadata), is_gguf=True)
    folder = container.files[0].parent
    stop = _stop_ids(container.config or {}, folder / "config.json")
    generation = folder / "generation_config.json"
    tokenizer = read_tokenizer(folder)
    kinds = TokenKinds(
        stop=frozenset([*stop, *_stop_ids(read_sidecar(generation) or {}, generation)]),
        special=tokenizer.special if tokenizer else frozenset(),
        byte=tokenizer.byte if tokenizer else frozenset(),
    )
    return Tokens(kinds, tokenizer.pieces if tokenizer else None)


@dataclass(frozen=True, slots=True, eq=False)
class Tokenizer:
    """What `tokenizer.json` says of ids."""

    size: int
    """One more than the largest id."""
    special: frozenset[int]
    byte: frozenset[int]
    pieces: Pieces


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """The folder's `tokenizer.json`; None when there is none.

    Raises:
        UnreadableError: it is not a tokenizer file.
    """
    path = folder / "tokenizer.json"
    content = read_sidecar(path)
    if content is None:
        return None
    words = _model_words(path, content.get("model"))
    added = content.get("added_tokens") or []
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        raise _unusable(path, "added_tokens is not a list of tokens")
    ids = [*(index for _, index in words), *(token.get("id") for token in added)]
    if wrong := [value for value in ids if not _is_id(value)]:
        raise _unusable(path, f"{wrong[0]!r} is not a token id")
    literal = {token["id"]: str(token.get("content", "")) for token in added}
    by_id = {index: word for word, index in words}
    return Tokenizer(
        size=max(ids, default=-1) + 1,
        special=frozenset(token["id"] for token in added if token.get("special")),
        byte=frozenset(index for index, word in by_id.items() if _BYTE.fullmatch(word)),
        pieces=Pieces(by_id | literal, _style(content), frozenset(literal)),
    )


def _model_words(path: Path, model: object) -> list[tuple[str, Any]]:
    """Pairs of piece and id; Unigram models list their pieces in the order of the ids."""
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, dict):
        return list(vocab.items())
    if not isinstance(vocab, list):
        raise _unusable(path, "it holds no vocabulary")
    if wrong := [one for one in vocab if not (isinstance(one, list) and one)]:
        raise _unusable(path, f"{wrong[0]!r} is not a piece and its score")
    return [(str(one[0]), i) for i, one in enumerate(vocab)]


def _style(content: Mapping[str, Any]) -> Style:
    """How pieces are written, from the decoder and the pre-tokenizer."""
    model = content.get("model")
    if isinstance(model, dict) and model.get("type") == "WordPiece":
        return "wordpiece"
    parts = (content.get("decoder"), content.get("pre_tokenizer"))
    return "byte_level" if any(map(_is_byte_level, parts)) else "sentencepiece"


def _is_byte_level(part: object) -> bool:
    """True for a ByteLevel step, alone or in a sequence of steps."""
    if not isinstance(part, dict):
        return False
    steps = part.get("decoders") or part.get("pretokenizers") or []
    if part.get("type") == "Sequence" and isinstance(steps, list):
        return any(isinstance(step, dict) and step.get("type") == "ByteLevel" for step in steps)
    return part.get("type") == "ByteLevel"


def read_sidecar(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file beside the weights; None when there is no such file.

    Raises:
        UnreadableError: it is not JSON (NaN and Infinity are not), not an object, or huge.
    """
    if not path.is_file():
        return None
    if path.stat().st_size > _SIDECAR_LIMIT:
        raise _unusable(path, f"it is larger than {_SIDECAR_LIMIT} bytes")
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except (OSError, ValueError, RecursionError) as error:
        raise _unusable(path, str(error)) from error
    if not isinstance(content, dict):
        raise _unusable(path, "it is not a JSON object")
    return content


def _of_gguf(metadata: Mapping[str, Any]) -> TokenKinds:
    types = metadata.get("tokenizer.ggml.token_type")
    kinds = [] if types is None else list(types)
    stops = (metadata.get(f"tokenizer.ggml.{key}") for key in _GGUF_STOP_KEYS)
    return TokenKinds(
        stop=frozenset(stop for stop in stops if _is_id(stop)),
        special=frozenset(i for i, kind in enumerate(kinds) if kind == _GGUF_CONTROL),
        byte=frozenset(i for i, kind in enumerate(kinds) if kind == _GGUF_BYTE),
    )


def _pieces_of_gguf(metadata: Mapping[str, Any]) -> Pieces | None:
    style = _GGUF_STYLES.get(str(metadata.get("tokenizer.ggml.model")))
    words = metadata.get("tokenizer.ggml.tokens")
    if style is None or not isinstance(words, list):
        return None
    types = metadata.get("tokenizer.ggml.token_type")
    kinds = types if isinstance(types, list) else []
    outside = (_GGUF_UNKNOWN, _GGUF_UNUSED)
    return Pieces(
        {i: str(word) for i, word in enumerate(words)},
        style,
        literal=frozenset(i for i, kind in enumerate(kinds) if kind == _GGUF_USER),
        unused=frozenset(i for i, kind in enumerate(kinds) if kind in outside),
    )


def _stop_ids(config: Mapping[str, Any], path: Path) -> list[int]:
    stop = config.get("eos_token_id")
    ids = stop if isinstance(stop, list) else [] if stop is None else [stop]
    if wrong := [value for value in ids if not _is_id(value)]:
        raise _unusable(path, f"eos_token_id holds {wrong[0]!r}, which is not a token id")
    return ids


def _is_id(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _unusable(path: Path, why: str) -> UnreadableError:
    hint = "restore it, or move the head into a folder of its own"
    what = "tokenizer file" if path.name == "tokenizer.json" else "usable configuration"
    return UnreadableError(f"{path.name} is not a {what}: {why}", hint=hint, where=path)
