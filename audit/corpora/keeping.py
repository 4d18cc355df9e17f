"""Which documents of a source are kept: a few plain conditions, all of which must hold."""

from __future__ import annotations

import unicodedata

from audit.corpora.manifest import Filter


def keeps(wanted: Filter, text: str) -> bool:
    """Whether a document passes; white space alone never does."""
    length = len(text)
    if not text.strip() or length < wanted.min_characters:
        return False
    if wanted.max_characters is not None and length > wanted.max_characters:
        return False
    if not all(part in text for part in wanted.contains):
        return False
    if any(part in text for part in wanted.excludes):
        return False
    return wanted.script is None or script_share(text, wanted.script) >= wanted.min_script_share


def script_share(text: str, script: str) -> float:
    """Share of the letters whose Unicode name begins with `script`; 0 without letters."""
    letters = [char for char in text if char.isalpha()]
    named = sum(unicodedata.name(char, "").startswith(f"{script} ") for char in letters)
    return named / len(letters) if letters else 0.0
