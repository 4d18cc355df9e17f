"""What the server was told at its start beside the ledger: files to audit, and who signs.

`audit dashboard` hands its options over behind the `--` of `streamlit run`; without it AUDIT_FILES,
AUDIT_USER_HEADER and AUDIT_REVIEWER say the same.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from audit.errors import BadUsageError
from audit.jobs import ServedFiles
from audit.ledger.signing import reviewer_name

_OPTIONS = {
    "files": "AUDIT_FILES", "user_header": "AUDIT_USER_HEADER", "reviewer": "AUDIT_REVIEWER",
}  # fmt: skip
_NAME_LENGTH = 200


@dataclass(frozen=True, slots=True)
class Signer:
    """Who speaks on this page."""

    name: str
    authenticated: bool
    """A proxy vouches for the name."""
    how: str
    """Where the name comes from, in a sentence."""


def setting(name: str, arguments: Sequence[str] | None = None) -> str | None:
    """What an option says, else its variable; None where neither does."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(f"--{name.replace('_', '-')}", dest=name)
    known, _ = parser.parse_known_args(sys.argv[1:] if arguments is None else arguments)
    return getattr(known, name) or os.environ.get(_OPTIONS[name]) or None


def served_files() -> ServedFiles | None:
    """The folder whose files may be audited; None where the server was given none."""
    folder = setting("files")
    return ServedFiles(Path(folder)) if folder else None


def signer() -> Signer:
    """Who signs: the user that the proxy names, or who the server was told it is.

    Raises:
        BadUsageError: a proxy should tell and did not, or no name is known.
    """
    header = setting("user_header")
    if header is None:
        return Signer(
            reviewer_name(setting("reviewer")), False,
            "Nobody vouches for this name: it is the server's setting (AUDIT_REVIEWER), and "
            "whoever reaches this page signs with it.",
        )  # fmt: skip
    name = " ".join(_header(header).split())[:_NAME_LENGTH]
    if not name:
        raise BadUsageError(
            f"the header {header}, in which a proxy must name you, is not there, so you can not "
            "sign",
            hint="open this page through the proxy",
        )
    return Signer(name, True, f"The proxy vouches for this name, in the header {header}.")


def _header(name: str) -> str:
    """A header of the request that opened this page; empty where it is not there."""
    return st.context.headers.get(name) or ""
