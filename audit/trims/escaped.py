"""Tokens that the verifier emits and a trim can not say: which cost most, and what spare rows win.

A missing id costs the share of positions whose oracle it is: so much of the ceiling. Acceptance
costs less, since the reference would not have proposed every one of them; where the reference was
run, that is counted too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from audit.heads.tokens import Tokens
from audit.records.base import Record
from audit.trims.emitted import Emitted, Ids


class Escaped(Record):
    """One id that a trim lacks."""

    id: int
    text: str | None
    """What it stands for, as it is: whoever shows it makes it harmless. None without tokenizer."""
    token_class: str | None
    positions: int
    """Positions whose oracle it is."""
    share: float
    """Of all positions: what the ceiling would gain."""
    worst_corpus: str
    """Where it is emitted most often, by share."""
    running_share: float
    """This and all costlier ids together."""


def escaped_ids(
    given: Sequence[Emitted], kept: Ids, vocabulary: int, tokens: Tokens | None = None
) -> list[Escaped]:
    """All ids that were emitted and are not `kept`, the costliest first, of equal ones the lower.

    Pooled over positions, as every headline is.
    """
    per_corpus = np.stack([one.counts(vocabulary) for one in given])
    lengths = np.array([len(one.oracle) for one in given])
    counts = per_corpus.sum(0)
    counts[kept] = 0
    ids = np.flatnonzero(counts)
    ids = ids[np.lexsort((ids, -counts[ids]))]
    classes = tokens.classes(ids) if tokens else np.full(len(ids), None)
    running = np.cumsum(counts[ids]) / lengths.sum()
    worst = (per_corpus[:, ids] / lengths[:, None]).argmax(0)
    return [
        Escaped(
            id=int(i),
            text=_text(tokens, int(i)),
            token_class=classes[at],
            positions=int(counts[i]),
            share=float(counts[i] / lengths.sum()),
            worst_corpus=given[int(worst[at])].corpus,
            running_share=float(running[at]),
        )
        for at, i in enumerate(ids)
    ]


def _text(tokens: Tokens | None, index: int) -> str | None:
    if tokens is None or tokens.pieces is None or index not in tokens.pieces.words:
        return None
    text, _ = tokens.pieces.text(index)
    # Part of a character has no text; its stored spelling says at least which bytes.
    return text or tokens.pieces.words[index]
