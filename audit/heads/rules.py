"""What a model's configuration says about its head: post-head rule, norm, vocabulary, tying.

Read from a Hugging Face `config.json` or from GGUF key-values. A key that looks as if it changed
logits and is not understood becomes a note, because silence there once cost users a factor of ten.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from audit.errors import UnreadableError
from audit.heads.head import PostHead
from audit.heads.names import ONE_PLUS_NORMS
from audit.heads.tokens import read_tokenizer

_SOFTCAP_KEYS = ("final_logit_softcapping", "logits_soft_cap")
_MULTIPLIED = {
    "logit_scale": "multiply", "lm_head_multiplier": "multiply",
    "output_multiplier_scale": "multiply", "output_multiplier": "multiply",
    "logits_scaling": "divide", "logits_mup_width_multiplier": "divide",
}  # fmt: skip
_SAME_KEY_OTHER_WAY = {("hyperclovax", "logits_scaling"): "multiply"}
"""HyperCLOVA-X multiplies by the very key by which Granite divides."""
_GGUF_DIVIDES = ("granite", "minicpm")
_GGUF_IN_WEIGHTS = ("falcon-h1",)
"""The converter has multiplied the rows already."""
_SUSPECT = re.compile(r"logit.*(scal|mult|cap)|(scal|mult).*logit|suppress_tokens")
_GGUF_UNUSED_TOKEN = 5
_MAX_SIZE = 2**31 - 1


@dataclass(frozen=True, slots=True)
class HeadRules:
    """What is known beside the tensors; every field may be unknown."""

    known: bool = False
    """False when there is no configuration at all."""
    model_type: str | None = None
    hidden_size: int | None = None
    vocabulary: int | None = None
    valid: int | None = None
    """Ids from here on are padding."""
    tied: bool | None = None
    post: PostHead = field(default_factory=PostHead)
    norm_plus_one: bool = False
    norm_eps: float | None = None
    notes: tuple[str, ...] = ()


def rules_of_config(config: Mapping[str, Any], folder: Path) -> HeadRules:
    """Rules of a Hugging Face model from its `config.json` and the tokenizer beside it."""
    text = config.get("text_config")
    flat = {**config, **text} if isinstance(text, Mapping) else dict(config)
    kind = str(flat.get("model_type") or config.get("model_type") or "")
    where = folder / "config.json"
    scale, used = _scale(flat, kind, where)
    softcap, cap_key = _first_number(flat, _SOFTCAP_KEYS, where)
    unpadded = flat.get("unpadded_vocab_size")
    eps, _ = _first_number(flat, ("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps"), where)
    tied = config.get("tie_word_embeddings", flat.get("tie_word_embeddings"))
    return HeadRules(
        known=True,
        model_type=kind or None,
        hidden_size=_integer(flat.get("hidden_size")),
        vocabulary=_integer(flat.get("vocab_size")),
        valid=_integer(unpadded) or tokenizer_size(folder),
        tied=bool(tied) if tied is not None else None,
        post=PostHead(scale, softcap),
        norm_plus_one=kind in ONE_PLUS_NORMS,
        norm_eps=eps,
        notes=_not_understood(flat, {*used, cap_key}),
    )


def rules_of_gguf(metadata: Mapping[str, Any], where: Path | None = None) -> HeadRules:
    """Rules of a GGUF model from its key-values; `where` is named in errors."""
    arch = str(metadata.get("general.architecture") or "")
    scale = _first_number(metadata, (f"{arch}.logit_scale",), where)[0] or 1.0
    if arch.startswith(_GGUF_DIVIDES):
        scale = 1.0 / scale
    if arch in _GGUF_IN_WEIGHTS:
        scale = 1.0
    softcap, _ = _first_number(metadata, (f"{arch}.final_logit_softcapping",), where)
    attention = f"{arch}.attention.layer_norm"
    eps, _ = _first_number(metadata, (f"{attention}_rms_epsilon", f"{attention}_epsilon"), where)
    used = {f"{arch}.logit_scale", f"{arch}.final_logit_softcapping"}
    return HeadRules(
        # The bare name of an architecture says nothing of its head.
        known=any(key.startswith(f"{arch}.") for key in metadata) if arch else False,
        model_type=arch or None,
        hidden_size=_integer(metadata.get(f"{arch}.embedding_length")),
        vocabulary=_integer(metadata.get(f"{arch}.vocab_size")),
        valid=_gguf_valid(metadata),
        post=PostHead(scale, softcap),
        norm_eps=eps,
        notes=_not_understood(metadata, used),
    )


def tokenizer_size(folder: Path) -> int | None:
    """One more than the largest id in `tokenizer.json`; None when there is no such file."""
    tokenizer = read_tokenizer(folder)
    return tokenizer.size or None if tokenizer else None


def _scale(config: Mapping[str, Any], kind: str, where: Path) -> tuple[float, set[str]]:
    """The factor on logits, and the keys it came from."""
    scale, used = 1.0, set()
    for key, operation in _MULTIPLIED.items():
        if not _is_given(config.get(key)):
            continue
        used.add(key)
        factor = _positive(config[key], key, where)
        way = _SAME_KEY_OTHER_WAY.get((kind, key), operation)
        scale *= factor if way == "multiply" else 1.0 / factor
    base, width = config.get("dim_model_base"), config.get("hidden_size")
    if kind.startswith("minicpm") and base and width:
        scale *= _positive(base, "dim_model_base", where) / _positive(width, "hidden_size", where)
    return _positive(scale, "the factor on logits", where), used


def _first_number(
    config: Mapping[str, Any], keys: tuple[str, ...], where: Path | None = None
) -> tuple[float | None, str | None]:
    """The first of the keys that is given and not zero, and which it was."""
    for key in keys:
        if _is_given(config.get(key)) and config[key] != 0:
            return _positive(config[key], key, where), key
    return None, None


def _is_given(value: Any) -> bool:
    return value is not None and value is not False


def _positive(value: Any, key: str, where: Path | None) -> float:
    """The value, which must be a positive finite number: any other would change proposals."""
    try:
        number = math.nan if isinstance(value, str | bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if 0 < number < math.inf:
        return number
    raise UnreadableError(
        f"{key} is {value!r:.40}: it must be a positive finite number",
        hint="correct the configuration",
        where=where or "",
    )


def _not_understood(config: Mapping[str, Any], used: set[Any]) -> tuple[str, ...]:
    unknown = sorted(
        key
        for key, value in config.items()
        if key not in used and _SUSPECT.search(key) and value not in (None, 0, 1, 1.0, [], False)
    )
    return tuple(
        f"KEY_NOT_UNDERSTOOD: {key} in the configuration may change logits and is not applied"
        for key in unknown
    )


def _gguf_valid(metadata: Mapping[str, Any]) -> int | None:
    """Number of tokens before the `[PAD…]` tokens that converters add at the end."""
    tokens, types = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.token_type")
    if not tokens:
        return None
    valid = len(tokens)
    while valid and str(tokens[valid - 1]).startswith("[PAD"):
        if types is not None and len(types) >= valid and types[valid - 1] != _GGUF_UNUSED_TOKEN:
            break
        valid -= 1
    return valid


def _integer(value: Any) -> int | None:
    """The value where it is a size that a head can have; torch takes none beyond 2^63."""
    return value if type(value) is int and 0 < value <= _MAX_SIZE else None
