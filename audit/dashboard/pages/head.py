"""Head: may this one be released? What was compared, the verdict, and the evidence for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from audit.dashboard import address, exports, parts, states, store
from audit.dashboard.app import page_file
from audit.dashboard.words import safe
from audit.ledger import Judgement
from audit.records import Candidate, Review, Run
from audit.report import charts, history
from audit.report.calibrated import Summary
from audit.report.charts.distributions import NEEDED
from audit.report.content import Judged, Report, report_of
from audit.report.decided import LIMIT_HEADER, LIMIT_NUMBERS, LimitLine
from audit.report.tables import Table
from audit.report.wording import clean

_EVIDENCE, _CORPORA, _SPREAD, _CHECKS, _DECISIONS, _ORIGIN = (
    "Evidence", "By corpus", "Distributions", "Checks", "Decisions", "Provenance",
)  # fmt: skip
VIEWS = (_EVIDENCE, _CORPORA, _SPREAD, _CHECKS, _DECISIONS, _ORIGIN)


def _page() -> None:
    address.tell_names(address.RUN, address.HEAD, "view")
    recorded, chosen = address.asked_head()
    run, away = address.with_standing_gate(recorded)
    recalled = None if away else _said(run.run)
    said = recalled[0] if recalled else None
    place = [one.head.sha256 for one in run.candidates].index(chosen.head.sha256)
    report = report_of(run, reviews=said or ())
    told, candidate = report.candidates[place], run.candidates[place]
    parts.heading(
        told.name,
        f"against {clean(run.reference.name)} · {len(run.traces)} traces · run {report.id} · "
        f"made {report.created}",
    )
    if away:
        states.database_away(away, "Reviews and later judgements")
    parts.identity(run, candidate)
    mine = [one for one in said or () if one.head_sha256 == candidate.head.sha256]
    parts.verdict_strip(told, None if away else mine)
    _warnings(report, told)
    _ways_on(run, candidate, recorded, said)
    drawn: dict[str, Callable[[], None]] = {
        _EVIDENCE: lambda: _evidence(report, told, report.calibration),
        _CORPORA: lambda: _corpora(told),
        _SPREAD: lambda: _spread(recorded, candidate),
        _CHECKS: lambda: _checks(report),
        _DECISIONS: lambda: _decisions(run, recalled),
        _ORIGIN: lambda: parts.show_table(
            Table(("what", "value"), report.provenance), "provenance", 30
        ),
    }
    for name, tab in zip(VIEWS, _tabs(), strict=True):
        with tab:
            if tab.open:  # only what is looked at is drawn
                drawn[name]()


def _tabs() -> Sequence[Any]:
    address.tell_unknown({"view": VIEWS})
    return st.tabs(VIEWS, key="view", on_change="rerun", bind="query-params")


def _said(run_id: str) -> tuple[list[Review], list[Judgement]]:
    with states.guarded():
        return store.reviews(run_id), store.judgements(run_id)


def _warnings(report: Report, told: Judged) -> None:
    """What a reader must know before believing or deciding anything."""
    gate = told.record.gate
    if gate and gate.changes:
        changed = "\n".join(f"* {safe(sentence)}" for sentence in gate.changes)
        st.warning(
            f"**The policy changed since its previous version**\n\n{changed}",
            icon=":material/change_circle:",
        )
    loud = [line for line in (*report.controls, *report.findings) if line.loud]
    if loud:
        with st.container(border=True):
            st.markdown("**Before anything is believed**")
            parts.lines(loud)
    if told.predictions:
        parts.sentences(told.predictions)


def _ways_on(run: Run, candidate: Candidate, recorded: Run, said: Sequence[Review] | None) -> None:
    query = address.head_query(run.run, candidate.head.sha256)
    with st.container(horizontal=True):
        st.page_link(
            page_file("tokens"), label="Where it hurts: Tokens", icon=":material/text_fields:",
            query_params=query,
        )  # fmt: skip
        st.page_link(
            page_file("compare"), label="Compare", icon=":material/compare_arrows:",
            query_params={"head": [address.head_key(run.run, candidate.head.sha256)]},
        )  # fmt: skip
        st.page_link(
            page_file("review"), label="Decide: Review", icon=":material/rate_review:",
            query_params=query,
        )  # fmt: skip
        exports.run_downloads(run, recorded, said)


def _evidence(report: Report, told: Judged, summary: Summary | None) -> None:
    mine = (told.record,)
    parts.figure(charts.harm_against_disagreement(mine, summary))
    parts.figure(charts.disagreement_against_loss(mine, summary))
    if told.limits:
        st.subheader("The policy's limits", anchor=False)
        cells = tuple(line.cells for line in told.limits)
        parts.show_table(Table(LIMIT_HEADER, cells, LIMIT_NUMBERS), "limits")
        parts.sentences([_why(line) for line in told.limits if line.outcome != "pass"])
        with st.expander("Why the policy has the limits that hold"):
            parts.sentences([_why(line) for line in told.limits if line.outcome == "pass"])
    if told.evidence.rows:
        st.subheader("What the verdict rests on", anchor=False)
        _evidence_lines(told.evidence)
    if report.rules:
        st.subheader("Do the rules hold on this reference?", anchor=False)
        parts.sentences(report.rules)
    else:
        st.caption(
            "This reference was not studied, so the published rule stands by name and unchecked; "
            "audit study makes yardsticks of it."
        )
    if summary:
        parts.figure(charts.noise_ladder(summary, mine))


def _why(line: LimitLine) -> str:
    return f"{line.limit}: {line.sentence} ({line.why})"


def _evidence_lines(table: Table) -> None:
    """One card per piece: its sentences are too long for a table's cells."""
    for name, sentence, points_to, weight, source in table.rows:
        with st.container(border=True, gap=None):
            with st.container(horizontal=True, vertical_alignment="center"):
                st.markdown(f"**{safe(name)}**")
                st.badge(f"points to {points_to}", color="gray")
                if weight != "yes":
                    st.badge("no weight here", color="orange")
            st.text(sentence)
            st.caption(f"threshold from {safe(source)}")


