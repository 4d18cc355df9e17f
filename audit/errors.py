"""The only exceptions that users see: what happened, where, and what to do.

Every error carries a `kind` from a closed list (the `--json` contract), an optional stable `code`
such as MAP_MISSING, and a hint. Anything else that escapes is a bug and exits with 70.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from pydantic import ValidationError


class AuditError(Exception):
    """Bad input or usage: exit code 2.

    Attributes:
        message: one sentence, prefixed with `code` when there is one.
        hint: what to do next; may be empty.
        where: the file, tensor or option concerned; may be empty.
    """

    kind: ClassVar[str] = "usage"
    exit_code: ClassVar[int] = 2

    def __init__(
        self, message: str, *, hint: str = "", where: str | Path = "", code: str = ""
    ) -> None:
        self.code = code
        self.message = f"{code}: {message}" if code else message
        self.hint = hint
        self.where = str(where)
        super().__init__(self.message)

    def as_json(self) -> dict[str, dict[str, str]]:
        """The error as the one JSON document that `--json` prints."""
        fields = {"kind": self.kind, "message": self.message}
        return {"error": fields | {"hint": self.hint, "where": self.where}}


class BadUsageError(AuditError):
    """Arguments that contradict each other or ask for what does not exist."""


class NotFoundError(AuditError):
    """A file, folder, tensor or run that is not there."""

    kind = "not_found"


class UnreadableError(AuditError):
    """A file that is cut, malformed or holds values that cannot be used."""

    kind = "unreadable"


class MismatchError(AuditError):
    """Inputs that are each fine but do not belong together."""

    kind = "mismatch"


class UnsupportedFormatError(AuditError):
    """A format, type or architecture that this version cannot read."""

    kind = "unsupported_format"


class BadPolicyError(AuditError):
    """A policy or waiver file that can not have been meant as it stands."""

    kind = "bad_policy"


class MissingExtraError(AuditError):
    """An optional library that is not installed."""

    kind = "missing_extra"


def first_wrong(error: ValidationError, whole: str) -> str:
    """The first thing that pydantic found wrong, after its key; `whole` where it has none."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    return f"{key or whole}: {first['msg']}"


def first_line(error: Exception) -> str:
    """The first line of a library's error, its type's name where it says nothing."""
    return str(error).partition("\n")[0] or type(error).__name__
