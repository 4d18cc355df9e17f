"""Paired differences of retention as a forest plot: who keeps more than the first head, and where.

The first head is the line at zero. A row whose interval holds zero says nothing either way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from audit.paired import Difference
from audit.report import wording
from audit.report.charts.base import (
    GREEN,
    GREY,
    RED,
    Drawing,
    drawing,
    finite_rows,
    nothing,
    percent_axis,
)
from audit.report.charts.points import short
from audit.report.charts.spans import span_height, span_layers, told_rows

NAME = "paired-retention"
_MOST_ROWS = 60
_COLUMNS = ("x", "x_low", "x_high", "row", "register", "word", "colour", "told")
_WORDS = {"more": GREEN, "less": RED, "": GREY}


def paired_retention(first: str, others: Mapping[str, Sequence[Difference]]) -> Drawing:
    """How much more or less than `first` the other heads keep on each corpus.

    Args:
        first: the head that the others are held against.
        others: head -> its differences to the first, as `diff.outcome_differences` gives them.
    """
    title = f"What other heads keep beside {short(first)}"
    rows = _rows(others)
    if rows.empty:
        return nothing(NAME, title, "no difference of retention could be measured")
    left_out = len(rows) - _MOST_ROWS
    rows = rows.head(_MOST_ROWS)
    axis = percent_axis(f"retention R minus that of {short(first)}, points", signed=True)
    layers = span_layers(rows, axis, mark=0.0, word="word", room=0.1, labels=260)
    title = _finding(first, rows)
    notes = [f"{left_out} further rows are left out."] if left_out > 0 else []
    data = rows.drop(columns="colour").rename(columns={"x": "difference"})
    words = f"{title}. {told_rows(rows)}."
    return drawing(NAME, title, layers, words, data, notes, span_height(rows))


def _rows(others: Mapping[str, Sequence[Difference]]) -> pd.DataFrame:
    """One row per corpus and head, the corpora together."""
    found = [
        (name, one)
        for name, differences in others.items()
        for one in differences
        if one.measure == "retention" and one.corpus is not None
    ]
    corpora = list(dict.fromkeys(one.corpus for _, one in found))
    rows: list[dict[str, Any]] = []
    for name, one in sorted(found, key=lambda pair: corpora.index(pair[1].corpus)):
        place, word = wording.clean(one.corpus or ""), _word(one)
        rows.append(
            {
                "x": one.value, "x_low": one.low, "x_high": one.high,
                "row": place if len(others) == 1 else f"{place} · {short(name)}",
                "register": wording.REGISTER_WORDS[one.register], "word": word,
                "colour": _WORDS[word], "told": _told(one),
            }
        )  # fmt: skip
    return finite_rows(rows, ("x",), _COLUMNS).drop_duplicates("row").reset_index(drop=True)


def _word(one: Difference) -> str:
    if one.low is None or one.high is None or one.low <= 0 <= one.high:
        return ""
    return "more" if one.low > 0 else "less"


def _told(one: Difference) -> str:
    value = wording.number("shift_tax", one.value)
    if one.low is None or one.high is None:
        return f"{value} ({wording.clean(one.reason or 'no interval')})"
    ends = (wording.number("shift_tax", end) for end in (one.low, one.high))
    return f"{value} ({' to '.join(ends)})"


def _finding(first: str, rows: pd.DataFrame) -> str:
    counts = {word: int((rows["word"] == word).sum()) for word in ("more", "less")}
    told = [f"{word} on {number}" for word, number in counts.items() if number]
    if not told:
        return f"On no corpus is a difference to {short(first)} shown"
    where = "rows" if len(rows) > 1 else "row"
    return f"Kept beside {short(first)}: {' and '.join(told)} of {len(rows)} {where}"
