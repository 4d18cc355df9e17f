"""Foreign text made safe for Markdown, YAML and CSV: names and tokens come from strangers.

HTML and XML are escaped by the libraries that write them (jinja2, xml.etree). What is given here
is one line already (`wording.clean`): no control, no line break, nothing that turns the text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence

from audit.report.wording import clean

_PUNCTUATION = re.compile(r"([\\`*_{}\[\]#|~!$])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_SHORTCODE = re.compile(r":(?=[\w+-]+:)")
_LINK = re.compile(r"(?i)\b(https?|ftp|mailto|xmpp)(?=:)|\bwww(?=\.)")
_NO_JOIN = "&#8203;"
"""A space without width: it parts what a renderer would otherwise join to a link or a mention."""


def markdown(text: str) -> str:
    """Text that every GitHub or GitLab renderer shows as it is, in a paragraph or a table cell.

    Not for the start of a line, where a digit or a dash would begin a list.
    """
    safe = _entities(_PUNCTUATION.sub(r"\\\1", text))
    safe = _LINK.sub(lambda found: found[0] + _NO_JOIN, safe)
    return _SHORTCODE.sub(f":{_NO_JOIN}", safe)


def html_in_markdown(text: str) -> str:
    """Text inside a tag, where Markdown is not read and a backslash would show."""
    return _entities(text)


def _entities(text: str) -> str:
    """Without tags, and without mentions, which are found in the finished page."""
    safe = re.sub("[&<>]", lambda found: _ENTITIES[found[0]], text)
    return safe.replace("@", f"@{_NO_JOIN}")


def markdown_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()
) -> str:
    """A pipe table; columns in `numbers` are set flush right."""
    rules = ["---:" if place in numbers else "---" for place in range(len(header))]
    lines = [
        _row([markdown(cell) or " " for cell in header]),
        _row(rules),
        *(_row(list(map(markdown, row))) for row in rows),
    ]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def yaml_text(text: str) -> str:
    """A quoted scalar that YAML 1.1, YAML 1.2 and JSON read alike."""
    # Escaped as surrogate pairs, which JSON joins again, characters beyond U+FFFF break in YAML.
    return json.dumps(text, ensure_ascii=False)


def yaml_number(value: float | None) -> str:
    """A number that YAML 1.1 reads as one: it takes 1e-05, without a point, for text."""
    if value is None or not math.isfinite(value):
        return "null"
    shown = f"{value:.6g}"
    mantissa, e, exponent = shown.partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}e{exponent}" if e else mantissa


def spreadsheet_cell(value: object) -> object:
    """A cell of CSV: no control characters, and nothing that a spreadsheet calculates."""
    if not isinstance(value, str):
        return "" if value is None else value
    text = clean(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
