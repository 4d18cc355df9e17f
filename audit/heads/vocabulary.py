"""The hash of the vocabulary beside a model's weights, to hold traces against their reference."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from audit.files import Container
from audit.heads.tokens import read_sidecar, read_tokenizer
from audit.provenance import vocabulary_sha256

_SPACE = "\u2581"


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
