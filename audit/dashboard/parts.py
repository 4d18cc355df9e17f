"""Pieces that several pages share: identity lines, the verdict strip, tables, charts.

What a cell or sentence says is made in `report`; here it is only placed. Text goes into elements
that read no Markdown (`st.text`, `st.dataframe`) or is escaped.
"""

from __future__ import annotations

from typing import Literal

import pandas as pd
import streamlit as st

from audit.dashboard.words import safe
from audit.records import Outcome, Run
from audit.report.content import Judged
from audit.report.tables import Table, head_table, trace_table

NOT_JUDGED = "not judged"
_Colour = Literal["green", "red", "violet", "gray"]
_OUTCOMES: dict[Outcome, tuple[_Colour, str]] = {
    "pass": ("green", ":material/check_circle:"),
    "fail": ("red", ":material/cancel:"),
    "undecided": ("violet", ":material/help:"),
}


def outcome_badge(outcome: Outcome | None) -> None:
    """The gate's outcome as a word; colour and icon only repeat it."""
    if outcome is None:
        st.badge(f"gate: {NOT_JUDGED}", color="gray", icon=":material/gavel:")
        return
    colour, icon = _OUTCOMES[outcome]
    st.badge(f"gate: {outcome}", color=colour, icon=icon)


def identity(run: Run) -> None:
    """What was compared, and on what text."""
    show_table(head_table(run), key="identity-heads")
    show_table(trace_table(run), key="identity-traces")


def verdict_strip(judged: Judged) -> None:
    """The outcome in a sentence, word for word as the command line prints it."""
    with st.container(border=True):
        outcome_badge(judged.outcome)
        st.markdown(f"#### {safe(f'{judged.name}: {judged.verdict}')}")
        st.text(judged.outcome_sentence)


def show_table(table: Table, key: str) -> None:
    """Rows of text, as tall as they are many up to a screen."""
    frame = pd.DataFrame(list(table.rows), columns=list(table.header), dtype="str")
    st.dataframe(frame, hide_index=True, key=key, width="stretch")
