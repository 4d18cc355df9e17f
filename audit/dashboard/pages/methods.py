"""Methods: what each number means. Made from the catalogue, so it can not fall behind."""

from __future__ import annotations

import math

import streamlit as st

from audit.catalogue import (
    CATALOGUE,
    COMPOSED,
    MEASURES_VERSION,
    TOKEN_CLASSES,
    better_when_lower,
    possible_range,
)
from audit.dashboard import address, parts
from audit.dashboard.words import safe
from audit.report import wording
from audit.report.tables import SHOWN, Table

_DIRECTIONS = {True: "lower is better", False: "higher is better", None: "describes, judges not"}
_UNITS = {
    "share": "per cent of positions", "points": "per cent of the reference's acceptance",
    "ratio": "a plain ratio", "nats": "nats", "logits": "logits",
}  # fmt: skip
_COMPOSED_UNITS = {
    "near_tie_auc": "a probability", "tokens_per_round": "tokens", "chain_acceptance": "a share",
}  # fmt: skip


def _page() -> None:
    parts.heading(
        "Methods", f"What each number means, from the catalogue of measures, {MEASURES_VERSION}."
    )
    address.tell_names()
    st.markdown(
        "Pooled over positions is the headline; the mean over sequences (*macro*) stands beside "
        "it. Intervals resample whole sequences, since the positions of one text are not "
        "independent. A difference between heads is always paired: the same positions, the same "
        "resamples. Where nothing can be measured there is a reason instead of a number."
    )
    names = [*SHOWN, *(name for name in CATALOGUE if name not in SHOWN)]
    for name in names:
        if name in CATALOGUE:
            found = CATALOGUE[name]
            _measure(name, found.formula, found.caveat, _UNITS[found.unit])
        else:
            _measure(name, COMPOSED[name], "", _COMPOSED_UNITS.get(name, "points"))
    st.subheader("Classes of tokens", anchor="token-classes")
    st.text("Every position is of the class of the token that the verifier wanted.")
    parts.show_table(Table(("class", "what is in it"), tuple(TOKEN_CLASSES.items())), "classes", 30)


def _measure(name: str, meaning: str, caveat: str, unit: str) -> None:
    with st.container(border=True, gap="xsmall"):
        st.subheader(safe(wording.measure_title(name)), anchor=name.replace("_", "-"))
        st.text(meaning)
        if caveat:
            st.caption(safe(caveat))
        direction = _DIRECTIONS[better_when_lower(name)]
        st.caption(f"{unit} · {_range(name)} · {direction} · `{name}` in run documents")


def _range(name: str) -> str:
    low, high = possible_range(name)
    ends = [wording.number(name, end) if math.isfinite(end) else "no end" for end in (low, high)]
    return f"from {ends[0]} to {ends[1]}"


_page()
