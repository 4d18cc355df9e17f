"""Which tokens a trimmed head can not say: stop, special and byte tokens, and classes of text.

Codes: STOP_LOST, SPECIAL_LOST, BYTE_LOST, CLASS_COVERAGE, CLASS_LOST. Without the stop ids a draft
never ends a text, without bytes it can not write what has no token of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from audit.catalogue import TOKEN_CLASSES
from audit.heads.head import Head
from audit.heads.tokens import TokenKinds, Tokens
from audit.heads.told import Found
from audit.records import Severity
from audit.words import some

_SHOWN = 5
_KINDS: tuple[tuple[str, Severity, str], ...] = (
    ("STOP_LOST", "warning", "stop"),
    ("SPECIAL_LOST", "note", "special"),
    ("BYTE_LOST", "note", "byte"),
)


def lost_tokens(head: Head, kinds: TokenKinds) -> Found:
    """Stop, special and byte tokens without a row; nothing for a head of every id."""
    if head.is_full:
        return
    kept = set(head.ids.tolist())
    known = head.vocabulary if head.valid is None else head.valid
    for code, severity, what in _KINDS:
        ids: frozenset[int] = getattr(kinds, what)
        lost = sorted(i for i in ids if i not in kept and i < known)
        if lost:
            told = f"{len(lost)} of {len(ids)} {what} tokens have no row"
            yield code, severity, f"{told} (ids {some(lost, _SHOWN)})"


def class_coverage(head: Head, tokens: Tokens) -> dict[str, tuple[int, int]]:
    """Token class -> (ids with a row, ids in all), in the order of the catalogue.

    Empty for a head of every id, and where no tokenizer is known.
    """
    if head.is_full or tokens.pieces is None:
        return {}
    ids = np.array(sorted(i for i in tokens.pieces.words if i < head.vocabulary), dtype=np.int64)
    classes = tokens.classes(ids)
    kept = np.isin(ids, head.ids.numpy())
    counts = {
        name: (int(kept[classes == name].sum()), int((classes == name).sum()))
        for name in TOKEN_CLASSES
    }
    return {name: pair for name, pair in counts.items() if pair[1]}


def coverage_findings(coverage: dict[str, tuple[int, int]]) -> Found:
    """One note for classes that lost rows, one warning for classes that lost all of theirs."""
    if lost := list(_partly(coverage)):
        yield "CLASS_COVERAGE", "note", f"rows by token class: {', '.join(lost)}"
    gone = [name for name, (kept, _) in coverage.items() if not kept]
    if gone:
        yield (
            "CLASS_LOST",
            "warning",
            f"no token of class {some(gone, len(TOKEN_CLASSES))} has a row: text of it can never "
            "be drafted",
        )


def _partly(coverage: dict[str, tuple[int, int]]) -> Iterator[str]:
    for name, (kept, every) in coverage.items():
        if kept < every:
            yield f"{name} {kept:,} of {every:,}"
