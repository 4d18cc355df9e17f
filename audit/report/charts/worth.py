"""What a head is worth in the model of `audit cost`: acceptance beyond break-even, text by text."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from audit.records import Candidate, Estimate
from audit.report import wording
from audit.report.charts.base import (
    BLUE,
    GREEN,
    RED,
    Drawing,
    drawing,
    finite_rows,
    nothing,
    percent_axis,
)
from audit.report.charts.spans import span_height, span_layers, told_rows

MEASURE = "break_even_margin"
_NAME = "margin-to-break-even"
_COLUMNS = ("x", "x_low", "x_high", "row", "register", "colour", "told")
_MODEL = "A model on the assumptions in the provenance, never a measured speed."


def margin_to_break_even(candidate: Candidate) -> Drawing:
    """Acceptance beyond what the head must reach to pay, on each text, the lowest first."""
    name = wording.clean(candidate.head.name)
    found = [e for e in candidate.estimates if e.measure == MEASURE and e.token_class is None]
    by_corpus = [e for e in found if e.corpus] or found
    rows = finite_rows([_row(e) for e in by_corpus], ("x",), _COLUMNS)
    rows = rows.sort_values("x", kind="stable").reset_index(drop=True)
    if rows.empty:
        return nothing(_NAME, f"Whether {name} pays", _why_nothing(by_corpus))
    title = _title(name, rows)
    axis = percent_axis("acceptance beyond break-even, points", signed=True)
    data = rows.drop(columns=["colour"]).rename(columns={"x": "value"})
    return drawing(
        _NAME, title, span_layers(rows, axis, mark=0.0), f"{title}. {told_rows(rows)}.", data,
        [_MODEL], span_height(rows),
    )  # fmt: skip


def _why_nothing(found: Sequence[Estimate]) -> str:
    """What the margins that have no value say of it; another thing than no margins at all."""
    if not found:
        return "no cost was given; see: audit cost, compare --cost"
    reasons = dict.fromkeys(wording.clean(e.reason) for e in found if e.reason)
    return "; ".join(reasons) or "the margins given have no values"


def _row(estimate: Estimate) -> dict[str, object]:
    low, high = estimate.low, estimate.high
    colour = BLUE
    if low is not None and high is not None and not low <= 0 <= high:
        colour = GREEN if low > 0 else RED
    register = wording.REGISTER_WORDS.get(estimate.register_ or "", "–")
    return {
        "x": estimate.value, "x_low": low, "x_high": high,
        "row": wording.clean(estimate.corpus or f"all {register}"),
        "register": register, "colour": colour,
        "told": f"{wording.number(MEASURE, estimate.value)} ({wording.interval(estimate)})",
    }  # fmt: skip


def _title(name: str, rows: pd.DataFrame) -> str:
    below = rows[rows["x"] < 0]
    if below.empty:
        worst = rows.iloc[0]
        return f"In the model {name} pays on every text, by least on {worst['row']}"
    if len(below) == len(rows):
        return f"In the model {name} pays on no text"
    return f"In the model {name} does not pay on {', '.join(below['row'].head(3))}"
