"""Measures per corpus or token class as a forest plot: estimate, interval, the policy's limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from audit.records import Candidate, Estimate, LimitResult
from audit.report import wording
from audit.report.charts.base import (
    OUTCOME,
    RED,
    Drawing,
    base,
    drawing,
    finite_rows,
    nothing,
    percent_axis,
)
from audit.report.charts.points import LABEL, thresholds_of
from audit.report.charts.spans import span_height, span_layers, told_rows

_COLUMNS = ("x", "x_low", "x_high", "row", "register", "outcome", "colour", "told")
_MOST_ROWS = 60
_WHOLE = 1.0
"""Nothing lost: drawn as a line to compare with."""


def retention_by_corpus(candidate: Candidate) -> Drawing:
    """Retention on each corpus, the worst first, against the limits on it."""
    name = wording.clean(candidate.head.name)
    found = [e for e in candidate.estimates if e.measure == "retention" and e.corpus]
    found = [e for e in found if e.token_class is None]
    limits = candidate.gate.limits if candidate.gate else ()
    wanted = [x for x in limits if x.measure == "retention" and x.token_class is None]
    rows = _frame(found, wanted)
    title = f"What {name} keeps on each corpus"
    if len(rows):
        worst = rows.iloc[0]
        title = f"{name} keeps least on {worst['row']}: {worst['told']}"
    return _forest(
        "retention-by-corpus", title, rows, wanted, "retention R, % of the reference's acceptance",
        "no retention was measured on any corpus",
    )  # fmt: skip


def ceiling_by_class(candidate: Candidate) -> Drawing:
    """The vocabulary ceiling of each class of tokens, the lowest first."""
    name = wording.clean(candidate.head.name)
    found = [e for e in candidate.estimates if e.measure == "vocabulary_ceiling" and e.token_class]
    if any(e.corpus is None for e in found):
        found = [e for e in found if e.corpus is None]
    limits = candidate.gate.limits if candidate.gate else ()
    wanted = [x for x in limits if x.measure == "vocabulary_ceiling" and x.token_class]
    rows = _frame(found, wanted)
    title = f"Which tokens {name} can say"
    if len(rows) and not wanted and rows["x"].min() >= 1.0:
        return nothing("ceiling-by-token-class", title, "every token that the verifier wanted")
    if len(rows) and rows["x"].min() < 1.0:
        worst = rows.iloc[0]
        title = f"{name} can say fewest of {worst['row']}: {worst['told']}"
    elif len(rows):
        title = f"{name} can say every token that the verifier wanted"
    return _forest(
        "ceiling-by-token-class", title, rows, wanted,
        "vocabulary ceiling, % of the verifier's tokens", "no estimate was made by token class",
    )  # fmt: skip


def _frame(estimates: Sequence[Estimate], limits: Sequence[LimitResult]) -> pd.DataFrame:
    """One row per estimate, the lowest first, with the outcome of the limit that it decided."""
    rows: list[dict[str, Any]] = []
    for e in estimates:
        decided = [limit for limit in limits if _is_about(limit, e)]
        outcome = min((x.outcome for x in decided), default=None)  # fail before pass
        rows.append(
            {
                "x": e.value, "x_low": e.low, "x_high": e.high,
                "row": _row_name(e),
                "register": wording.REGISTER_WORDS.get(e.register_ or "", "–"),
                "outcome": outcome or "", "colour": OUTCOME[outcome],
                "told": f"{wording.number(e.measure, e.value)} ({wording.interval(e)})",
            }
        )  # fmt: skip
    frame = finite_rows(rows, ("x",), _COLUMNS).sort_values("x", kind="stable")
    return frame.drop_duplicates(["row", "register"]).reset_index(drop=True)


def _row_name(estimate: Estimate) -> str:
    if estimate.token_class:
        place = f" on {wording.clean(estimate.corpus)}" if estimate.corpus else ""
        return wording.clean(estimate.token_class) + place
    return wording.clean(estimate.corpus or "all")


def _is_about(limit: LimitResult, estimate: Estimate) -> bool:
    """Whether the limit was decided on this very estimate."""
    return (
        limit.corpus == estimate.corpus
        and limit.token_class == estimate.token_class
        and limit.register_ in (None, estimate.register_)
    )


def _forest(
    name: str, title: str, rows: pd.DataFrame, limits: Sequence[LimitResult], axis: str, reason: str
) -> Drawing:  # fmt: skip
    """One row per estimate beside the mark of no loss, or the reason why there is none."""
    if rows.empty:
        return nothing(name, title, reason)
    left_out = len(rows) - _MOST_ROWS
    rows = rows.head(_MOST_ROWS)
    notes = [f"{left_out} better rows are left out."] if left_out > 0 else []
    thresholds = thresholds_of(limits)
    layers = span_layers(
        rows, percent_axis(axis), mark=_WHOLE, rules=_limit_rules(thresholds), reach=thresholds,
        word="outcome",
    )  # fmt: skip
    notes += [wording.clean(limit.sentence) for limit in limits]
    data = rows.drop(columns=["colour"]).rename(columns={"x": "value"})
    words = f"{title}. {told_rows(rows)}."
    return drawing(name, title, layers, words, data, notes, span_height(rows))


def _limit_rules(thresholds: Sequence[float]) -> list[alt.Chart]:
    if not thresholds:
        return []
    frame = pd.DataFrame({"x": thresholds})
    layers = [base(frame).mark_rule(color=RED, strokeDash=[5, 3]).encode(x="x:Q")]
    for place, threshold in enumerate(thresholds):
        label = pd.DataFrame({"x": [threshold], "label": [f"limit {100 * threshold:g} %"]})
        text = base(label).mark_text(
            align="left", dx=3, fontSize=10, color=LABEL, baseline="top", y=2 + 11 * place
        )
        layers.append(text.encode(x="x:Q", text="label:N"))
    return layers
