"""Tokens: where it hurts. The costliest flips in their text, and the tokens most often lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from audit.dashboard import address, flips, parts, states, store, tokenizer
from audit.dashboard.app import page_file
from audit.dashboard.flips import EVERY, LOST, OUTCOMES, Wanted
from audit.dashboard.rows import ALL
from audit.dashboard.words import safe
from audit.records import Candidate, Run
from audit.report import charts
from audit.report.token_text import TokenReader
from audit.report.wording import clean
from audit.table import Frame

_PAGE = 25
_MOST_LOST = 20
_DOWNLOADED = 100_000


def _page() -> None:
    address.tell_names(address.RUN, address.HEAD, "outcome", "corpus", "class", "margin", "page")
    run, candidate = address.asked_head()
    head = candidate.head
    parts.heading(f"Where {clean(head.name)} hurts", f"run {run.run} · {clean(head.sha256[:12])}")
    st.page_link(
        page_file("head"), label="Back to its verdict", icon=":material/arrow_back:",
        query_params=address.head_query(run.run, head.sha256),
    )  # fmt: skip
    if not run.positions_sha256:
        st.info("This run was recorded without its table of positions.", icon=":material/block:")
        st.stop()
    with states.guarded():
        table = store.positions(run, flips.COLUMNS)
    found = flips.flips_of(table, head.name)
    if found.empty:
        st.info("The two heads propose the same token everywhere.", icon=":material/check:")
        st.stop()
    reader, told = tokenizer.reader_of(run)
    _flips(run, candidate, table, found, reader)
    st.caption(safe(told))
    _lost(table, found, head.name, reader)


@st.fragment
def _flips(
    run: Run, candidate: Candidate, table: Frame, found: Frame, reader: TokenReader | None
) -> None:
    """Filters and table; a filter redraws these only."""
    corpora = [ALL, *(trace.info.corpus for trace in run.traces)]
    classes = [ALL, *flips.classes_of(found)]
    address.tell_unknown({"outcome": list(OUTCOMES), "corpus": corpora, "class": classes})
    address.tell_no_number(["margin"])
    columns = st.columns([1.6, 1.6, 1.6, 1.6, 1], vertical_alignment="bottom")
    wanted = _filters(corpora, classes, columns)
    shown = flips.filtered(found, wanted)
    if shown.empty:
        states.no_match(f"No flip fits these filters; there are {len(found):,} flips.", "heads")
        return
    pages = -(-len(shown) // _PAGE)
    address.tell_no_page("page", pages)
    with columns[4]:
        number = address.page_number("page", pages)
    page = shown.iloc[_PAGE * (number - 1) : _PAGE * number]
    st.caption(
        f"Flips {_PAGE * (number - 1) + 1:,} to {_PAGE * (number - 1) + len(page):,} of "
        f"{len(shown):,}, the reference's margin largest first: there it was surest. "
        f"Shown: {OUTCOMES[wanted.outcome]}. Click a row for more of its text."
    )
    place = st.container()  # above the table, where a click on any row shows it
    rows = flips.flip_frame(page, table, candidate.head.kind, reader)
    picked = parts.open_table(rows, f"flips-{number}", ("its margin", "margin there"), most=_PAGE)
    if picked.clicked is not None:
        with place:
            _detail(page.iloc[picked.clicked].to_dict(), table, candidate, reader)
    st.download_button(
        "These flips, CSV", lambda: parts.csv_text(shown.head(_DOWNLOADED)),
        f"flips-{run.run}-{candidate.head.sha256[:12]}.csv", "text/csv", key="download-flips",
        on_click="ignore", icon=":material/download:",
    )  # fmt: skip


def _filters(corpora: Sequence[str], classes: Sequence[str], columns: Sequence[Any]) -> Wanted:
    with columns[0]:
        outcome = address.choice("outcome", "outcome", list(OUTCOMES), LOST)
    with columns[1]:
        corpus = address.choice("corpus", "corpus", corpora, ALL)
    with columns[2]:
        token_class = address.choice("class", "class of token", classes, ALL)
    with columns[3]:
        margin = address.amount("margin", "reference's margin at least")
    return Wanted(
        corpus=None if corpus == ALL else corpus,
        token_class=None if token_class == ALL else token_class,
        margin=margin,
        outcome=outcome if outcome in OUTCOMES else EVERY,
    )


def _detail(
    row: Mapping[Any, Any], table: Frame, candidate: Candidate, reader: TokenReader | None
) -> None:
    with st.container(border=True, gap="xsmall"):
        st.markdown(f"**{safe(str(row['corpus']))}, sequence {row['sequence']}, "
                    f"position {row['position']}**")  # fmt: skip
        st.code(
            flips.long_context(table, row, candidate.head.kind, reader), language=None,
            wrap_lines=True,
        )  # fmt: skip
        others = flips.at_position(table, row)
        say = reader.one if reader else str
        st.text(f"the verifier wanted  {say(int(str(row['oracle'])))}")
        st.text(f"the reference proposed  {say(int(str(row['ref'])))}")
        for name, id_, right in zip(
            others["candidate"], others["cand"], others["cand_accepts"], strict=True
        ):
            word = "accepted" if right else "rejected"
            st.text(f"{clean(str(name))} proposed  {say(int(id_))}  ({word})")


def _lost(table: Frame, found: Frame, name: str, reader: TokenReader | None) -> None:
    parts.figure(charts.lost_by_class(table[table["candidate"] == name]))
    st.subheader("Tokens most often lost", anchor=False)
    lost = flips.most_lost(found, table, name, _MOST_LOST)
    if lost.empty:
        st.text("No token that the reference had right was lost.")
        return
    frame = flips.lost_frame(lost, reader)
    parts.plain_table(frame, "most-lost", ("lost", "reference had", "share lost"))


_page()
