"""What the values in a policy may be; each refusal says what to write instead."""

from __future__ import annotations

import datetime
from typing import Annotated, Any

from packaging.version import InvalidVersion, Version
from pydantic import BeforeValidator, Field, StrictInt

from audit.records import Record

_LARGEST = 10**12
"""No bound, count or age comes near it."""


def number(value: Any) -> float | None:
    """A plain number. TOML has NaN, infinity and booleans, none of which bounds anything."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r:.60} is not a number: write 0.95 without quotes")
    if not -_LARGEST < value < _LARGEST:  # NaN is on neither side
        raise ValueError(f"{value!s:.20} bounds nothing: write a number")
    return float(value)


def day(value: Any) -> Any:
    """A day; TOML's own dates and ISO 8601 strings."""
    if isinstance(value, datetime.datetime):
        return value.date()
    if isinstance(value, str):
        try:
            return datetime.date.fromisoformat(value)
        except ValueError:
            raise ValueError(f"{value!r} is not a day: write 2026-01-31") from None
    return value


def version(value: str) -> str:
    try:
        Version(value)
    except InvalidVersion:
        raise ValueError(f"{value!r} is not a version: write 0.1.0") from None
    return value


def words(value: Any) -> Any:
    """Text for people: something to read, and nothing that a screen would obey."""
    if isinstance(value, str) and not (value.strip() and value.replace("\n", " ").isprintable()):
        raise ValueError(f"{value!r:.60} is not text that can be read")
    return value


Bound = Annotated[float | None, BeforeValidator(number)]
Day = Annotated[datetime.date, BeforeValidator(day)]
Words = Annotated[str, BeforeValidator(words)]
VersionText = Annotated[str, BeforeValidator(version)]
Count = Annotated[StrictInt, Field(ge=1, le=_LARGEST)]


class Named(Record):
    """What every part of a policy carries, so that nobody has to guess why it is there."""

    name: Words
    """Unique in the policy; waivers name it."""
    reason: Words
    """Why the policy asks for this."""
    date: Day
    """The day it got into the policy, or was last changed."""
