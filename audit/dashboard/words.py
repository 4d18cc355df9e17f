"""Text from strangers, made safe for what Streamlit reads as Markdown."""

from __future__ import annotations

import re

from audit.report.escape import markdown
from audit.report.wording import clean

_NO_JOIN = "&#8203;"
_DIRECTIVE = re.compile(r":(?=[\w+\-/])")
"""What Streamlit reads beyond GitHub: `:material/icon:`, `:red[text]`."""


def safe(text: str) -> str:
    """One line that shows as it is, wherever Streamlit takes Markdown."""
    escaped = markdown(clean(text))
    return _DIRECTIVE.sub(f":{_NO_JOIN}", escaped).strip()
