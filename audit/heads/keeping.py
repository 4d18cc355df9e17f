"""Ids that a trim must keep whatever a text says: without them a draft can not end a text, open a
turn, or write a character that has no token of its own.

Special tokens that a tokenizer only reserves (`<unused17>`, `<|reserved_special_token_3|>`) are
left out: no model emits them, and Gemma alone has 6,241.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from audit.heads.tokens import Tokens

KINDS = ("stop", "special", "byte")
_RESERVED = re.compile(r"\W*_*(extra_id|unused|reserved|pad)\w*\d+\W*", re.IGNORECASE)


def kept_ids(tokens: Tokens) -> dict[str, list[int]]:
    """Ids by kind, ascending, each under the first of KINDS that holds it."""
    pieces = tokens.pieces
    words = pieces.words if pieces else {}
    special = {i for i in tokens.kinds.special if not _RESERVED.fullmatch(words.get(i, ""))}
    byte = tokens.kinds.byte | (pieces.lone_bytes() if pieces else frozenset())
    found: dict[str, list[int]] = {}
    taken: set[int] = set()
    for kind, ids in zip(KINDS, (tokens.kinds.stop, special, byte), strict=True):
        found[kind] = sorted(set(ids) - taken)
        taken |= set(ids)
    return found


def lost_ids(wanted: Mapping[str, Iterable[int]], kept: Iterable[int]) -> dict[str, list[int]]:
    """Of the ids wanted, by kind, those that are not among `kept`."""
    there = set(kept)
    return {kind: sorted(set(ids) - there) for kind, ids in wanted.items()}
