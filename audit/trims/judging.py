"""Is a list any good? One word and the sentence that says why.

- *padded*: part of it ranks nothing.
- *foreign*: on every text it loses what another model's list loses, against this model's own list
  of the same length, and lacks many of the ids that this model emits.
- *poor*: its ceiling is low on some of the texts.
- *good*: none of these.

Imports no torch, and sees only what `checking` measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from audit.records import Estimate
from audit.records.base import Record

Word = Literal["good", "padded", "foreign", "poor"]

FOREIGN_COST = 0.12
"""Acceptance that ranks from another model cost (published study)."""
LEAST_CEILING = 0.946
"""Of the published trim of 32,768 rows: 98.9 % on code, 94.6 % on chat."""
MOST_PADDED = 0.05
"""Ours: a few repeated stop ids do no harm. The study's bad list had 66 %."""
_SHOWN = 4


class Threshold(Record):
    """A limit and where it comes from."""

    name: str
    value: float
    source: str


THRESHOLDS = (
    Threshold(
        name="padded_share", value=MOST_PADDED,
        source="head-audit's own: a few repeated stop ids do no harm; the published study's bad "
        "list of 32,768 entries had 11,114 distinct ids, so 66 %",
    ),
    Threshold(
        name="foreign_cost", value=FOREIGN_COST / 2,
        source="midway between a list of the model's own (0) and another model's, which costs "
        "about 12 points (published study)",
    ),
    Threshold(
        name="foreign_overlap", value=1 - FOREIGN_COST,
        source="a list that lacks as large a share of the model's own ids as another model's "
        "list loses of its tokens (published study: 12 points)",
    ),
    Threshold(
        name="ceiling", value=LEAST_CEILING,
        source="the lower of the two texts of the published study's trim of 32,768 rows",
    ),
)  # fmt: skip


class OwnList(Record):
    """What the list loses against one of this model's own, ranked on the other sequences."""

    corpus: str
    register_: str
    rows: int
    """Of the own list: as many as were emitted on the other sequences, at most the list's."""
    own_coverage: float
    coverage: float
    cost: float
    """own_coverage - coverage."""
    low: float | None
    high: float | None
    reason: str | None


class CardVerdict(Record):
    """The word, and why."""

    word: Word
    sentence: str


def judge_card(
    *,
    distinct: int,
    listed: int,
    outside: int,
    repeated: int,
    filled: int,
    overlap: float,
    own: Sequence[OwnList],
    ceilings: Sequence[Estimate],
) -> CardVerdict:
    """The verdict on a list.

    Args:
        distinct: ids within the vocabulary, each once.
        listed: entries of the list.
        outside, repeated: entries beyond the vocabulary, entries named before.
        filled: ids that only fill it up.
        overlap: share of this model's own most frequent ids that it holds.
        own, ceilings: per corpus.
    """
    ranked = distinct - filled
    if outside:
        return CardVerdict(
            word="foreign",
            sentence=f"foreign: {outside:,} of {listed:,} entries are no ids of this "
            "model's vocabulary, so the list is another vocabulary's",
        )
    if repeated + filled > MOST_PADDED * listed:
        what = [
            f"{count:,} {words}"
            for count, words in (
                (repeated, "repeat an earlier one"),
                (filled, "only fill it up with ids left over"),
            )
            if count
        ]
        return CardVerdict(
            word="padded",
            sentence=f"padded: {ranked:,} of its {listed:,} entries rank anything; "
            f"{' and '.join(what)}: ask for no more rows than {ranked:,}",
        )
    if _is_foreign(overlap, own):
        return _foreign(overlap, own)
    return _by_ceiling(ceilings, own)


def _is_foreign(overlap: float, own: Sequence[OwnList]) -> bool:
    """Costly beyond chance on every text. One text alone may simply be another than ranked."""
    costly = all(
        one.cost >= FOREIGN_COST / 2 and one.low is not None and one.low > 0.0 for one in own
    )
    return bool(own) and costly and overlap < 1 - FOREIGN_COST


def _foreign(overlap: float, own: Sequence[OwnList]) -> CardVerdict:
    least = min(own, key=lambda one: one.cost)
    return CardVerdict(
        word="foreign",
        sentence=f"foreign: it holds {_percent(overlap)} of the ids that this model emits most, "
        f"and on its best text, {least.corpus}, it covers {100 * least.cost:.1f} points less than "
        "the model's own list of at most as many rows: made for another model, or for other "
        "text than all of this",
    )


def _by_ceiling(ceilings: Sequence[Estimate], own: Sequence[OwnList]) -> CardVerdict:
    known = sorted((e for e in ceilings if e.value is not None), key=lambda e: e.value or 0.0)
    poor = [e for e in known if (e.value or 0.0) < LEAST_CEILING]
    named = [f"{e.corpus} {_percent(e.value)}" for e in (poor or known)]
    if not poor:
        return CardVerdict(
            word="good",
            sentence=f"good: the ceiling that it sets on acceptance is lowest on {named[0]} "
            f"(limit {_percent(LEAST_CEILING)})",
        )
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    open_ = [e.corpus for e in poor if e.high is None or e.high >= LEAST_CEILING]
    unsure = f"; the interval on {', '.join(map(str, open_))} reaches it" if open_ else ""
    fine = len(known) - len(poor)
    return CardVerdict(
        word="poor",
        sentence=f"poor: no draft with it can be accepted more often than on "
        f"{', '.join(named[:_SHOWN])}{more} (limit {_percent(LEAST_CEILING)}{unsure}); "
        f"it is above on {fine} of {len(known)} texts",
    )


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0.0):.1f} %"
