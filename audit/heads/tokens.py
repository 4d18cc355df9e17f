"""What kind each token id is: stop, special or byte; needed to see what a trim threw away."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from audit.files import Container

_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
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
    tokenizer = _json(folder / "tokenizer.json")
    vocab = tokenizer.get("model", {}).get("vocab", {})
    named = vocab.items() if isinstance(vocab, dict) else ()
    return TokenKinds(
        stop=frozenset(_stop_ids(container.config or {}, _json(folder / "generation_config.json"))),
        special=frozenset(
            token["id"] for token in tokenizer.get("added_tokens") or [] if token.get("special")
        ),
        byte=frozenset(index for word, index in named if _BYTE.fullmatch(word)),
    )


def _of_gguf(metadata: Mapping[str, Any]) -> TokenKinds:
    types = metadata.get("tokenizer.ggml.token_type")
    kinds = [] if types is None else list(types)
    stops = (metadata.get(f"tokenizer.ggml.{key}") for key in _GGUF_STOP_KEYS)
    return TokenKinds(
        stop=frozenset(int(stop) for stop in stops if stop is not None),
        special=frozenset(i for i, kind in enumerate(kinds) if kind == _GGUF_CONTROL),
        byte=frozenset(i for i, kind in enumerate(kinds) if kind == _GGUF_BYTE),
    )


def _stop_ids(*configs: Mapping[str, Any]) -> Iterable[int]:
    for config in configs:
        stop = config.get("eos_token_id")
        yield from stop if isinstance(stop, list) else [] if stop is None else [stop]


def _json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, empty when there is none; its faults are found by its reader."""
    if not path.is_file():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return content if isinstance(content, dict) else {}
