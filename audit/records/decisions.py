"""What was decided about a Run: limits held against it, waivers, reviews. Nothing here computes."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from audit.records.base import SCHEMA_VERSION, Decision, Outcome, Record, Register


class LimitResult(Record):
    """One limit of a policy, held against one candidate."""

    limit: str
    """The limit's name in the policy, unique there."""
    measure: str
    """A measure of the catalogue, or what else is asked for, such as `verdict` or `controls`."""
    register_: Register | None = Field(default=None, alias="register")
    corpus: str | None = None
    """The corpus that decided, the worst one where the limit is held against each."""
    token_class: str | None = None
    bound: str
    """What must hold, in words and units of the screen: `at least 95.0 %`."""
    threshold: float | None = None
    """The bound as a fraction of one, where it is a number."""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    positions_needed: int | None = None
    """About how many positions would decide an undecided limit."""
    predicted: bool = False
    """Held against a predicted loss, not a measured one."""
    outcome: Outcome
    sentence: str
    reason: str
    """Why the policy has this limit."""
    date: str
    """When the policy got it, ISO 8601; empty for the check that every gate makes."""
    waiver: str | None = None
    """Id of the waiver that lifts this failure; the outcome still says that it failed."""

    model_config = ConfigDict(populate_by_name=True)


class PolicyRecord(Record):
    """The policy that judged: enough to find its text again."""

    name: str
    sha256: str
    """Hash of the policy's text."""


class GateResult(Record):
    """The gate's answer for one candidate under one policy."""

    outcome: Outcome
    """Waived limits do not count against it."""
    sentence: str
    limits: tuple[LimitResult, ...]
    policy: PolicyRecord
    changes: tuple[str, ...] = ()
    """What changed since the policy that this one names as its previous one, a sentence each."""
    judged: str
    """UTC, ISO 8601."""


class CandidateGate(Record):
    """One candidate of a judged run, by name and hash."""

    name: str
    head_sha256: str
    gate: GateResult


class GateAnswer(Record):
    """What `audit gate --json` prints: a recorded run held against a policy, nothing recorded."""

    schema_: int = Field(default=SCHEMA_VERSION, alias="schema")
    run: str | None
    """Id of the run; empty where it never was in a ledger, None for a self-test alone."""
    outcome: Outcome | None
    """The worst of the candidates'; the exit code says the same."""
    policy: PolicyRecord
    candidates: tuple[CandidateGate, ...]
    selftest: dict[str, int] | None = None
    """Limit -> on how many made-up runs it gave the right outcome; None when it was not tried."""

    model_config = ConfigDict(populate_by_name=True)


class Waiver(Record):
    """A named person lets one head pass one limit until a day."""

    id: str
    """Hash of the other fields."""
    head_sha256: str
    """Of the head that may pass, or a beginning of it of 12 digits or more."""
    limit: str
    reason: str
    who: str
    created: str
    """UTC, ISO 8601; empty where a waiver file does not tell."""
    expires: str
    """The last day on which it holds, ISO 8601."""


class Review(Record):
    """A person's decision on one candidate of a run. Appended, never changed."""

    id: str
    """Hash of the other fields."""
    run: str
    head_sha256: str
    """Which candidate of the run."""
    decision: Decision
    reason: str
    reviewer: str
    authenticated: bool
    """Whether someone other than the reviewer vouched for the name (a proxy's header)."""
    created: str
    """UTC, ISO 8601."""
    gate: Outcome | None
    """The gate's outcome that the reviewer saw; None when the run was not judged."""
    policy_sha256: str | None
    waivers: tuple[str, ...] = ()
    """Ids, one per limit that did not pass: needed to accept what failed, is undecided or was never
    judged."""
