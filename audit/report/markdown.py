"""A Run as Markdown for a pull request or a job's summary.

The outcome first, then what the policy asked for, the worst corpora, and the verdict with its
evidence; the rest is folded. Long reports lose their last sections, never their first: a pull
request comment holds 65,536 characters.
"""

from __future__ import annotations

from collections.abc import Sequence

from audit.report.content import Judged, Line, Report
from audit.report.decided import LIMIT_HEADER, LIMIT_NUMBERS
from audit.report.escape import html_in_markdown, markdown, markdown_table
from audit.report.tables import Table

MAX_CHARACTERS = 60_000
_WORST = 5
_LEFT_OUT = "\n*{n} further sections are left out for length; the HTML report has them.*\n"


def render_markdown(report: Report) -> str:
    """The report as Markdown, at most MAX_CHARACTERS long, with a line feed at its end."""
    parts = [_top(report)]
    if report.ranking:
        parts.append(_table(report.ranking))
    judged = report.outcome is not None
    parts += [_candidate(candidate, judged) for candidate in report.candidates]
    parts.append(_compared(report))
    parts += [_details(candidate) for candidate in report.candidates]
    if report.flips:
        parts.append(_fold("Costliest flips", _table(report.flips)))
    parts += [_checks(report), _provenance(report)]
    return _within(parts)


def _within(parts: Sequence[str]) -> str:
    """As many parts as fit, and how many do not."""
    room = MAX_CHARACTERS - len(_LEFT_OUT) - 8
    text, left_out = "", 0
    for part in parts:
        if len(text) + len(part) + 2 > room:
            left_out += 1
        else:
            text += f"{part.strip()}\n\n"
    return text.rstrip() + "\n" + (_LEFT_OUT.format(n=left_out) if left_out else "")


def _top(report: Report) -> str:
    lines = ["### Draft head audit", "", _worded(report.headline), ""]
    if report.reviews:
        lines += [_table(report.reviews), ""]
    return "\n".join(lines)


def _worded(sentence: str) -> str:
    """A sentence whose first word, up to the colon, is the answer."""
    word, colon, rest = sentence.partition(":")
    return f"**{markdown(word)}**{colon}{markdown(rest)}"


def _candidate(candidate: Judged, judged: bool) -> str:
    """Outcome, limits, worst corpora, verdict and evidence of one candidate."""
    lines = [f"#### {markdown(candidate.name)}", ""]
    if judged:
        lines += [_worded(candidate.outcome_sentence), ""]
    if candidate.changes:
        changed = (f"* {markdown(sentence)}" for sentence in candidate.changes)
        lines += ["Changed since the previous policy:", "", *changed, ""]
    if candidate.limits:
        rows = [line.cells for line in candidate.limits]
        lines += [markdown_table(LIMIT_HEADER, rows, LIMIT_NUMBERS), ""]
    if candidate.worst.rows:
        worst = candidate.worst
        hidden = len(worst.rows) - _WORST
        lines += [markdown_table(worst.header, worst.rows[:_WORST], worst.numbers), ""]
        lines += [f"{hidden} more corpora below, under *all estimates*.", ""] * (hidden > 0)
    lines += [_worded(candidate.verdict), ""]
    lines += [f"* {markdown(sentence)}" for sentence in candidate.predictions]
    lines += [""] * bool(candidate.predictions)
    if candidate.evidence.rows:
        lines += [_table(candidate.evidence), ""]
    return "\n".join(lines)


def _compared(report: Report) -> str:
    return _fold("What was compared", f"{_table(report.heads)}\n\n{_table(report.traces)}")


def _details(candidate: Judged) -> str:
    parts = [_table(candidate.estimates)]
    if candidate.classes.rows:
        parts.append(_table(candidate.classes))
    parts += [
        f"* **{markdown(line.limit)}** ({line.outcome}): {markdown(line.sentence)} "
        f"({markdown(line.why)})"
        for line in candidate.limits
    ]
    return _fold(f"{candidate.name}: all estimates", "\n\n".join(parts))


def _checks(report: Report) -> str:
    """Preflight, controls and the calibration's rules."""
    loud = [finding for finding in report.findings if finding.loud]
    failed = [control for control in report.controls if control.loud]
    shown = _lines([*failed, *loud])
    rules = "".join(f"* {markdown(rule)}\n" for rule in report.rules)
    parts = [
        shown,
        _fold(f"Controls: {report.controls_summary}", _lines(report.controls)),
        _fold(f"Preflight: {report.findings_summary}", _lines(report.findings)),
        _fold("Rules on this reference's yardsticks", rules) if rules else "",
    ]
    return "\n".join(part for part in parts if part)


def _lines(lines: Sequence[Line]) -> str:
    return "".join(f"* **{line.word}** {markdown(line.sentence)}\n" for line in lines)


def _provenance(report: Report) -> str:
    lines = (f"* {label}: {markdown(text)}\n" for label, text in report.provenance)
    return _fold("Provenance", "".join(lines))


def _table(table: Table) -> str:
    return markdown_table(table.header, table.rows, table.numbers)


def _fold(title: str, inside: str) -> str:
    """Folded until asked for. The empty lines make Markdown inside HTML be read as Markdown."""
    return f"<details><summary>{html_in_markdown(title)}</summary>\n\n{inside}\n\n</details>\n"
