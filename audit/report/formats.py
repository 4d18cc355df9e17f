"""The formats of a report: which there are, which one a file's name asks for, and their text.

One `Report` goes into each, so the same sentences come out. Whoever imports this imports no chart
library: the HTML report does, when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from audit.errors import BadUsageError
from audit.ledger import run_json
from audit.records import Review, Run
from audit.report.card import render_card
from audit.report.content import Report, report_of
from audit.report.junit import render_junit
from audit.report.markdown import render_markdown
from audit.report.token_text import TokenText
from audit.table import Frame

SUFFIXES = {
    ".md": "markdown", ".markdown": "markdown", ".html": "html", ".htm": "html",
    ".json": "json", ".xml": "junit",
}  # fmt: skip
FORMATS = ("markdown", "html", "json", "junit", "card")
WITH_POSITIONS = ("markdown", "html")
"""Formats that say more when they get the table of positions."""


def render(
    run: Run,
    format_: str,
    *,
    positions: Frame | None = None,
    limit: int = 20,
    text: TokenText | None = None,
    reviews: Sequence[Review] = (),
) -> str:
    """The run in one of FORMATS.

    Args:
        positions: the table of positions, for flips and distributions.
        limit: how many of the costliest flips are listed.
        text: what a token id says, where a tokenizer is at hand.
        reviews: decisions on this run, the oldest first.
    """
    if format_ == "json":
        return run_json(run) + "\n"
    report = report_of(run, flips=positions, limit=limit, text=text, reviews=reviews)
    if format_ == "html":
        from audit.report.html import render_html

        return render_html(report, positions)
    writers: dict[str, Callable[[Report], str]] = {
        "markdown": render_markdown, "junit": render_junit, "card": render_card,
    }  # fmt: skip
    return writers[format_](report)


def format_for(path: Path | None, asked: str | None) -> str:
    """The format asked for, else that of the file's suffix, else Markdown.

    Raises:
        BadUsageError: the suffix names no format.
    """
    if asked or path is None:
        return asked or "markdown"
    found = SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise BadUsageError(
            f"the suffix {path.suffix or 'of this name'} names no format of a report",
            hint=f"use one of {', '.join(SUFFIXES)}, or say --format {' or '.join(FORMATS)}",
            where=path,
        )
    return found


def append_text(path: Path, text: str) -> None:
    """Add a report to a file that others write to as well, such as a job's summary.

    Raises:
        BadUsageError: the file can not be written.
    """
    try:
        with path.open("a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise BadUsageError(
            f"the report can not be written: {error.strerror}",
            hint="choose another place",
            where=path,
        ) from error
