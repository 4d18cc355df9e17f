"""Which ids a trim keeps: the first of a list, with those that must be in, and spare ones.

A card of `audit rank` names the ids that stand in it only because they must; they stand last, and
a shorter cut still keeps them, in place of the least frequent others. Of any other list a trim
takes the first ids as they stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from audit.errors import BadUsageError, MismatchError
from audit.heads.vocab_map import check_ids, drop_duplicates, read_id_list
from audit.trims.card import CardFacts, read_facts
from audit.trims.emitted import Ids


@dataclass(frozen=True, slots=True, eq=False)
class Chooser:
    """A list, ready to be cut to any length."""

    card: Path
    ids: Ids
    """Distinct ids of the vocabulary, best first."""
    must: Ids
    """Those of them that any cut keeps."""
    facts: CardFacts | None
    notes: tuple[str, ...] = ()

    def first(self, rows: int) -> Ids:
        """The ids of a trim of `rows` rows, best first.

        Raises:
            BadUsageError: the list has fewer, or they have no room for those that must be in.
        """
        if rows > len(self.ids):
            raise BadUsageError(
                f"{self.card.name} names {len(self.ids):,} distinct ids, {rows:,} were asked for",
                hint=f"ask for at most {len(self.ids)}, or rank more tokens",
                where=self.card,
            )
        if rows < max(len(self.must), 1):
            raise BadUsageError(
                f"{rows:,} rows have no room for the {len(self.must):,} stop, special and byte "
                f"tokens that {self.card.name} keeps",
                hint=f"ask for more than {len(self.must)}",
                where=self.card,
            )
        inside = np.isin(self.ids, self.must)
        optional = np.flatnonzero(~inside)
        kept = np.sort(np.concatenate([np.flatnonzero(inside), optional[: rows - inside.sum()]]))
        return np.asarray(self.ids[kept], np.int64)

    def with_more(self, ids: Sequence[int]) -> Chooser:
        """The same list with further ids at its end, which any cut then keeps."""
        more = np.array([i for i in ids if i not in set(self.ids.tolist())], np.int64)
        longer = np.concatenate([self.ids, more])
        return replace(self, ids=longer, must=np.concatenate([self.must, more]))


def read_chooser(card: Path, vocabulary: int) -> Chooser:
    """A list of any kind that `read_id_list` reads.

    Raises:
        AuditError: it can not be read, or names ids beyond the vocabulary; MismatchError when its
            CARD.json speaks of another vocabulary.
    """
    listed = read_id_list(card)
    facts = read_facts(card)
    if facts and facts.vocabulary != vocabulary:
        raise MismatchError(
            f"{card.name} was made for a vocabulary of {facts.vocabulary:,} ids, this one has "
            f"{vocabulary:,}",
            hint=f"make ranks from traces of this model: it was made for {facts.model}",
            where=card,
        )
    ids = check_ids(drop_duplicates(listed), vocabulary, card)
    notes = []
    if len(ids) < len(listed):
        notes.append(f"{len(listed) - len(ids):,} repeated entries of {card.name} were dropped")
    if facts and facts.padded:
        notes.append(f"{len(facts.padded):,} ids of {card.name} are padding that nobody emitted")
    must = np.array(facts.must if facts else [], np.int64)
    return Chooser(card, ids.numpy(), must, facts, tuple(notes))
