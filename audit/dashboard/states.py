"""What a page shows where it has nothing to show: each state says what is so and what to do next.

Sentences from elsewhere may hold anything; they are escaped before Markdown sees them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import streamlit as st

from audit.dashboard.app import page_file
from audit.dashboard.words import safe
from audit.errors import AuditError


@contextmanager
def guarded() -> Iterator[None]:
    """Show an error of the product in words and stop the page there."""
    try:
        yield
    except AuditError as error:
        show_error(error)
        st.stop()


def show_error(error: AuditError) -> None:
    """What happened, where, and what to do."""
    parts = [f"**{safe(error.message)}**"]
    if error.hint:
        parts.append(safe(error.hint))
    if error.where:
        parts.append(f"at {safe(error.where)}")
    st.error("\n\n".join(parts), icon=":material/error:")


def no_runs(where: str) -> NoReturn:
    """An empty ledger: the command that makes the first run. Stops the page."""
    st.info(
        f"This ledger holds no runs yet: {safe(where)}\n\nMake the first one at a terminal:",
        icon=":material/inbox:",
    )
    st.code("audit compare REF CAND --trace traces/", language="sh")
    st.page_link(page_file("new_audit"), label="or start a New audit here", icon=":material/add:")
    st.stop()


def nothing_chosen(what: str) -> NoReturn:
    """A page that needs a choice made elsewhere. Stops the page."""
    st.info(f"No {what} is chosen. Pick one on the page Heads.", icon=":material/touch_app:")
    st.page_link(page_file("heads"), label="to Heads", icon=":material/arrow_back:")
    st.stop()


def unknown_value(name: str, value: str, options: list[str]) -> None:
    """A value in the address that means nothing here, which would else be dropped silently."""
    known = ", ".join(options)
    st.warning(
        f"The address asks for {safe(name)} “{safe(value)}”, which is not there; "
        f"it knows: {safe(known)}. Shown is everything.",
        icon=":material/link_off:",
    )
