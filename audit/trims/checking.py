"""Any list of ids held against what a model really emits.

Coverage is the share of the verifier's tokens that the list holds: the ceiling of every draft with
these rows. Two more figures tell why it is low. Against *the model's own list* of the same length,
ranked on the other half of the sequences and so not on the text it is tried on, the list's cost
shows; and the last rows of the list show by themselves what they bring.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from audit.errors import MismatchError
from audit.estimates import Facts, estimate_by_class, estimate_some
from audit.heads.keeping import kept_ids, lost_ids
from audit.heads.tokens import Tokens
from audit.heads.vocab_map import read_id_list
from audit.records import Estimate
from audit.records.base import Record
from audit.stats import Floats, Resampling, divide, percentile_interval
from audit.trims.card import CardFacts, read_facts
from audit.trims.emitted import Emitted, Ids, most_frequent
from audit.trims.judging import THRESHOLDS, CardVerdict, OwnList, Threshold, judge_card
from audit.trims.padding import Sorted, take_apart

_CEILING = "vocabulary_ceiling"
_LAST = 1000


class Marginal(Record):
    """What the last rows of the list bring: the coverage they add."""

    rows: int
    gained: list[Estimate]


class CardCheck(Record):
    """Everything that is known of a list."""

    card: str
    listed: int
    distinct: int
    outside: int
    repeated: int
    filled: int
    is_sorted: bool
    """In the order of ids: then it is no ranking, and no prefix of it means anything."""
    vocabulary: int
    never_seen: int
    """Ids of the list that were not emitted on these traces."""
    never_seen_tail: int
    """Entries at its end of which none was."""
    seen: int
    """Distinct ids that were emitted on these traces."""
    missing: int
    """Of those, how many the list lacks."""
    lost: dict[str, list[int]] | None
    """Stop, special and byte tokens without a row; None where no model was given."""
    overlap: float
    """Share of the model's own most frequent ids, as many as the list has, that it holds."""
    overlap_of: int
    """How many ids that is: the length of the list, or as many as were emitted."""
    coverage: list[Estimate]
    coverage_by_class: list[Estimate]
    own_list: list[OwnList]
    marginal: Marginal
    facts: CardFacts | None
    """What CARD.json says; without its lists in `--json`."""
    notes: list[str]
    verdict: CardVerdict
    thresholds: tuple[Threshold, ...] = THRESHOLDS


def check_card(
    card: Path,
    given: Sequence[Emitted],
    vocabulary: int,
    how: Resampling,
    tokens: Tokens | None = None,
) -> CardCheck:
    """Judge a list of ids, of any kind that `read_id_list` reads.

    Raises:
        AuditError: the list can not be read; MismatchError when no id of it is in the vocabulary.
    """
    listed = read_id_list(card).numpy()
    facts = read_facts(card)
    keep = kept_ids(tokens) if tokens else {}
    needed = {i for ids in keep.values() for i in ids} | set(facts.must if facts else ())
    parts = take_apart(listed, vocabulary, needed)
    if len(parts.ids) == 0:
        raise MismatchError(
            f"none of the {len(listed):,} entries is an id of this vocabulary of {vocabulary:,}",
            hint="this is the list of another model",
            where=card,
        )
    filled = max(parts.filled, len(facts.padded) if facts else 0)
    counts = sum((one.counts(vocabulary) for one in given), np.zeros(vocabulary, np.int64))
    mine = most_frequent(counts, len(parts.ids))
    overlap = float(np.isin(mine, parts.ids).mean())
    coverage = _ceilings(given, parts.ids, how)
    own = own_lists(given, parts.ids, vocabulary, how)
    verdict = judge_card(
        distinct=len(parts.ids), listed=parts.listed, outside=parts.outside,
        repeated=parts.repeated, filled=filled, overlap=overlap, own=own,
        ceilings=[e for e in coverage if e.corpus],
    )  # fmt: skip
    emitted_here = counts[parts.ids] > 0
    return CardCheck(
        card=card.name,
        listed=parts.listed,
        distinct=len(parts.ids),
        outside=parts.outside,
        repeated=parts.repeated,
        filled=filled,
        is_sorted=bool((np.diff(parts.ids) > 0).all()) and len(parts.ids) > 1,
        vocabulary=vocabulary,
        never_seen=int((~emitted_here).sum()),
        never_seen_tail=int(np.argmax(emitted_here[::-1])) if emitted_here.any() else len(mine),
        seen=int((counts > 0).sum()),
        missing=int((counts > 0).sum() - emitted_here.sum()),
        lost=lost_ids(keep, parts.ids.tolist()) if tokens else None,
        overlap=overlap,
        overlap_of=len(mine),
        coverage=coverage,
        coverage_by_class=_by_class(given, parts.ids, how),
        own_list=own,
        marginal=_marginal(given, parts.ids, how),
        facts=facts,
        notes=_notes(parts, facts, given),
        verdict=verdict,
    )


