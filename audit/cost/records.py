"""What `audit cost` found, as a document. Imports no torch."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from audit.records.base import Record, Register

COST_SCHEMA = 1
_Speed = Annotated[float, Field(ge=1e-9, le=1e9)]
"""Tokens per second: beyond these no engine is, and quotients would be no numbers."""


class HeadCost(Record):
    """One head's bytes, from the files as stored."""

    name: str
    kind: str
    encoding: str
    sha256: str | None
    """None for a size that was asked for and is in no file."""
    block_bytes: int
    projection_bytes: int
    map_bytes: int
    bytes_per_step: int
    rows: int
    row_ratio: float
    """Rows of the reference for each of this head's."""
    bytes_ratio: float
    """Bytes of a step, as a share of the reference's."""


class VerifierCost(Record):
    """What one step of the target model reads."""

    name: str
    weight_bytes: int
    expert_bytes: int
    kv_bytes_per_token: int
    """Of all layers together, for each token that they keep."""
    kv_bytes: int
    """Of one user at the context asked for."""


class Worth(Record):
    """One head's round at one setting; times and rates are the model's, never measured."""

    head: str
    slots: int
    context: int
    users: int
    acceptance: float | None
    """The even acceptance that yields the same tokens per round."""
    chain_acceptance: float | None
    tokens_per_round: float | None
    draft_ms: float | None
    verify_ms: float | None
    plain_ms: float | None
    round_ms: float | None
    tokens_per_second: float | None
    """Of one user."""
    against_plain: float | None
    """Its rate divided by plain decoding's."""
    against_ref: float | None
    """Its rate divided by that with the reference head; None for the reference."""
    break_even_acceptance: float | None
    """Even acceptance at which it is as fast as plain decoding."""
    break_even_margin: float | None
    margin_low: float | None
    """The margin at the ends of the acceptance's interval, where that is known."""
    margin_high: float | None
    break_even_against_ref: float | None
    margin_against_ref: float | None
    reason: str | None = None
    """Why figures are missing."""


class Scenario(Record):
    """Acceptance from one source, and what each head is worth with it."""

    name: str
    """A corpus, or `given`."""
    corpus: str | None
    register_: Register | None
    source: str
    """Where the acceptance comes from."""
    positions: int = 0
    """Positions, or chains, that acceptance was measured on; 0 where it was given."""
    sequences: int = 0
    shares: dict[str, tuple[float, ...]]
    """p_k by head."""
    worth: tuple[Worth, ...]
    sweep: tuple[Worth, ...] = ()
    """One of K, context and users changed at a time."""


class Measurement(Record):
    """What an engine measured, with the head and without."""

    head: str
    tokens_per_second: _Speed
    plain_tokens_per_second: _Speed
    runs: Annotated[int, Field(ge=1, le=2**40)]
    engine: str | None = None

    @property
    def speedup(self) -> float:
        return self.tokens_per_second / self.plain_tokens_per_second


class CostResult(Record):
    """The whole answer of `audit cost`."""

    schema_version: int = COST_SCHEMA
    heads: tuple[HeadCost, ...]
    verifier: VerifierCost | None
    scenarios: tuple[Scenario, ...]
    measured: tuple[Measurement, ...]
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]
