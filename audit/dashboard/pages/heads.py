"""Heads: what waits for a decision, the newest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from audit.dashboard import address, parts, states, store
from audit.dashboard.app import page_file
from audit.dashboard.rows import ALL, NUMBERS, REVIEWED, WAITING, Wanted, head_frame, listed
from audit.dashboard.words import safe
from audit.errors import AuditError
from audit.ledger import RunFilter, RunList
from audit.words import count

_VERDICTS = (ALL, "identical", "fidelity", "function", "vocabulary", "undecided")
_GATES = (ALL, "pass", "fail", "undecided", "none")
_REVIEWS = {WAITING: False, REVIEWED: True, ALL: None}
_PAGE = 50
_COMPARED = 5
_WIDTHS = {"head": 190, "predicted loss": 110, "measured loss": 105, "review": 105}


def _page() -> None:
    parts.heading("Heads", "What waits for a decision, the newest first.")
    address.tell_names("review", "verdict", "gate", "head", "reference", "page")
    with states.guarded():
        whole = store.runs(RunFilter(limit=1))
    states.unreadable_runs(whole.unreadable)
    if not whole.counts["runs"]:
        states.no_runs(store.open_here())
    _counts(whole)
    address.tell_unknown({"review": tuple(_REVIEWS), "verdict": _VERDICTS, "gate": _GATES})
    columns = st.columns([2.2, 1.4, 1.4, 1.8, 1.8, 1], vertical_alignment="bottom")
    wanted, reference = _filters(columns[:5])
    _list(wanted, reference, columns[5])


def _counts(whole: RunList) -> None:
    heads = sum(whole.counts["verdicts"].values())
    waiting = whole.counts["decisions"].get("none", 0)
    gates = whole.counts["gates"]
    figures = {
        "waiting for review": f"{waiting:,} of {heads:,}",
        "gate passed": f"{gates.get('pass', 0):,}",
        "gate failed": f"{gates.get('fail', 0):,}",
        "undecided or not judged": f"{gates.get('undecided', 0) + gates.get('none', 0):,}",
    }
    for column, (label, value) in zip(st.columns(4), figures.items(), strict=True):
        column.metric(label, value, border=True)


def _filters(columns: Sequence[Any]) -> tuple[Wanted, str | None]:
    with columns[0]:
        review = address.switch("review", "review", tuple(_REVIEWS), WAITING)
    with columns[1]:
        verdict = address.choice("verdict", "verdict", _VERDICTS, ALL)
    with columns[2]:
        gate = address.choice("gate", "gate", _GATES, ALL)
    with columns[3]:
        head = address.words("head", "head", "part of its name")
    with columns[4]:
        reference = address.words("reference", "reference", "part of its name, or its hash")
    wanted = Wanted(
        verdict=None if verdict == ALL else verdict, gate=None if gate == ALL else gate,
        head=head, reviewed=_REVIEWS[review],
    )  # fmt: skip
    return wanted, reference


def _list(wanted: Wanted, reference: str | None, place: Any) -> None:
    how = RunFilter(
        verdict=wanted.verdict, gate=wanted.gate, head=wanted.head, reference=reference,
        reviewed=wanted.reviewed, limit=1,
    )  # fmt: skip
    with states.guarded():
        matching = store.runs(how).matching
        if not matching:
            states.no_match(_nothing(wanted, reference), "heads")
            return
        pages = -(-matching // _PAGE)
        address.tell_no_page("page", pages)
        with place:
            page = address.page_number("page", pages)
        found = store.runs(replace(how, limit=_PAGE, offset=_PAGE * (page - 1)))
    members = listed(found.runs, wanted)
    st.caption(
        f"{count(len(members), 'head')} of {count(len(found.runs), 'run')}; "
        f"{count(matching, 'run')} in all. Click a row to open its head; "
        f"tick two to {_COMPARED} to compare them."
    )
    picked = parts.open_table(
        head_frame(members, _facts), "heads-table", NUMBERS, _WIDTHS, ticks=True
    )
    if picked.clicked is not None:
        run, one = members[picked.clicked]
        query = address.head_query(run.run, one.head_sha256)
        st.switch_page(page_file("head"), query_params=query)
    if picked.ticked:
        ticked = [members[row] for row in picked.ticked]
        keys = [address.head_key(run.run, one.head_sha256) for run, one in ticked]
        st.page_link(
            page_file("compare"), label=f"Compare the {count(len(keys), 'head')} ticked",
            icon=":material/compare_arrows:", query_params={"head": keys},
            disabled=not 2 <= len(keys) <= _COMPARED,
        )  # fmt: skip


def _facts(run_id: str) -> store.Facts:
    try:
        return store.facts(run_id)
    except AuditError:
        return store.NO_FACTS  # its own page says what is wrong with it


def _nothing(wanted: Wanted, reference: str | None) -> str:
    asked = {
        "verdict": wanted.verdict, "gate": wanted.gate, "head": wanted.head,
        "reference": reference,
    }  # fmt: skip
    told = ", ".join(f"{name} {safe(value)}" for name, value in asked.items() if value)
    if wanted.reviewed is None:
        return f"No head fits: {told}."
    state = "was reviewed" if wanted.reviewed else "waits for a review"
    return f"No head {state}" + (f" and fits: {told}." if told else ".")


_page()
