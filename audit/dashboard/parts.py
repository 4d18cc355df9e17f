"""Pieces that several pages share: headings, identity, the verdict strip, tables, charts.

What a cell or sentence says is made in `report`; here it is only placed. Text goes into elements
that read no Markdown (`st.text`, `st.dataframe`) or is escaped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import pandas as pd
import streamlit as st

from audit.dashboard.words import safe
from audit.records import Candidate, Outcome, Review, Run
from audit.report.charts import Drawing
from audit.report.charts.points import LABEL
from audit.report.content import Judged, Line
from audit.report.escape import spreadsheet_cell
from audit.report.tables import Table, head_table, trace_table
from audit.report.wording import clean

NOT_JUDGED = "not judged"
_UNKNOWN = "measured; what the gate says of it is in the database, which can not be read"
_Colour = Literal["green", "red", "violet", "gray"]
_OUTCOMES: dict[Outcome, tuple[_Colour, str]] = {
    "pass": ("green", ":material/check_circle:"),
    "fail": ("red", ":material/cancel:"),
    "undecided": ("violet", ":material/help:"),
}
_FIGURE = (2.6, 1)
"""Share of the width for a chart and for what is said of it."""
_INK = {False: "#4d5761", True: "#b4bdc7"}
_AROUND = 96
"""Pixels that axis and legend need beside the plane of a chart."""
_ROW, _HEADER, _MOST = 35, 38, 16
"""Pixels of a table's row and header, and how many rows it shows before it scrolls."""


@dataclass(frozen=True, slots=True)
class Picked:
    """What was picked in a table."""

    clicked: int | None
    """The row with the cell that was clicked."""
    ticked: tuple[int, ...]


def heading(title: str, told: str) -> None:
    """A page's title, which may be a stranger's text, and one line below it."""
    st.title(safe(title), anchor=False)
    st.text(told)


def outcome_badge(outcome: Outcome | None, *, known: bool = True) -> None:
    """The gate's outcome as a word; colour and icon only repeat it."""
    if not known:
        st.badge("gate: unknown", color="gray", icon=":material/cloud_off:")
        return
    if outcome is None:
        st.badge(f"gate: {NOT_JUDGED}", color="gray", icon=":material/gavel:")
        return
    colour, icon = _OUTCOMES[outcome]
    st.badge(f"gate: {outcome}", color=colour, icon=icon)


def identity(run: Run, candidate: Candidate) -> None:
    """What was compared, and on what text."""
    alone = run.model_copy(update={"candidates": (candidate,)})
    show_table(head_table(alone), "identity-heads")
    show_table(trace_table(run), "identity-traces", most=4)


def verdict_strip(judged: Judged, mine: Sequence[Review] | None) -> None:
    """The verdict in a sentence, word for word as the command line prints it, and the figures.

    Args:
        mine: the reviews of this head, the first one first; None where neither they nor what the
            gate says now can be known.
    """
    with st.container(border=True):
        with st.container(horizontal=True):
            st.badge(f"verdict: {judged.kind}", color="blue", icon=":material/balance:")
            outcome_badge(judged.outcome, known=mine is not None)
            st.badge(safe(_review_state(mine)), color="gray", icon=":material/person:")
        st.subheader(safe(f"{judged.name}: {judged.verdict}"), anchor=False)
        st.text(_UNKNOWN if mine is None else judged.outcome_sentence)
        if judged.tiles:
            for column, tile in zip(st.columns(len(judged.tiles)), judged.tiles, strict=True):
                with column:
                    st.metric(safe(tile.label), tile.value)
                    st.caption(safe(tile.note))


def _review_state(mine: Sequence[Review] | None) -> str:
    """The newest decision on a head, which is the one that counts."""
    if mine is None:
        return "review: unknown"
    if not mine:
        return "waits for a review"
    newest = mine[-1]
    vouched = "" if newest.authenticated else " (unauthenticated)"
    return f"review: {newest.decision} by {clean(newest.reviewer)}{vouched}"


def lines(found: Sequence[Line]) -> None:
    """Sentences with the word that classes them; what asks for attention is marked."""
    for line in found:
        with st.container(horizontal=True, vertical_alignment="top", wrap=False):
            st.badge(safe(line.word), color="orange" if line.loud else "gray")
            st.text(line.sentence)


def sentences(found: Sequence[str]) -> None:
    """A list of sentences."""
    st.markdown("\n".join(f"* {safe(sentence)}" for sentence in found))