def own_lists(
    given: Sequence[Emitted], ids: Ids, vocabulary: int, how: Resampling
) -> list[OwnList]:
    """For each corpus, what `ids` lose against the model's own list of at most as many rows.

    Sequences of even and of odd number are two folds; each is covered by the list that the other
    ranks, over all corpora.
    """
    lists = []
    for fold in (0, 1):
        other = [one.oracle[one.sequence % 2 != fold] for one in given]
        counts = np.bincount(np.concatenate(other), minlength=vocabulary)
        lists.append(most_frequent(counts, len(ids)))
    return [_own_list(one, ids, lists, how) for one in given]


def _own_list(one: Emitted, ids: Ids, lists: Sequence[Ids], how: Resampling) -> OwnList:
    inside = np.isin(one.oracle, ids)
    covered = [np.isin(one.oracle, own) for own in lists]
    own = np.where(one.sequence % 2 == 0, covered[0], covered[1])
    _, place = np.unique(one.sequence, return_inverse=True)
    sums = np.stack([np.bincount(place, column) for column in (own, inside, np.ones(len(own)))], 1)
    draws = how.weights(one.corpus, len(sums)) @ sums
    interval = percentile_interval(_cost(draws), len(sums), how.level)
    return OwnList(
        corpus=one.corpus,
        register_=one.trace.info.register_,
        rows=min(map(len, lists)),
        own_coverage=float(own.mean()),
        coverage=float(inside.mean()),
        cost=float(own.mean() - inside.mean()),
        low=interval.low,
        high=interval.high,
        reason=interval.reason,
    )


def _cost(sums: Floats) -> Floats:
    return divide(sums[:, 0] - sums[:, 1], sums[:, 2])


def _ceilings(given: Sequence[Emitted], ids: Ids, how: Resampling) -> list[Estimate]:
    frames = [one.frame(ids) for one in given]
    return estimate_some([_CEILING], frames, Facts(trimmed=True), how)


def _by_class(given: Sequence[Emitted], ids: Ids, how: Resampling) -> list[Estimate]:
    frames = [one.frame(ids) for one in given]
    return estimate_by_class([_CEILING], frames, Facts(trimmed=True), how)


def _marginal(given: Sequence[Emitted], ids: Ids, how: Resampling) -> Marginal:
    """Coverage by the last thousand rows alone, or by the last half of a short list."""
    rows = max(1, min(_LAST, len(ids) // 2))
    return Marginal(rows=rows, gained=_ceilings(given, ids[-rows:], how))


def _notes(parts: Sorted, facts: CardFacts | None, given: Sequence[Emitted]) -> list[str]:
    notes = []
    if (np.diff(parts.ids) > 0).all() and len(parts.ids) > 1:
        notes.append("the ids stand in ascending order: this is a set, not a ranking")
    if facts is None:
        return notes
    if facts.padded:
        notes.append(f"CARD.json says that {len(facts.padded):,} of its ids are padding")
    theirs, ours = facts.tokenizer_sha256, given[0].trace.info.tokenizer_sha256
    if theirs and ours and theirs != ours:
        notes.append(f"CARD.json says it was made for another tokenizer, of {facts.model}")
    return notes
