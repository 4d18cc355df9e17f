"""What a release must show besides measures: what was audited, how, when, and what came out."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from audit.policy.suggest import known_control, known_finding
from audit.policy.values import Count, Named, VersionText, Words
from audit.records import Register, VerdictKind


class Requirement(Named):
    """One thing besides measures that a release must show; exactly one of the keys below."""

    verdicts: tuple[VerdictKind, ...] | None = None
    """The verdict must be one of these."""
    controls: tuple[Annotated[str, BeforeValidator(known_control)], ...] | None = None
    """Controls that must have run, and passed."""
    registers: tuple[Register, ...] | None = None
    """Registers that must have been audited."""
    corpora: tuple[Words, ...] | None = None
    """Corpora that must have been audited."""
    positions: Count | None = None
    """Positions that each corpus must have at least."""
    sequences: Count | None = None
    """Sequences that each corpus must have at least."""
    compressed: Literal[True] | None = None
    """The candidate's weights differ from the reference's, and take fewer bytes."""
    no_findings: tuple[Annotated[str, BeforeValidator(known_finding)], ...] | None = None
    """Codes that the preflight must not have found on the candidate or on what all share."""
    run_age_days: Count | None = None
    """The run must not be older."""
    calibration_age_days: Count | None = None
    """The reference must have a calibration, and it must not be older."""
    audit_version: VersionText | None = None
    """The audit must have been made by this version of head-audit or a newer one."""
    measures_version: Count | None = None
    """The same for the definitions of the measures."""
    register_: Register | None = Field(default=None, alias="register")
    """With positions or sequences: only corpora of this register."""
    corpus: Words | None = None
    """With positions or sequences: only this corpus."""

    model_config = ConfigDict(populate_by_name=True)

    @property
    def what(self) -> str:
        """The one key that is given."""
        return next(key for key in ASKS if getattr(self, key) is not None)

    @model_validator(mode="after")
    def _sound(self) -> Requirement:
        given = [key for key in ASKS if getattr(self, key) is not None]
        if len(given) != 1:
            told = f"it gives {', '.join(given)}" if given else "it asks for nothing"
            raise ValueError(f"{told}: give exactly one of {', '.join(ASKS)}")
        if getattr(self, given[0]) == ():
            raise ValueError(f"{given[0]} is empty: it could not fail")
        scoped = self.register_ is not None or self.corpus is not None
        if scoped and given[0] not in ("positions", "sequences"):
            raise ValueError("register and corpus belong to positions and sequences only")
        return self


ASKS = (
    "verdicts",
    "controls",
    "registers",
    "corpora",
    "positions",
    "sequences",
    "compressed",
    "no_findings",
    "run_age_days",
    "calibration_age_days",
    "audit_version",
    "measures_version",
)
