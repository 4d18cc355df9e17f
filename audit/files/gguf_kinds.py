"""Key-values of GGUF whose kind is fixed, as data: a count is a number, a vocabulary a list.

Many places read these keys; none of them should have to expect a list where a count belongs. What
is not listed here may be of any kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_MAX_COUNT = 2**31 - 1
"""No count of layers, tokens or channels comes near it, and torch takes nothing beyond 2^63."""
_MAX_WORD = 64


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MAX_COUNT


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_WORD and value.isprintable()


def _is_list_of(kind: type) -> Callable[[Any], bool]:
    # All items of an array in a file are of one kind.
    return lambda value: isinstance(value, list) and all(type(one) is kind for one in value[:1])


_Rule = tuple[Callable[[Any], bool], str]
_COUNT: _Rule = (_is_count, f"a whole number up to {_MAX_COUNT}")
_WORD: _Rule = (_is_word, f"a word of up to {_MAX_WORD} characters")

_BY_KEY: Mapping[str, _Rule] = {
    "general.architecture": _WORD,
    "tokenizer.ggml.model": _WORD,
    "tokenizer.ggml.tokens": (_is_list_of(str), "a list of texts"),
    "tokenizer.ggml.token_type": (_is_list_of(int), "a list of whole numbers"),
    "split.no": _COUNT,
    "split.count": _COUNT,
    "split.tensors.count": _COUNT,
}
_BY_END: Mapping[str, _Rule] = {
    ".block_count": _COUNT,
    ".nextn_predict_layers": _COUNT,
    ".embedding_length": _COUNT,
    ".vocab_size": _COUNT,
}


def wrong_kind(metadata: Mapping[str, Any]) -> str | None:
    """What is wrong with the first key of another kind than it must have; None when all are well.

    The sentence goes on from the file's path: "has KEY, which is not ...".
    """
    for key, value in metadata.items():
        rule = _BY_KEY.get(key) or next(
            (r for end, r in _BY_END.items() if key.endswith(end)), None
        )
        if rule and not rule[0](value):
            return f"has {key}, which is not {rule[1]}"
    return None
