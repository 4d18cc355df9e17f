"""A policy as data, and how two of them differ. Nothing here reads files or judges."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from audit.policy.limits import Limit
from audit.policy.requirements import Requirement
from audit.policy.values import Words
from audit.records import PolicyRecord, Record

CONTROLS_LIMIT = "controls"
"""Name of the check on the audit's own controls, which every gate makes and nobody can waive."""


class Change(Record):
    """One difference between two policies."""

    name: str
    what: Literal["added", "removed", "changed"]
    looser: bool | None
    """True when more heads pass than before; None where that can not be told."""
    sentence: str


class Policy(Record):
    """Everything that a head must show to be released."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    name: Words
    previous: Words | None = None
    """The policy before this one, beside this file; the gate reports what changed since."""
    limits: tuple[Limit, ...] = Field(default=(), alias="limit")
    requirements: tuple[Requirement, ...] = Field(default=(), alias="require")
    sha256: str = ""
    """Hash of the policy's text."""
    changes: tuple[Change, ...] = ()
    """Since `previous`."""

    model_config = ConfigDict(populate_by_name=True)

    @property
    def parts(self) -> tuple[Limit | Requirement, ...]:
        """All of it, in the order of the file: requirements first."""
        return (*self.requirements, *self.limits)

    @property
    def record(self) -> PolicyRecord:
        """What a Run remembers of it."""
        return PolicyRecord(name=self.name, sha256=self.sha256)

    @model_validator(mode="after")
    def _sound(self) -> Policy:
        names = [part.name for part in self.parts]
        if not names:
            raise ValueError("it has no limits, so every head would pass")
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"two limits are named {twice[0]!r}: a waiver could mean either")
        for part in self.parts:
            own = isinstance(part, Requirement) and part.what == CONTROLS_LIMIT
            if part.name == CONTROLS_LIMIT and not own:
                raise ValueError(
                    f"the name {CONTROLS_LIMIT!r} is kept for the check of the audit's own controls"
                )
        return self
