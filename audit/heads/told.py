"""Findings as they are made: a code, how grave, and a sentence; whose they are is added last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from audit.records import Finding, Severity

Found = Iterator[tuple[str, Severity, str]]


def findings(found: Iterable[tuple[str, Severity, str]], subject: str) -> list[Finding]:
    """The same as records, all of one subject."""
    return [Finding(code=c, severity=s, subject=subject, sentence=t) for c, s, t in found]
