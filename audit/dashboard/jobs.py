"""How a background audit is shown: its state as a word, its progress, its end, its error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import pandas as pd
import streamlit as st

from audit.dashboard.app import page_file
from audit.dashboard.words import copyable, safe
from audit.jobs import Job
from audit.report.wording import clean
from audit.words import count

_Colour = Literal["blue", "gray", "green", "orange", "red"]
_LOOKS: dict[str, tuple[_Colour, str]] = {
    "queued": ("gray", ":material/hourglass_empty:"),
    "running": ("blue", ":material/progress_activity:"),
    "cancelling": ("orange", ":material/cancel_schedule_send:"),
    "done": ("green", ":material/check_circle:"),
    "failed": ("red", ":material/error:"),
    "cancelled": ("gray", ":material/block:"),
}
_GATE = {1: "the gate failed it", 3: "the gate is undecided"}
_STARTING = "starting: the libraries are loaded"


def job_card(job: Job, cancel: Callable[[str], None]) -> None:
    """One job with all that can be done about it."""
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            colour, icon = _LOOKS[job.status]
            st.badge(job.status, color=colour, icon=icon)
            st.text(title(job), width="stretch")
            if job.is_open:
                st.button(
                    "Cancel", key=f"cancel-{job.id}", icon=":material/close:",
                    disabled=job.status == "cancelling", on_click=cancel, args=(job.id,),
                )  # fmt: skip
        _how_far(job)


def title(job: Job) -> str:
    """What the job compares."""
    return clean(job.request.title) if job.request else f"job {job.id}"


def _how_far(job: Job) -> None:
    if job.status == "queued":
        st.text(f"waits for {count(job.ahead, 'audit')}" if job.ahead else "is about to start")
    elif job.status in ("running", "cancelling"):
        step = job.step
        st.progress(step.share if step else 0.0, safe(step.what) if step else _STARTING)
    elif job.status == "cancelled":
        st.text("It was cancelled; nothing was recorded.")
    elif job.error:
        hint = f"\n\n{copyable(job.error.hint)}" if job.error.hint else ""
        st.error(f"**{copyable(job.error.message)}**{hint}", icon=":material/error:")
    elif job.state and job.state.run:
        st.text(f"run {clean(job.state.run)} is recorded{_gate(job)}")
        st.page_link(
            page_file("head"), label="Open its head", icon=":material/arrow_forward:",
            query_params={"run": job.state.run},
        )  # fmt: skip


def _gate(job: Job) -> str:
    done = job.state if job.status == "done" else None
    said = _GATE.get(done.exit_code or 0) if done else None
    return f"; {said}" if said else ""


def earlier_table(jobs: Sequence[Job]) -> None:
    """Jobs that have ended, the newest first, with links to what they made."""
    rows = [
        {
            "asked": job.request.created if job.request else "–",
            "audit": title(job),
            "became": job.status + _gate(job),
            "run": f"head?run={job.state.run}" if job.state and job.state.run else "",
            "error": clean(job.error.message) if job.error else "–",
        }
        for job in jobs
    ]
    st.dataframe(
        pd.DataFrame(rows), hide_index=True, key="earlier",
        column_config={"run": st.column_config.LinkColumn(display_text=r"run=(.+)")},
    )  # fmt: skip
