"""Special ids of configurations, held against the vocabulary that a head really has.

A trim that leaves `eos_token_id` as it was names another word, or none. Codes: SPECIAL_ID_OUTSIDE,
SPECIAL_ID_CHANGED, SUPPRESSED_TOKENS, TOKENS_DIFFER. Words are compared within one container format
only, since converters to GGUF rewrite some of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from audit.errors import MismatchError
from audit.files import Container
from audit.heads.head import Head
from audit.heads.tokens import Tokens, read_sidecar
from audit.heads.told import Found
from audit.words import count, some

_END = "_token_id"
_SHOWN = 5


def check_ids_known(container: Container, head: Head) -> Found:
    """Special ids beyond the head's vocabulary, and tokens that generation never emits."""
    for key, index in _special_ids(container):
        if index >= head.vocabulary:
            yield (
                "SPECIAL_ID_OUTSIDE",
                "warning",
                f"{key} is {index}, and the vocabulary has {head.vocabulary} ids: the "
                "configuration was not changed when the vocabulary was cut",
            )
    suppressed = _generation(container).get("suppress_tokens")
    if isinstance(suppressed, list) and suppressed:
        yield (
            "SUPPRESSED_TOKENS",
            "warning",
            f"generation_config.json suppresses {count(len(suppressed), 'token')} "
            f"({some(suppressed, _SHOWN)}), which is not applied: an engine that does so never "
            "emits them",
        )


def check_same_words(
    ref: Container, ref_tokens: Tokens, cand: Container, cand_tokens: Tokens, is_full: bool
) -> Found:
    """Special ids that name another word in the candidate's files than in the reference's.

    Args:
        is_full: the candidate has a row for every id, so its tokenizer's ids are the target's.

    Raises:
        MismatchError: TOKENS_DIFFER, one id stands for two words, with the first five of them.
    """
    if ref.format != cand.format or ref_tokens.pieces is None or cand_tokens.pieces is None:
        return
    ours, theirs = ref_tokens.pieces.words, cand_tokens.pieces.words
    if is_full:
        _check_words(ours, theirs, cand)
    before = dict(_special_ids(ref))
    for key, index in _special_ids(cand):
        was = before.get(key)
        if was is not None and ours.get(was) != theirs.get(index):
            yield (
                "SPECIAL_ID_CHANGED",
                "warning",
                f"{key} is {index} ({theirs.get(index)!a:.40}), in the reference's files {was} "
                f"({ours.get(was)!a:.40}): the two end or pad texts with different words",
            )


def _check_words(ours: Mapping[int, str], theirs: Mapping[int, str], cand: Container) -> None:
    other = sorted(i for i in ours.keys() & theirs.keys() if ours[i] != theirs[i])
    if not other:
        return
    told = "; ".join(f"{i}: {ours[i]!a:.30} and {theirs[i]!a:.30}" for i in other[:_SHOWN])
    raise MismatchError(
        f"{count(len(other), 'id')} of the candidate's tokenizer stand for other words than the "
        f"reference's ({told})",
        hint="heads of one tokenizer can be compared; if the file beside it is another model's, "
        "move the head into a folder of its own",
        where=cand.path,
        code="TOKENS_DIFFER",
    )


def _special_ids(container: Container) -> Iterator[tuple[str, int]]:
    """Key and id of every special id that the configurations name; lists give one pair each."""
    if container.format == "gguf":
        places: list[Mapping[str, Any]] = [container.metadata]
    else:
        places = [container.config or {}, _generation(container)]
    seen = set()
    for place in places:
        for key, value in place.items():
            for index in value if isinstance(value, list) else [value]:
                known = str(key).endswith(_END) and type(index) is int and index >= 0
                if known and (key, index) not in seen:
                    seen.add((key, index))
                    yield str(key).removeprefix("tokenizer.ggml."), index


def _generation(container: Container) -> Mapping[str, Any]:
    if container.format == "gguf":
        return {}
    return read_sidecar(container.files[0].parent / "generation_config.json") or {}
