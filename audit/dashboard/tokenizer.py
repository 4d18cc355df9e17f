"""The tokenizer that says what a run's ids mean, where one can be trusted to be the verifier's.

AUDIT_TOKENIZER names one; else the tokenizer beside the reference's files is taken if its
vocabulary has the hash that the traces carry. Otherwise ids stay ids, and the page says why.
"""

from __future__ import annotations

import os
from pathlib import Path

import streamlit as st

from audit.errors import AuditError
from audit.records import Run
from audit.report.token_text import FILE, TokenReader, read_tokenizer

ENVIRONMENT = "AUDIT_TOKENIZER"
_HINT = f"set {ENVIRONMENT} to the verifier's folder or its {FILE}"


def reader_of(run: Run) -> tuple[TokenReader | None, str]:
    """The reader, or None; and in a sentence which one it is, or why there is none."""
    wanted = {trace.info.tokenizer_sha256 for trace in run.traces} - {None}
    named = os.environ.get(ENVIRONMENT)
    place = Path(named) if named else _beside(Path(run.reference.path))
    if place is None:
        return None, f"Tokens are ids: no {FILE} lies beside the reference; {_HINT}."
    try:
        reader, digest = _read(str(place), place.stat().st_mtime)
    except (AuditError, OSError) as error:
        return None, f"Tokens are ids: {error}; {_HINT}."
    if wanted == {digest}:
        return reader, f"Tokens are read by the verifier's own tokenizer, {digest[:12]}."
    if not named:
        why = "is another than the traces'" if wanted else "can not be checked: traces name none"
        return None, f"Tokens are ids: the tokenizer beside the reference {why}; {_HINT}."
    return reader, (
        f"Tokens are read by {ENVIRONMENT}, whose vocabulary ({digest[:12]}) the traces do not "
        "confirm: texts may be wrong."
    )


def _beside(reference: Path) -> Path | None:
    for folder in (reference, reference.parent):
        try:
            if (folder / FILE).is_file():
                return folder / FILE
        except OSError:  # a name that no file can have
            return None
    return None


@st.cache_resource(max_entries=4, show_spinner="Reading the tokenizer …")
def _read(place: str, modified: float) -> tuple[TokenReader, str]:
    reader = read_tokenizer(Path(place))
    return reader, reader.sha256()
