"""Study: what known cuts of a reference cost, and which rules hold on it."""

from __future__ import annotations

import streamlit as st

from audit.calibration import Calibration
from audit.dashboard import address, parts, states, store
from audit.errors import AuditError
from audit.ledger import RunFilter
from audit.report import charts
from audit.report.calibrated import summary_of
from audit.report.study import render_study, study_of
from audit.report.wording import clean

_REFERENCE = "ref"
_LOOKED_AT = 200


def _page() -> None:
    parts.heading("Study", "Yardsticks: what known cuts of a reference cost.")
    address.tell_names(_REFERENCE)
    with states.guarded():
        studied = store.studied()
    if not studied:
        st.info(
            "No reference of this ledger was studied yet. A study makes yardsticks of one:",
            icon=":material/straighten:",
        )
        st.code("audit study MODEL --traces traces/", language="sh")
        st.stop()
    picked = _picked(studied)
    with states.guarded():
        found = store.calibration(picked)
    if found is not None:
        _study(found)


def _picked(studied: list[str]) -> str:
    asked = st.query_params.get(_REFERENCE, "")
    fitting = [name for name in studied if asked and asked.startswith(name)] or [
        name for name in studied if asked and name.startswith(asked)
    ]
    if asked and not fitting:
        states.unknown_value("reference", asked, studied)
    names = _names()
    picked = st.selectbox(
        "reference", studied, index=studied.index(fitting[0]) if fitting else 0,
        format_func=lambda name: f"{names.get(name, 'reference')} · {name}", key="study-reference",
    )  # fmt: skip
    st.query_params[_REFERENCE] = picked
    return str(picked)


def _names() -> dict[str, str]:
    """What runs call the references, by the beginning of the hash."""
    try:
        found = store.runs(RunFilter(limit=_LOOKED_AT))
    except AuditError:
        return {}  # the names are only a help
    return {run.reference_sha256[:16]: clean(run.reference_name) for run in found.runs}


def _study(found: Calibration) -> None:
    told, summary = study_of(found), summary_of(found)
    st.subheader(told.title, anchor=False)
    st.caption(f"reference {told.reference} · made {clean(found.created or 'at an unknown time')}")
    parts.sentences(told.rankings)
    parts.show_table(told.table, "study", 30)
    assert summary is not None
    for drawing in (
        charts.yardstick_retention(found),
        charts.disagreement_against_loss((), summary),
        charts.noise_ladder(summary),
        charts.harm_against_disagreement((), summary),
    ):
        parts.figure(drawing)
    st.subheader("Do the rules hold on this reference?", anchor=False)
    parts.sentences(told.rules)
    st.subheader("Measured on", anchor=False)
    parts.show_table(told.traces, "study-traces")
    name = f"study-{found.reference[:12]}"
    with st.container(horizontal=True):
        st.download_button(
            "Report, HTML", lambda: render_study(found, "html"), f"{name}.html", "text/html",
            key="study-html", on_click="ignore", icon=":material/download:",
        )  # fmt: skip
        st.download_button(
            "Report, Markdown", lambda: render_study(found, "markdown"), f"{name}.md",
            "text/markdown", key="study-md", on_click="ignore", icon=":material/download:",
        )  # fmt: skip


_page()
