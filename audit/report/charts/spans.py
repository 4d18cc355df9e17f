"""Rows with intervals beside a mark, one below the other: the frame of every forest plot."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from audit.report.charts.base import base, padded, register_shape, span_scale
from audit.report.charts.points import LABEL, with_interval

_ROW_HEIGHT, _FRAME = 26, 24


def span_layers(
    rows: pd.DataFrame,
    axis: alt.Axis,
    *,
    mark: float,
    rules: Sequence[alt.Chart] = (),
    reach: Sequence[float] = (),
    word: str | None = None,
    room: float = 0.06,
    labels: int = 220,
) -> list[alt.Chart]:
    """The layers of a forest plot, the lowest first.

    Args:
        rows: columns x, x_low, x_high, row, register, colour, told.
        mark: where the line stands that rows are compared with.
        rules: further lines, drawn above that one.
        reach: values that the axis must hold besides.
        word: column of a word that stands at the end of a row; empty words are not drawn.
        room: share of the axis left free at both ends.
        labels: longest label of a row in pixels.
    """
    known = with_interval(rows, "x")
    ends = [mark, *reach, *rows["x"], *known["x_low"], *known["x_high"]]
    domain = padded(min(ends), max(ends), room)
    order = alt.Y("row:N", sort=list(dict.fromkeys(rows["row"])),
                  axis=alt.Axis(title=None, labelLimit=labels, grid=False))  # fmt: skip
    colour = alt.Color("colour:N", scale=None)
    tips = [alt.Tooltip("row:N", title="on"), alt.Tooltip("register:N"), alt.Tooltip("told:N")]
    layers = [
        base(pd.DataFrame({"x": [mark]})).mark_rule(color=LABEL, strokeWidth=1).encode(x="x:Q"),
        *rules,
        base(known).mark_rule(strokeWidth=2).encode(
            x="x_low:Q", x2="x_high:Q", y=order, color=colour
        ),
        base(rows).mark_point(filled=True, size=90, opacity=1).encode(
            x=alt.X("x:Q", axis=axis, scale=span_scale(domain)), y=order, color=colour,
            tooltip=tips, shape=register_shape(rows),
        ),
    ]  # fmt: skip
    if word is not None:
        worded = base(rows[rows[word] != ""].assign(x=domain[1]))
        layers.append(
            worded.mark_text(align="left", dx=8, fontSize=11, fontWeight="bold", color=LABEL)
            .encode(x="x:Q", y=order, text=f"{word}:N")
        )  # fmt: skip
    return layers


def span_height(rows: pd.DataFrame) -> int:
    """Height of the plot in pixels."""
    return _ROW_HEIGHT * int(rows["row"].nunique()) + _FRAME


def told_rows(rows: pd.DataFrame) -> str:
    """Every row with its value and interval, in words."""
    return "; ".join(f"{row['row']} {row['told']}" for _, row in rows.iterrows())
