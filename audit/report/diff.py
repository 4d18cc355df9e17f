"""A difference between two recorded candidates, as rows of text."""

from __future__ import annotations

from collections.abc import Sequence

from audit.diff import InputDifference
from audit.paired import Difference
from audit.report import wording
from audit.report.wording import clean

INPUTS = ("differs", "a", "b")
OUTCOMES = ("b minus a", "on", "a", "b", "difference", "interval", "only a", "only b")
_HASH = 64


def input_rows(differences: Sequence[InputDifference]) -> list[list[str]]:
    """What went in differently; hashes shortened."""
    return [[clean(one.what), _shown(one.a), _shown(one.b)] for one in differences]


def outcome_rows(differences: Sequence[Difference]) -> list[list[str]]:
    """Differences by measure; a register's pooled row only where it pools several corpora."""
    corpora = [one.register for one in differences if one.corpus and one.measure == "retention"]
    shown = [one for one in differences if one.corpus or corpora.count(one.register) > 1]
    return [_row(one) for one in sorted(shown, key=lambda one: one.measure)]


def verdict_of(difference: Difference, a: str, b: str) -> str | None:
    """Which of the two keeps more, in one sentence; None unless it is a pooled retention."""
    place = wording.REGISTER_WORDS[difference.register]
    if difference.measure != "retention" or difference.corpus is not None:
        return None
    if difference.value is None:
        return f"{place}: no difference of retention: {difference.reason}"
    points = _signed(difference.value)
    if difference.low is None or difference.high is None:
        return f"{place}: {points} of retention, without an interval: {difference.reason}"
    span = f"{points} ({_signed(difference.low)} to {_signed(difference.high)})"
    if difference.low > 0 or difference.high < 0:
        better = b if difference.low > 0 else a
        return f"{place}: {clean(better)} keeps more, {span} of retention"
    return f"{place}: no difference is shown, {span} of retention"


def _row(one: Difference) -> list[str]:
    low, high = one.low, one.high
    span = one.reason or "no interval"
    if low is not None and high is not None:
        span = f"{_signed(low)} to {_signed(high)}"
    return [
        wording.measure_title(one.measure),
        clean(one.corpus) if one.corpus else wording.REGISTER_WORDS[one.register],
        wording.number(one.measure, one.a),
        wording.number(one.measure, one.b),
        "–" if one.value is None else _signed(one.value),
        span,
        f"{one.only_a:,}",
        f"{one.only_b:,}",
    ]


def _signed(value: float) -> str:
    """A difference in points, with its sign."""
    points = round(100 * value, 2) + 0.0
    return f"{points:+.2f} pt" if points else "0.00 pt"


def _shown(value: str | None) -> str:
    if value is None:
        return "–"
    return clean(value[:16] if len(value) == _HASH else value)
