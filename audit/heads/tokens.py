"""What kind each token id is: stop, special or byte; needed to see what a trim threw away."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeGuard

from audit.errors import UnreadableError
from audit.files import Container
from audit.provenance import vocabulary_sha256

_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_SPACE = "\u2581"
_GGUF_CONTROL, _GGUF_BYTE = 3, 6
_GGUF_STOP_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


@dataclass(frozen=True, slots=True)
class TokenKinds:
    """Ids by kind; a kind the files say nothing of is empty."""

    stop: frozenset[int] = frozenset()
    special: frozenset[int] = frozenset()
    byte: frozenset[int] = frozenset()


def token_kinds(container: Container) -> TokenKinds:
    """Kinds from GGUF key-values, or from tokenizer.json and the configurations beside the file."""
    if container.format == "gguf":
        return _of_gguf(container.metadata)
    folder = container.files[0].parent
    stop = _stop_ids(container.config or {}, folder / "config.json")
    generation = folder / "generation_config.json"
    tokenizer = read_tokenizer(folder)
    return TokenKinds(
        stop=frozenset([*stop, *_stop_ids(read_sidecar(generation) or {}, generation)]),
        special=tokenizer.special if tokenizer else frozenset(),
        byte=tokenizer.byte if tokenizer else frozenset(),
    )


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """What `tokenizer.json` says of ids."""

    size: int
    """One more than the largest id."""
    special: frozenset[int]
    byte: frozenset[int]


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """The folder's `tokenizer.json`; None when there is none.

    Raises:
        UnreadableError: it is not a tokenizer file.
    """
    path = folder / "tokenizer.json"
    content = read_sidecar(path)
    if content is None:
        return None
    model = content.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    # Unigram models list their words in the order of the ids.
    named = {str(i): i for i in range(len(vocab))} if isinstance(vocab, list) else vocab
    if not isinstance(named, dict):
        raise _unusable(path, "it holds no vocabulary")
    added = content.get("added_tokens") or []
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        raise _unusable(path, "added_tokens is not a list of tokens")
    ids = [*named.values(), *(token.get("id") for token in added)]
    if wrong := [value for value in ids if not _is_id(value)]:
        raise _unusable(path, f"{wrong[0]!r} is not a token id")
    return Tokenizer(
        size=max(ids, default=-1) + 1,
        special=frozenset(token["id"] for token in added if token.get("special")),
        byte=frozenset(index for word, index in named.items() if _BYTE.fullmatch(word)),
    )


def tokenizer_hash(container: Container) -> str | None:
    """Hash of the vocabulary beside these weights, as a captured trace of the model carries it.

    None where there is none to read. That of a GGUF may differ from its folder's by how the
    converter spelled a token, so across containers two hashes do not prove two vocabularies.
    """
    if container.format == "gguf":
        words = _gguf_words(container.metadata)
    else:
        words = _folder_words(container.files[0].parent)
    return vocabulary_sha256(words) if words else None


def _gguf_words(metadata: Mapping[str, Any]) -> dict[str, int]:
    listed = metadata.get("tokenizer.ggml.tokens")
    words = [] if listed is None else [str(word) for word in listed]
    if metadata.get("tokenizer.ggml.model") == "llama":
        words = [word.replace(" ", _SPACE) for word in words]  # as SentencePiece spells them
    return {word: i for i, word in enumerate(words)}


def _folder_words(folder: Path) -> dict[str, int]:
    """Every token and its id, those that only the tokenizer's configuration adds among them."""
    if read_tokenizer(folder) is None:
        return {}
    content = read_sidecar(folder / "tokenizer.json") or {}
    vocab = content["model"]["vocab"]
    if isinstance(vocab, list):  # a Unigram model's [word, score]
        vocab = {str(e[0]) if isinstance(e, list) and e else "": i for i, e in enumerate(vocab)}
    words = dict(vocab)
    words |= {str(token.get("content")): token["id"] for token in content.get("added_tokens") or []}
    listed = (read_sidecar(folder / "tokenizer_config.json") or {}).get("added_tokens_decoder")
    for index, token in listed.items() if isinstance(listed, dict) else ():
        if isinstance(token, dict) and isinstance(token.get("content"), str) and index.isdigit():
            words.setdefault(token["content"], int(index))
    return words


def read_sidecar(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file beside the weights; None when there is no such file.

    Raises:
        UnreadableError: it is not JSON (NaN and Infinity are not), or not an object.
    """
    if not path.is_file():
        return None
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
