"""A ranked vocabulary from what the verifier emits.

An id's score is the weighted sum of its shares of the corpora, kept exact so that ties are ties:
most frequent first, of equal ones the lower id. Ids that must be kept and were never seen stand
last, within the number of rows asked for. Nothing is filled up unless that is asked for by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np

from audit.errors import BadUsageError
from audit.trims.emitted import Emitted, Ids


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """A ranked vocabulary and where each id of it comes from."""

    ids: Ids
    """[rows], most frequent first."""
    counts: Ids
    """[vocabulary], how often each id was emitted, over all corpora that count."""
    seen: int
    """Distinct ids that were emitted, in the card or not."""
    forced: dict[str, list[int]]
    """Ids that stand in the card only because they must be kept, by kind."""
    padded: list[int]
    """Ids that nobody emitted and nobody needs."""

    @property
    def seen_kept(self) -> int:
        """How many of the card's ids were really seen."""
        return int((self.counts[self.ids] > 0).sum())


def make_ranks(
    given: Sequence[Emitted],
    weights: Mapping[str, Fraction],
    keep: Mapping[str, Sequence[int]],
    vocabulary: int,
    rows: int | None = None,
    *,
    pad: bool = False,
) -> Ranks:
    """Rank what was emitted.

    Args:
        given: one entry per corpus.
        weights: weight by corpus, at least one above 0; a corpus of weight 0 is not counted.
        keep: ids that must be in, by kind, each once.
        vocabulary: number of target ids.
        rows: how many ids are wanted; None for all there are.
        pad: fill up with the lowest ids left over where there are fewer.

    Raises:
        BadUsageError: fewer ids than `rows` without `pad`; `rows` too few for `keep`, or more than
            the vocabulary.
    """
    counted = [one for one in given if weights[one.corpus] > 0]
    counts = sum((one.counts(vocabulary) for one in counted), np.zeros(vocabulary, np.int64))
    ranked = _ranked(counted, weights, counts, vocabulary)
    must = np.array(sorted(i for ids in keep.values() for i in ids), np.int64)
    unseen = must[counts[must] == 0]
    there = len(ranked) + len(unseen)
    wanted = there if rows is None else rows
    _check_rows(wanted, there, len(must), len(ranked), vocabulary, pad)
    ids = _fit(ranked, must, unseen, wanted)
    spare = np.setdiff1d(np.arange(vocabulary), ids)[: max(0, wanted - there)]
    forced = {kind: [i for i in ids if counts[i] == 0] for kind, ids in keep.items()}
    return Ranks(np.concatenate([ids, spare]), counts, len(ranked), forced, spare.tolist())


def _ranked(
    given: Sequence[Emitted], weights: Mapping[str, Fraction], counts: Ids, vocabulary: int
) -> Ids:
    """Ids that were emitted, by weighted share. Whole numbers of any size keep it exact."""
    shares = [weights[one.corpus] / len(one.oracle) for one in given]
    scale = lcm(*(share.denominator for share in shares))
    seen = np.flatnonzero(counts)
    scores = np.zeros(len(seen), object)
    for one, share in zip(given, shares, strict=True):
        scores += one.counts(vocabulary)[seen].astype(object) * int(share * scale)
    order = sorted(range(len(seen)), key=lambda i: (-scores[i], seen[i]))
    return np.asarray(seen[order], np.int64)


def _fit(ranked: Ids, must: Ids, unseen: Ids, rows: int) -> Ids:
    """The best `rows` ids that hold all of `must`: the least frequent others give way."""
    surplus = max(0, len(ranked) + len(unseen) - rows)
    optional = np.flatnonzero(~np.isin(ranked, must))
    dropped = optional[len(optional) - surplus :] if surplus else optional[:0]
    return np.concatenate([np.delete(ranked, dropped), unseen])


def _check_rows(wanted: int, there: int, must: int, seen: int, vocabulary: int, pad: bool) -> None:
    if wanted > vocabulary:
        raise BadUsageError(
            f"{wanted:,} rows were asked for, and the vocabulary has {vocabulary:,} ids",
            hint="ask for fewer: --rows",
        )
    if wanted < max(must, 1):
        raise BadUsageError(
            f"{wanted:,} rows have no room for the {must:,} stop, special and byte tokens",
            hint="ask for more: --rows",
        )
    if wanted > there and not pad:
        raise BadUsageError(
            f"{wanted:,} rows were asked for, and there are {there:,} ids: {seen:,} were emitted "
            f"on these traces, {there - seen:,} more must be kept",
            hint=f"--rows {there}, or record more text; --pad fills up with ids never seen, marked",
        )
