"""Downloads of a run: made by `report.formats` after the click, never before."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from audit.dashboard import store
from audit.ledger import run_json
from audit.records import Review, Run
from audit.report.formats import render

_KINDS = (
    ("Report, HTML", "html", "html", "text/html"),
    ("Report, Markdown", "markdown", "md", "text/markdown"),
    ("Section of a model card", "card", "card.md", "text/markdown"),
)


def run_downloads(run: Run, recorded: Run, said: Sequence[Review] | None) -> None:
    """Buttons for the reports of a run as shown here, and for the document as it was recorded.

    Args:
        said: all reviews; None where they can not be known, so that a report would say too little.
    """
    with st.popover("Download", icon=":material/download:"):
        for label, format_, suffix, mime in _KINDS if said is not None else ():
            st.download_button(
                label, partial(report_text, run, format_, said or ()),
                f"audit-{run.run}.{suffix}", mime, key=f"download-{format_}", on_click="ignore",
                width="stretch",
            )  # fmt: skip
        st.download_button(
            "Run document, JSON", lambda: run_json(recorded) + "\n", f"audit-{run.run}.json",
            "application/json", key="download-json", on_click="ignore", width="stretch",
        )  # fmt: skip


def report_text(run: Run, format_: str, said: Sequence[Review]) -> str:
    """The report in one of the formats, as `audit report` writes it, with the reviews so far."""
    table = store.whole_table(run) if run.positions_sha256 else None
    return render(run, format_, positions=table, reviews=said)
