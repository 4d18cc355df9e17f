"""Counts and lists of names in sentences. Below everything that says something to people."""

from __future__ import annotations

from collections.abc import Iterable

_SHOWN = 4


def count(number: int, noun: str) -> str:
    """1 warning, 2 warnings, 1,024 warnings."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def some(names: Iterable[object], shown: int = _SHOWN) -> str:
    """The first few, and how many more there are."""
    listed = [str(name) for name in names]
    more = f" and {len(listed) - shown} more" if len(listed) > shown else ""
    return ", ".join(listed[:shown]) + more
