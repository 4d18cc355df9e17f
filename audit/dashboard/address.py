"""What the address of a page asks for. What it asks for in vain is told, never dropped silently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from audit.dashboard import states, store
from audit.errors import AuditError, NotFoundError
from audit.ledger import find_candidate
from audit.records import Candidate, Run
from audit.report import source
from audit.report.wording import clean

RUN, HEAD = "run", "cand"
_HUGE = 1e6
SHORT = 12
"""Digits of a head's hash in an address."""


def head_query(run_id: str, head_sha256: str) -> dict[str, str]:
    """The address's parameters that name one candidate of a run."""
    return {RUN: run_id, HEAD: head_sha256[:SHORT]}


def head_key(run_id: str, head_sha256: str) -> str:
    """One candidate of a run as one word of an address."""
    return f"{run_id}.{head_sha256[:SHORT]}"


def asked_run() -> Run:
    """The run that the address names. Stops the page where there is none."""
    wanted = st.query_params.get(RUN, "")
    with states.guarded(way_out=True):
        if not wanted:
            states.nothing_chosen("head", store.open_here())
        return store.run(wanted)


def asked_head() -> tuple[Run, Candidate]:
    """The run and the candidate that the address names, or the only one, or the one picked here."""
    run = asked_run()
    wanted = st.query_params.get(HEAD)
    try:
        return run, find_candidate(run, wanted)
    except NotFoundError as error:
        states.show_error(error)
    except AuditError:
        pass  # several candidates and none named: a choice, no error
    names = {one.head.sha256: clean(one.head.name) for one in run.candidates}
    picked = st.selectbox(
        "candidate of this run", list(names), format_func=lambda sha256: names[sha256], index=None,
        placeholder="pick one",
    )  # fmt: skip
    if picked is None:
        st.stop()
    st.query_params[HEAD] = picked[:SHORT]
    return run, find_candidate(run, picked)


def tell_names(*known: str) -> None:
    """Say which parameters of the address this page has no use for.

    Args:
        known: all that it has; none where it takes no parameters.
    """
    for name in st.query_params:
        if name not in known:
            states.unknown_value("parameter", str(name), known or ("none",))


def tell_unknown(options: Mapping[str, Sequence[str]]) -> None:
    """Say which values of the address mean nothing here. To be called before the widgets that
    would drop them, and where there is room for a sentence."""
    for name, known in options.items():
        asked = st.query_params.get(name)
        if asked is not None and asked not in known:
            states.unknown_value(name, asked, known)


def choice(name: str, label: str, options: Sequence[str], default: str) -> str:
    """A choice that lives in the address."""
    index = list(options).index(default)
    picked = st.selectbox(label, options, index=index, key=name, bind="query-params")
    return picked or default


def switch(name: str, label: str, options: Sequence[str], default: str) -> str:
    """The same as buttons in a row, for a few short options."""
    picked = st.segmented_control(
        label, options, default=default, key=name, bind="query-params", required=True
    )
    return picked or default


def words(name: str, label: str, placeholder: str) -> str | None:
    """Free text that lives in the address; None when empty."""
    given = st.text_input(label, key=name, bind="query-params", placeholder=placeholder)
    return (given or "").strip() or None


def tell_no_number(names: Sequence[str]) -> None:
    """Say which values of the address are no numbers from 0 on; before the widgets as well."""
    for name in names:
        asked = st.query_params.get(name)
        try:
            fits = asked is None or 0 <= float(asked) < _HUGE
        except ValueError:
            fits = False
        if not fits:
            states.unknown_value(name, asked or "", ["a number from 0 on"])


def amount(name: str, label: str) -> float:
    """A number of zero or more that lives in the address."""
    return float(st.number_input(label, 0.0, _HUGE, 0.0, 0.5, key=name, bind="query-params"))


def tell_no_page(name: str, pages: int) -> None:
    """Say that the address asks for a page that the list does not have; before its widget."""
    asked = st.query_params.get(name)
    if asked is None or name in st.session_state:
        return  # once the widget is there it is the one who asks
    if not (asked.isdecimal() and 1 <= int(asked) <= pages):
        fits = "1" if pages == 1 else f"a whole number from 1 to {pages}"
        states.unknown_value(name, asked, [fits])


def page_number(name: str, pages: int) -> int:
    """Which page of a long list, counted from one; a widget only where there are several."""
    if pages <= 1:
        return 1
    if name in st.session_state and not 1 <= st.session_state[name] <= pages:
        st.session_state[name] = 1  # the list became shorter by a filter
    found = st.number_input(f"page, of {pages:,}", 1, pages, 1, key=name, bind="query-params")
    return int(found)


def with_standing_gate(run: Run) -> tuple[Run, AuditError | None]:
    """The run with the gate's standing answers in the place of the recorded ones, and why they
    could not be asked for, where the database is away."""
    try:
        return source.with_standing_gate(run, store.judgements(run.run)), None
    except AuditError as error:
        return run, error
