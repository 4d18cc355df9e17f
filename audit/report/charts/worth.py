"""What a head is worth in the model of `audit cost`: acceptance beyond break-even, text by text."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from audit.records import Candidate, Estimate
from audit.report import wording
from audit.report.charts.base import (
    BLUE,
    GREEN,
    RED,
    Drawing,
    base,
    drawing,
    finite_rows,
    nothing,
    padded,
    percent_axis,
    register_shape,
    span_scale,
)
from audit.report.charts.points import LABEL, with_interval

MEASURE = "break_even_margin"
_NAME = "margin-to-break-even"
_COLUMNS = ("x", "x_low", "x_high", "row", "register", "colour", "told")
_ROW_HEIGHT, _FRAME = 26, 24
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
    told = "; ".join(f"{row['row']} {row['told']}" for _, row in rows.iterrows())
    height = _ROW_HEIGHT * rows["row"].nunique() + _FRAME
    data = rows.drop(columns=["colour"]).rename(columns={"x": "value"})
    return drawing(_NAME, title, _layers(rows), f"{title}. {told}.", data, [_MODEL], height)


def _why_nothing(found: Sequence[Estimate]) -> str:
    """What the margins that have no value say of it; another thing than no margins at all."""
    if not found:
        return "no cost was given; see: audit cost, compare --cost"
    reasons = dict.fromkeys(wording.clean(e.reason) for e in found if e.reason)
    return "; ".join(reasons) or "the margins given have no values"


def _row(estimate: Estimate) -> dict[str, object]:
    low, high = estimate.low, estimate.high
    sure = None not in (low, high)
    colour = BLUE
    if sure and low is not None and low > 0:
        colour = GREEN
    elif sure and high is not None and high < 0:
        colour = RED
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


def _layers(rows: pd.DataFrame) -> list[alt.Chart]:
    known = with_interval(rows, "x")
    ends = [0.0, *rows["x"], *known["x_low"], *known["x_high"]]
    order = alt.Y("row:N", sort=list(dict.fromkeys(rows["row"])),
                  axis=alt.Axis(title=None, labelLimit=220, grid=False))  # fmt: skip
    axis = percent_axis("acceptance beyond break-even, points", signed=True)
    across = alt.X("x:Q", axis=axis, scale=span_scale(padded(min(ends), max(ends))))
    colour = alt.Color("colour:N", scale=None)
    tips = [alt.Tooltip("row:N", title="on"), alt.Tooltip("register:N"), alt.Tooltip("told:N")]
    return [
        base(pd.DataFrame({"x": [0.0]})).mark_rule(color=LABEL, strokeWidth=1).encode(x="x:Q"),
        base(known).mark_rule(strokeWidth=2).encode(
            x="x_low:Q", x2="x_high:Q", y=order, color=colour
        ),
        base(rows).mark_point(filled=True, size=90, opacity=1).encode(
            x=across, y=order, color=colour, tooltip=tips, shape=register_shape(rows)
        ),
    ]  # fmt: skip
