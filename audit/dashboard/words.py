"""Text from strangers, made safe for what Streamlit reads as Markdown."""

from __future__ import annotations

import re

from audit.report.escape import markdown
from audit.report.wording import clean

_NO_JOIN = "&#8203;"
_DIRECTIVE = re.compile(r":(?=[\w+\-/])")
"""What Streamlit reads beyond GitHub: `:material/icon:`, `:red[text]`."""


_BACKTICKS = re.compile("`+")


def copyable(text: str) -> str:
    """The same for errors, whose paths and addresses are copied: they stand as code, in which no
    space without width is needed."""
    return " ".join(_word(word) for word in clean(text).split())


def _word(word: str) -> str:
    shown = safe(word)
    if _NO_JOIN not in shown:
        return shown
    runs = {len(run) for run in _BACKTICKS.findall(word)}
    fence = "`" * next(n for n in range(1, len(runs) + 2) if n not in runs)
    around = " " if word[0] == "`" or word[-1] == "`" else ""
    return f"{fence}{around}{word}{around}{fence}"


def safe(text: str) -> str:
    """One line that shows as it is, wherever Streamlit takes Markdown."""
    escaped = markdown(clean(text))
    return _DIRECTIVE.sub(f":{_NO_JOIN}", escaped).strip()