def _corpora(told: Judged) -> None:
    parts.figure(charts.retention_by_corpus(told.record))
    parts.figure(charts.ceiling_by_class(told.record))
    if any(e.measure == "break_even_margin" for e in told.record.estimates):
        parts.figure(charts.margin_to_break_even(told.record))
    st.subheader("Retention, the worst corpus first", anchor=False)
    parts.show_table(told.worst, "worst")
    st.subheader("All estimates", anchor=False)
    parts.show_table(told.estimates, "estimates", 20)
    if told.classes.rows:
        st.subheader("By class of token", anchor=False)
        parts.show_table(told.classes, "classes", 20)


def _spread(run: Run, candidate: Candidate) -> None:
    if not run.positions_sha256:
        st.info("This run was recorded without its table of positions.", icon=":material/block:")
        return
    with states.guarded():
        table = store.positions(run, ("candidate", *NEEDED))
    mine = table[table["candidate"] == candidate.head.name]
    parts.figure(charts.kl_spread(mine))
    parts.figure(charts.flip_margins(mine))


def _checks(report: Report) -> None:
    st.subheader(f"Controls: {report.controls_summary}", anchor=False)
    st.caption("The audit's checks on itself, whose right answers are known beforehand.")
    parts.lines(report.controls)
    st.subheader(f"Preflight: {report.findings_summary}", anchor=False)
    parts.lines(report.findings)


def _decisions(run: Run, known: tuple[list[Review], list[Judgement]] | None) -> None:
    """All that was said of the run, the newest first."""
    if known is None:
        st.text("What was decided is in the database, which can not be read now.")
        return
    said, judged = known
    names = {one.head.sha256: one.head.name for one in run.candidates}
    for title, header, rows, none in (
        ("What the gate said", history.JUDGEMENTS, history.judgement_rows(judged, names)[::-1],
         f"No policy was held against this run: audit gate {run.run} --policy FILE does."),
        ("What people decided", history.REVIEWS, history.review_rows(said, names)[::-1],
         "Nobody decided yet."),
    ):  # fmt: skip
        parts.titled_table(title, header, rows, none)


_page()