def show_table(table: Table, key: str, most: int = _MOST) -> None:
    """Rows of text, as high as they are many, up to `most`; beyond that it scrolls."""
    frame = pd.DataFrame(list(table.rows), columns=list(table.header), dtype="str")
    numbers = [table.header[place] for place in table.numbers]
    st.dataframe(
        frame,
        hide_index=True,
        key=key,
        height=_height(len(frame), most),
        column_config=_columns(numbers),
    )


def titled_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], none: str
) -> None:
    """A table under its title, or what is said where it would be empty."""
    st.subheader(title, anchor=False)
    if rows:
        show_table(Table(tuple(header), tuple(map(tuple, rows))), title)
    else:
        st.text(none)


def open_table(
    frame: pd.DataFrame,
    key: str,
    numbers: Sequence[str] = (),
    widths: Mapping[str, int] | None = None,
    *,
    ticks: bool = False,
    most: int = _MOST,
) -> Picked:
    """A table in which a click on a cell opens a row.

    Args:
        numbers: columns set flush right.
        widths: pixels, of columns whose cells may be long.
        ticks: whether rows can be ticked as well.
        most: rows shown before it scrolls.
    """
    state = st.dataframe(
        frame, hide_index=True, key=key, on_select="rerun",
        selection_mode=["multi-row", "single-cell"] if ticks else "single-cell",
        height=_height(len(frame), most), column_config=_columns(numbers, widths),
    )  # fmt: skip
    selection = state["selection"]
    cells = selection.get("cells") or []
    clicked = int(cells[0][0]) if cells else None
    there = tuple(row for row in selection.get("rows") or [] if row < len(frame))
    return Picked(clicked if clicked is not None and clicked < len(frame) else None, there)


def plain_table(frame: pd.DataFrame, key: str, numbers: Sequence[str] = ()) -> None:
    """A table of text made by this package."""
    st.dataframe(
        frame, hide_index=True, key=key, height=_height(len(frame), _MOST),
        column_config=_columns(numbers),
    )  # fmt: skip


def figure(drawing: Drawing, number: str = "") -> None:
    """A chart beside its finding, with notes and its data, or the reason why there is none."""
    with st.container(border=True):
        if drawing.chart is None:
            st.markdown(f"##### {safe(drawing.title)}")
            st.text(drawing.reason)
            return
        left, right = st.columns(_FIGURE)
        key = f"{drawing.name}{number}"
        with left:
            st.vega_lite_chart(
                spec=spec_of(drawing, st.context.theme.type == "dark"), alt=drawing.alternative,
                key=f"chart-{key}",
            )  # fmt: skip
        with right:
            st.markdown(f"##### {safe(drawing.title)}")
            for note in drawing.notes:
                st.caption(safe(note))
            if drawing.data is not None and len(drawing.data):
                st.download_button(
                    "chart data", partial(csv_text, drawing.data), f"{drawing.name}.csv",
                    "text/csv", key=f"data-{key}", on_click="ignore", type="tertiary",
                    icon=":material/download:",
                )  # fmt: skip


def spec_of(drawing: Drawing, dark: bool) -> dict[str, Any]:
    """A drawing for a page of Streamlit, whose height counts axes and legend in, and whose text
    stands on a light or a dark ground. Title and description stand beside it."""
    assert drawing.chart is not None
    ink = _INK[dark]
    chart = drawing.chart.configure_legend(
        orient="top", columns=4, columnPadding=8, labelFontSize=11, labelColor=ink,
        symbolBaseFillColor=ink, symbolBaseStrokeColor=ink,
    ).configure_axis(labelColor=ink, titleColor=ink)  # fmt: skip
    spec: dict[str, Any] = json.loads(json.dumps(chart.to_dict(validate=False)).replace(LABEL, ink))
    spec.pop("title", None)
    spec.pop("description", None)
    spec["height"] += _AROUND
    return spec


def csv_text(frame: pd.DataFrame) -> str:
    """A table for a spreadsheet, which must not calculate a stranger's text."""
    cells = {
        str(name): frame[name]
        if pd.api.types.is_numeric_dtype(frame[name].dtype)
        else frame[name].astype("object").map(spreadsheet_cell)
        for name in frame
    }
    return str(pd.DataFrame(cells).to_csv(index=False, lineterminator="\n"))


def _columns(numbers: Sequence[str], widths: Mapping[str, int] | None = None) -> dict[str, Any]:
    names = dict.fromkeys([*numbers, *(widths or {})])
    return {
        name: st.column_config.TextColumn(
            width=(widths or {}).get(name), alignment="right" if name in numbers else None
        )
        for name in names
    }


def _height(rows: int, most: int) -> int:
    return _HEADER + _ROW * max(1, min(rows, most))
