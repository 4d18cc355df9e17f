"""Review: the decision on one head, signed, and all that was decided before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Literal

import streamlit as st

from audit.dashboard import address, parts, serving, states, store
from audit.dashboard.app import page_file
from audit.dashboard.words import copyable, safe
from audit.errors import AuditError
from audit.ledger import in_force, limits_to_waive
from audit.ledger.signing import Decided, sign
from audit.provenance import now_utc
from audit.records import Candidate, GateResult, Review, Run, Waiver
from audit.report import history
from audit.report.content import report_of
from audit.report.wording import clean

_DECISIONS = {"accept": "accept", "reject": "reject", "more-data": "ask for more data"}
_LOOKS: dict[str, tuple[Literal["green", "red", "violet"], str]] = {
    "accept": ("green", ":material/check_circle:"),
    "reject": ("red", ":material/cancel:"),
    "more-data": ("violet", ":material/help:"),
}
_MOST_REVIEWS = 20
_NEW = ""
"""Choice of a waiver that is yet to be written."""
_TOLD = "review-told"
_SEEN = "review-seen"
_REASON_LENGTH = 4000


@dataclass(frozen=True, slots=True)
class Seen:
    """What a reviewer knew of one head."""

    answers: Sequence[GateResult]
    reviews: Sequence[str]
    """Their ids."""


def _page() -> None:
    address.tell_names(address.RUN, address.HEAD)
    recorded, chosen = address.asked_head()
    run, away = address.with_standing_gate(recorded)
    if away:
        states.show_error(away)
        st.stop()
    with states.guarded():
        said, waivers = store.reviews(run.run), store.open_here().waivers_of(chosen.head.sha256)
        answers = store.open_here().answers(run.run, chosen.head.sha256)
    place = [one.head.sha256 for one in run.candidates].index(chosen.head.sha256)
    told = report_of(run, reviews=said).candidates[place]
    parts.heading(f"Review of {told.name}", f"against {clean(run.reference.name)} · run {run.run}")
    parts.identity(run, chosen)
    mine = [one for one in said if one.head_sha256 == chosen.head.sha256]
    parts.verdict_strip(told, mine)
    st.page_link(
        page_file("head"), label="The evidence: Head", icon=":material/query_stats:",
        query_params=address.head_query(run.run, chosen.head.sha256),
    )  # fmt: skip
    _tell_result()
    _form(run, chosen, Seen(answers, tuple(one.id for one in mine)), waivers)
    _history(run, said, waivers)


def _tell_result() -> None:
    """What became of the last click: told once."""
    result = st.session_state.pop(_TOLD, None)
    if isinstance(result, AuditError):
        # Its hint names options of the command line; here the fields below say the same.
        st.error(f"**Not recorded:** {copyable(result.message)}", icon=":material/error:")
    elif result:
        st.success(safe(result), icon=":material/check_circle:")


def _form(run: Run, candidate: Candidate, current: Seen, waivers: Sequence[Waiver]) -> None:
    key = f"{run.run}-{candidate.head.sha256}"
    seen = _seen(current, key)
    st.subheader("Decision", anchor=False)
    try:
        signer = serving.signer()
    except AuditError as error:
        states.show_error(error)
        return
    with st.container(border=True):
        decision = st.radio(
            "decision", list(_DECISIONS), format_func=lambda name: _DECISIONS[name], index=None,
            horizontal=True, key=f"decision-{key}", label_visibility="collapsed",
        )  # fmt: skip
        st.text_area(
            "reason", key=f"reason-{key}", max_chars=_REASON_LENGTH,
            placeholder="why, for whoever has to defend this decision later",
        )  # fmt: skip
        if decision == "accept":
            _ask_waivers(candidate, seen.answers, waivers, key)
        _signature(signer)
        st.button(
            "Sign", type="primary", icon=":material/draw:", disabled=decision is None,
            help=None if decision else "choose a decision first", on_click=_sign,
            args=(run, candidate, seen, key),
        )  # fmt: skip


def _seen(current: Seen, key: str) -> Seen:
    """What was on the page when the form was begun. A page drawn anew does not change it: the last
    word that is typed draws the page a moment before the click, and nobody looks then."""
    typed, name = st.session_state, f"{_SEEN}-{key}"
    begun = typed.get(f"decision-{key}") or typed.get(f"reason-{key}")
    if not begun or name not in typed:
        typed[name] = current
    found: Seen = typed[name]
    return found


def _signature(signer: serving.Signer) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.text(f"signed by {clean(signer.name)}", width="content")
        if signer.authenticated:
            st.badge("authenticated", color="green", icon=":material/verified_user:")
        else:
            st.badge("unauthenticated", color="orange", icon=":material/no_accounts:")
    st.caption(safe(signer.how))


def _ask_waivers(
    candidate: Candidate, answers: Sequence[GateResult], waivers: Sequence[Waiver], key: str
) -> None:
    """What accepting demands beside the reason: one waiver for each limit that did not pass."""
    needed = limits_to_waive(answers)
    if not needed:
        return
    why = "This head was never judged."
    if answers:
        why = f"The gate says {answers[0].outcome} under {safe(answers[0].policy.name)}."
    st.warning(
        f"**{why}** Accepting it needs a waiver: it lets these very bytes "
        f"({candidate.head.sha256[:12]}) pass a limit until a day, and is shown for ever.",
        icon=":material/policy_alert:",
    )
    today = now_utc()[:10]
    sentences = {one.limit: one.sentence for answer in answers for one in answer.limits}
    fresh: list[str] = []
    for limit in needed:
        labels = {
            one.id: _waiver_label(one)
            for one in reversed(waivers)
            if one.limit == limit and in_force(one, today)
        } | {_NEW: "a new one, with the reason above"}
        picked = st.selectbox(
            f"waiver for {safe(limit)}", list(labels), key=_waiver_key(limit, key),
            format_func=labels.__getitem__,
        )  # fmt: skip
        if limit in sentences:
            st.caption(safe(sentences[limit]))
        if picked == _NEW:
            fresh.append(limit)
    if fresh:
        st.date_input(
            f"last day of the new waiver for {safe(', '.join(fresh))}", value=None, width=320,
            min_value=datetime.now(UTC).date(), key=f"expires-{key}", format="YYYY-MM-DD",
        )  # fmt: skip


def _waiver_key(limit: str, key: str) -> str:
    return f"waiver-{limit}-{key}"


def _waiver_label(waiver: Waiver) -> str:
    return clean(f"{waiver.id[:12]} by {waiver.who} until {waiver.expires}: {waiver.reason}")


def _sign(run: Run, candidate: Candidate, seen: Seen, key: str) -> None:
    """Runs before the page is drawn again.

    What was typed is taken from the widgets themselves: a click may come with the last words,
    before the page was drawn with them.

    Args:
        seen: what was on the page when the form was begun; when this was refused, what is now.
    """
    st.session_state.pop(f"{_SEEN}-{key}", None)
    try:
        said = _said(candidate, seen.answers, key)
        saved = sign(store.open_here(), run, said, seen.answers, seen.reviews)
    except AuditError as error:
        st.session_state[_TOLD] = error
        return
    st.session_state[_TOLD] = history.recorded(saved, candidate.head.name)
    # A second click must not sign the same again.
    st.session_state[f"reason-{key}"] = ""
    st.session_state[f"decision-{key}"] = None


def _said(candidate: Candidate, seen: Sequence[GateResult], key: str) -> Decided:
    typed = st.session_state
    decision, signer = typed.get(f"decision-{key}") or "", serving.signer()
    needed = limits_to_waive(seen) if decision == "accept" else ()
    picked = {limit: typed.get(_waiver_key(limit, key)) or _NEW for limit in needed}
    day: date | None = typed.get(f"expires-{key}")
    return Decided(
        decision=decision,
        reason=(typed.get(f"reason-{key}") or "").strip(),
        reviewer=signer.name,
        authenticated=signer.authenticated,
        candidate=candidate.head.sha256,
        waivers=tuple(name for name in picked.values() if name != _NEW),
        limits=tuple(limit for limit, name in picked.items() if name == _NEW),
        expires=day.isoformat() if day else None,
    )


def _history(run: Run, said: Sequence[Review], waivers: Sequence[Waiver]) -> None:
    names = {one.head.sha256: one.head.name for one in run.candidates}
    with states.guarded():
        judged = store.judgements(run.run)
    st.subheader("What people decided", anchor=False)
    _decisions(said, names)
    for title, header, rows, none in (
        ("What the gate said", history.JUDGEMENTS, history.judgement_rows(judged, names)[::-1],
         f"No policy was held against this run: audit gate {run.run} --policy FILE does."),
        ("Waivers of this head", history.WAIVERS, history.waiver_rows(waivers, now_utc()[:10]),
         "None."),
    ):  # fmt: skip
        parts.titled_table(title, header, rows, none)


def _decisions(said: Sequence[Review], names: dict[str, str]) -> None:
    """The newest first, each reason in full: it is what the decision is defended with."""
    if not said:
        st.text("Nobody decided yet.")
    for row in history.review_rows(said, names)[: -_MOST_REVIEWS - 1 : -1]:
        told = dict(zip(history.REVIEWS, row, strict=True))
        with st.container(border=True):
            with st.container(horizontal=True, vertical_alignment="center"):
                colour, icon = _LOOKS[told["decision"]]
                st.badge(told["decision"], color=colour, icon=icon)
                st.text(f"{told['candidate']} · by {told['by']} · {told['reviewed']}")
            st.text(told["reason"])
            st.caption(safe(f"gate then: {told['gate then']} · waivers: {told['waivers']}"))
    more = f"Shown are {_MOST_REVIEWS} of {len(said)}. " if len(said) > _MOST_REVIEWS else ""
    st.caption(f"{more}Decisions are appended and never changed; the newest one counts.")


_page()
