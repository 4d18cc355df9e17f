"""What an audit found: findings, controls, estimates, evidence, verdict."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from audit.records.base import Record, Register, Severity, VerdictKind


class Finding(Record):
    """One sentence of the preflight, with a stable code."""

    code: str
    severity: Severity
    subject: str
    """`reference`, a candidate's name, or a trace's corpus."""
    sentence: str


class Control(Record):
    """A check on the audit itself whose right answer is known beforehand."""

    name: str
    corpus: str
    observed: float
    expected: str
    passed: bool
    sentence: str


class Estimate(Record):
    """One measure with its uncertainty. Rates, retention, tax and loss are fractions of one."""

    measure: str
    corpus: str | None
    """None when pooled over all corpora of the register."""
    register_: Register | None = Field(alias="register")
    token_class: str | None = None
    """Only positions whose oracle is of this class (`heads.tokens`); None for all positions."""
    value: float | None
    """Pooled over positions. None when there is nothing to measure; `reason` then says why."""
    low: float | None = None
    high: float | None = None
    level: float = 0.95
    macro: float | None = None
    """Mean over sequences, each sequence counting once."""
    positions: int
    sequences: int
    reason: str | None = None
    """Why value or interval is missing, or how a degenerate interval was made."""

    model_config = ConfigDict(populate_by_name=True)


class Evidence(Record):
    """One piece of what the verdict rests on."""

    name: str
    corpus: str | None
    value: float | None
    low: float | None
    high: float | None
    threshold: float | None
    source: str
    """Where the threshold comes from, by name."""
    points_to: VerdictKind
    weight: bool
    """False when the rule failed its own check on this reference's yardsticks."""
    sentence: str


class Verdict(Record):
    """What kind of cut this is, and the sentence that says why."""

    kind: VerdictKind
    sentence: str
    evidence: tuple[Evidence, ...]
