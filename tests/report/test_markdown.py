"""Markdown for pull requests, read by GitHub's own renderer."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from audit.records import Run
from audit.report.content import report_of
from audit.report.escape import html_in_markdown, markdown, markdown_table
from audit.report.markdown import MAX_CHARACTERS, render_markdown
from audit.report.wording import clean
from tests.report.made import HOSTILE, candidate, estimate, gate, hostile, limit, review, run, runs
from tests.report.readers import github, squeezed

OURS = {
    "h3", "h4", "p", "strong", "em", "table", "thead", "tbody", "tr", "th", "td", "ul", "li",
    "details", "summary",
}  # fmt: skip


@given(hostile)
@example("a|b`c`<b>*d*")
@settings(max_examples=300)
def test_text_shows_as_it_is_in_a_paragraph_and_in_a_cell(text: str) -> None:
    shown = squeezed(clean(text))
    page = github(f"x {markdown(clean(text))}\n")
    assert page.tags == {"p"} and squeezed(page.text) == squeezed(f"x {shown}")
    page = github(markdown_table(["a", "b"], [[clean(text), "next"]]))
    assert squeezed(page.cells[2]) == shown and page.cells[3] == "next"
    assert page.tags <= OURS
    page = github(f"<details><summary>{html_in_markdown(clean(text))}</summary>\n\nx\n\n</details>")
    assert page.tags == {"details", "summary", "p"} and squeezed(page.text).startswith(shown[:5])


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_known_to_do_harm_becomes_a_link_a_mention_or_a_tag(text: str) -> None:
    escaped = markdown(clean(text))
    page = github(f"x {escaped} y\n")
    assert page.tags == {"p"}
    # Mentions and shortcodes are found in the finished text, so a space without width parts them.
    for mark in ("@someone", ":smile:", "www.evil", "https:"):
        assert mark not in page.text
    assert "\x1b" not in escaped and "\u202e" not in escaped


@settings(max_examples=40)
@given(runs())
def test_whatever_a_run_holds(found: Run) -> None:
    text = render_markdown(report_of(found))
    page = github(text)
    assert page.tags <= OURS and len(text) <= MAX_CHARACTERS and text.endswith("\n")
    text.encode()
    seen = squeezed(page.text)
    for judged in report_of(found).candidates:
        assert squeezed(judged.verdict) in seen
        assert judged.outcome is None or squeezed(judged.outcome_sentence) in seen


def test_the_outcome_comes_first_then_limits_then_the_worst_corpora_then_the_verdict() -> None:
    failed = candidate(gate=gate("fail", limit(), limit(limit="in", outcome="pass")))
    text = render_markdown(report_of(run(failed)))
    order = [
        "**fail**: 1 of 1 candidate fails", "| limit |", "| shift |", "| in |", "| corpus |",
        "| german | domain shift |", "| code |", "**function cut**", "| evidence |", "<details>",
    ]  # fmt: skip
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "<summary>Controls: 1 of 1 passed</summary>" in text
    # What asks for attention is not folded away.
    assert text.index("STOP\\_LOST") < text.index("<summary>Controls")


def test_a_review_is_told_beside_the_outcome() -> None:
    text = render_markdown(report_of(run(), reviews=[review(reason="we |need| it")]))
    assert "Ada (unauthenticated)" in text and text.index("Ada") < text.index("####")
    assert "we |need| it" in github(text).cells


def test_a_long_report_loses_its_end_and_says_so() -> None:
    many = [estimate("harm", 0.1, corpus=f"corpus-{i}") for i in range(3000)]
    text = render_markdown(report_of(run(candidate(estimates=many))))
    assert len(text) <= MAX_CHARACTERS
    assert "sections are left out for length" in text
    assert text.index("**function cut**") < 2000
    assert "<summary>Provenance</summary>" in text


@given(st.lists(st.lists(hostile, min_size=3, max_size=3), max_size=5))
@settings(max_examples=50)
def test_a_table_keeps_its_shape(rows: list[list[str]]) -> None:
    cleaned = [[clean(cell) for cell in row] for row in rows]
    page = github(markdown_table(["a", "b", "c"], cleaned, numbers=[1]))
    assert [squeezed(cell) for cell in page.cells[3:]] == [squeezed(c) for r in cleaned for c in r]
