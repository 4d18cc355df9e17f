"""What a page shows where it has nothing to show: each state says what is so and what to do next.

Sentences from elsewhere may hold anything; they are escaped before Markdown sees them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import streamlit as st

from audit.dashboard.app import page_file
from audit.dashboard.words import copyable
from audit.errors import AuditError
from audit.ledger import Ledger

_FIRST_RUN = "audit compare REF CAND --trace traces/"
_TOLD = 5


@contextmanager
def guarded(*, way_out: bool = False) -> Iterator[None]:
    """Show an error of the product in words and stop the page there.

    Args:
        way_out: also lead to the list of heads.
    """
    try:
        yield
    except AuditError as error:
        show_error(error)
        if way_out:
            _to_heads()
        st.stop()


def show_error(error: AuditError) -> None:
    """What happened, where, and what to do."""
    parts = [f"**{copyable(error.message)}**"]
    if error.hint:
        parts.append(copyable(error.hint))
    if error.where:
        parts.append(f"at {copyable(error.where)}")
    st.error("\n\n".join(parts), icon=":material/error:")


def database_away(error: AuditError, what: str) -> None:
    """Files can be read, the database can not: what is missing on this page, and why."""
    st.warning(
        f"{what} can not be shown: {copyable(error.message)}. {copyable(error.hint)}".strip(),
        icon=":material/cloud_off:",
    )


def no_runs(ledger: Ledger) -> NoReturn:
    """An empty ledger, or none yet: the command that makes the first run. Stops the page."""
    there = "://" in ledger.where or Path(ledger.where).is_dir()
    told = "This ledger holds no runs yet" if there else "There is no ledger here yet"
    st.info(
        f"{told}: {copyable(ledger.where)}\n\nAn audit makes the first run:",
        icon=":material/inbox:",
    )
    st.code(_FIRST_RUN, language="sh")
    st.page_link(page_file("new_audit"), label="Start one here", icon=":material/add_circle:")
    st.stop()


def nothing_chosen(what: str, ledger: Ledger) -> NoReturn:
    """A page that needs a choice made elsewhere. Stops the page."""
    if not ledger.run_ids():
        no_runs(ledger)
    st.info(f"No {what} is chosen. Pick one on the page Heads.", icon=":material/touch_app:")
    _to_heads()
    st.stop()


def _to_heads() -> None:
    st.page_link(page_file("heads"), label="To Heads", icon=":material/arrow_back:")


def no_match(told: str, page: str) -> None:
    """A filter that nothing fits, and a way out of it."""
    st.info(told, icon=":material/filter_alt_off:")
    st.page_link(page_file(page), label="Clear the filters", icon=":material/close:")


def unknown_value(name: str, value: str, options: Sequence[str]) -> None:
    """A value in the address that means nothing here, which would else be dropped silently."""
    st.warning(
        f"The address asks for {copyable(name)} “{copyable(value)}”, which is not there; "
        f"possible: {copyable(', '.join(options))}. Shown is the usual choice.",
        icon=":material/link_off:",
    )


def unreadable_runs(found: Mapping[str, str]) -> None:
    """Runs that are there and can not be read; the others are not affected."""
    if not found:
        return
    told = [f"* {copyable(run)}: {copyable(why)}" for run, why in list(found.items())[:_TOLD]]
    more = [f"* and {len(found) - _TOLD} more"] if len(found) > _TOLD else []
    st.warning(
        "\n".join(["These runs can not be read:", "", *told, *more]), icon=":material/broken_image:"
    )
