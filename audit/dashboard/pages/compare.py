"""Compare: is one head better than another? Two to five, on the very same positions."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from audit.dashboard import address, pairing, parts, states, store
from audit.dashboard.pairing import Pair
from audit.dashboard.words import safe
from audit.diff import Side, input_differences
from audit.errors import AuditError
from audit.ledger import RunFilter, RunList, find_candidate
from audit.report import charts
from audit.report.calibrated import summary_of
from audit.report.diff import INPUTS, OUTCOMES, input_rows, outcome_rows, verdict_of
from audit.report.tables import Table
from audit.report.wording import clean

_MOST = 5
_OFFERED = 200
_HEAD = "head"
_NUMBERS = (2, 3, 4, 6, 7)


def _page() -> None:
    parts.heading(
        "Compare", "Two to five heads on the same positions; the first one picked is the measure."
    )
    address.tell_names(_HEAD)
    with states.guarded():
        known = store.runs(RunFilter(limit=_OFFERED))
    if not known.runs:
        states.no_runs(store.open_here())
    keys = _picked(_labels(known))
    if len(keys) < 2:
        st.info("Pick two heads or more.", icon=":material/touch_app:")
        st.stop()
    with states.guarded():
        sides = [_side(key) for key in keys]
    found = pairing.pairs(sides)
    _refusals(sides[0], found)
    fine = [pair for pair in found if pair.refused is None]
    if fine:
        _outcomes(sides[0], fine)


def _labels(known: RunList) -> dict[str, str]:
    """Candidate -> what the list calls it."""
    return {
        address.head_key(run.run, one.head_sha256): (
            f"{clean(one.name)} · {one.verdict} · run {run.run[:8]} · beside "
            f"{clean(run.reference_name)} · {clean(run.created[:10])}"
        )
        for run in known.runs
        for one in run.candidates
    }


def _picked(labels: dict[str, str]) -> list[str]:
    """The heads of the address, and the list to change them, which changes the address."""
    asked = list(dict.fromkeys(st.query_params.get_all(_HEAD)))
    for key in asked:
        if key not in labels:
            _tell_unknown(key, labels)
    known = [key for key in asked if key in labels]
    if len(known) > _MOST:
        st.warning(f"The address names {len(known)} heads; the first {_MOST} are shown.")
        known = known[:_MOST]
    picked = st.multiselect(
        "heads", list(labels), default=known, format_func=lambda key: labels[key],
        max_selections=_MOST, key="compare-heads", placeholder="pick two to five",
    )  # fmt: skip
    if picked != asked:
        st.query_params[_HEAD] = picked
    return picked


def _tell_unknown(key: str, labels: dict[str, str]) -> None:
    run_id, _, head = key.partition(".")
    try:
        known = address.head_key(store.run(run_id).run, head)
    except AuditError as error:
        states.show_error(error)
        return
    if known not in labels:
        st.warning(f"Run {safe(run_id)} is known, but no head {safe(head)} of it is listed here.")


def _side(key: str) -> Side:
    run_id, _, head = key.partition(".")
    run = store.run(run_id)
    return Side(run, find_candidate(run, head))


def _refusals(first: Side, found: Sequence[Pair]) -> None:
    for pair in found:
        if pair.refused is None:
            continue
        st.subheader(f"{safe(pair.side.candidate.head.name)} is not comparable", anchor=False)
        states.show_error(pair.refused)
        _inputs(first, pair)


def _outcomes(first: Side, found: Sequence[Pair]) -> None:
    sides = [first, *(pair.side for pair in found)]
    names = _names(sides)
    for pair, name in zip(found, names[1:], strict=True):
        st.markdown(f"**{safe(name)} beside {safe(names[0])}**")
        told = (verdict_of(one, names[0], name) for one in pair.differences)
        parts.sentences([sentence for sentence in told if sentence])
        if pair.notes:
            st.warning("\n".join(f"* {safe(note)}" for note in pair.notes))
    differences = {
        name: pair.differences for pair, name in zip(found, names[1:], strict=True)
    }  # fmt: skip
    parts.figure(charts.paired_retention(names[0], differences))
    candidates = [side.candidate for side in sides]
    if pairing.same_traces(sides):
        parts.figure(charts.size_against_loss(candidates, first.run.reference))
    else:
        with st.container(border=True):
            st.markdown("##### Stored size against the loss on the worst corpus")
            st.text("Not drawn: the runs have different traces, so their worst corpora differ.")
    parts.figure(charts.harm_against_disagreement(candidates, summary_of(first.run)))
    for pair, name in zip(found, names[1:], strict=True):
        st.subheader(safe(f"{name} minus {names[0]}"), anchor=False)
        rows = tuple(map(tuple, outcome_rows(pair.differences)))
        parts.show_table(Table(OUTCOMES, rows, _NUMBERS), f"outcome-{_key(pair.side)}")
        _inputs(first, pair)


def _inputs(first: Side, pair: Pair) -> None:
    """What went in differently; what is the same is not listed."""
    rows = tuple(map(tuple, input_rows(input_differences(first, pair.side))))
    if not rows:
        st.caption("What went in is the same.")
        return
    with st.expander(f"What went in differently: {len(rows)}", expanded=pair.refused is not None):
        parts.show_table(Table(INPUTS, rows), f"inputs-{_key(pair.side)}")


def _key(side: Side) -> str:
    return address.head_key(side.run.run, side.candidate.head.sha256)


def _names(sides: Sequence[Side]) -> list[str]:
    """The heads' names, with their runs where two are named alike."""
    plain = [clean(side.candidate.head.name) for side in sides]
    return [
        f"{name} in {side.run.run[:8]}" if plain.count(name) > 1 else name
        for name, side in zip(plain, sides, strict=True)
    ]


_page()
