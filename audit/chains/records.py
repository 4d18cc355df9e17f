"""What `audit chain` and `audit lossless` found, as documents. Imports no torch."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from audit.records import Estimate, Finding, HeadRecord, TraceRecord
from audit.records.base import Record, Register

CHAIN_SCHEMA = 1
OTHER, DISAGREES = "VERIFIER_OTHER", "VERIFIER_DISAGREES"
"""Codes of findings: the checking model is not the trace's by hash, or by its greedy tokens."""


class ChainFigures(Record):
    """One head's chains on one corpus, or on all corpora of a register."""

    corpus: str | None
    register_: Register = Field(alias="register")
    chains: int
    """Anchors that a chain was drafted from."""
    sequences: int
    drafted: tuple[int, ...]
    """Chains that drafted slot k at all: all of them without --p-min."""
    accepted: tuple[int, ...]
    """Chains whose slots 0..k were all accepted."""
    p: tuple[Estimate, ...]
    """Share of chains whose slots 0..k are all accepted."""
    c: tuple[Estimate, ...]
    """Slot acceptance p_k / p_(k-1)."""
    chain_acceptance: Estimate
    tokens_per_round: Estimate

    model_config = ConfigDict(populate_by_name=True)

    @property
    def shares_known(self) -> tuple[float, ...]:
        """p_k as numbers; empty where there was nothing to measure."""
        values = [e.value for e in self.p]
        return tuple(v for v in values if v is not None) if None not in values else ()


class SlotHarm(Record):
    """What a candidate loses against the reference at each slot, on one corpus or register."""

    corpus: str | None
    register_: Register = Field(alias="register")
    both: tuple[int, ...]
    """Chains in which both heads got to slot k: everything before it was accepted."""
    disagreements: tuple[int, ...]
    """Of those, where they draft different tokens."""
    harm: tuple[Estimate, ...]
    """(reference's acceptances - candidate's) / disagreements at slot k, where both got there."""
    loss: tuple[Estimate, ...]
    """p_k of the reference minus p_k of the candidate, paired."""
    tokens_lost: Estimate
    """Tokens per round that the candidate yields less, paired."""

    model_config = ConfigDict(populate_by_name=True)


class ChainHead(Record):
    """One head's part of the document."""

    head: HeadRecord
    recursion: str
    """What a slot reads of the slot before it."""
    figures: tuple[ChainFigures, ...]
    harm: tuple[SlotHarm, ...] = ()
    """Empty for the reference."""


class ChainResult(Record):
    """The whole answer of `audit chain`; the first head is the reference."""

    schema_: int = Field(default=CHAIN_SCHEMA, alias="schema")
    slots: int
    p_min: float
    anchors: int
    """At most so many per trace were drawn."""
    seed: int
    heads: tuple[ChainHead, ...]
    traces: tuple[TraceRecord, ...]
    verifier: str | None
    """Name of the model that checked slots beyond the first; None where none did."""
    verifier_agreement: float | None
    """Share of checked anchors at which that model's greedy token is the trace's oracle."""
    findings: tuple[Finding, ...] = ()
    """What speaks against that model as the verifier of a trace."""
    notes: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()

    model_config = ConfigDict(populate_by_name=True)


class Difference(Record):
    """Where a text with the head is not the text without it."""

    prompt: int
    """From 0."""
    position: int
    """Of the new tokens, from 0."""
    plain_token: int | None
    """None where the plain text had ended."""
    token: int | None
    margin: float | None
    """The verifier's best minus second logit there, decoding plainly."""
    near_tie: bool
    """The margin is within rounding: the two ways of summing may fall either way."""
    sentence: str


class LosslessHead(Record):
    """One head in the loop."""

    head: HeadRecord
    recursion: str
    rounds: int
    drafted: tuple[int, ...]
    """Rounds that drafted slot k."""
    accepted: tuple[int, ...]
    """Rounds whose slots 0..k were all accepted."""
    predicted: tuple[int, ...]
    """The same as `audit chain` counts it from those texts at those anchors."""
    rounds_apart: int
    """Rounds in which another number of slots was accepted than predicted; 0 when all is well."""
    tokens_per_round: float | None
    """1 + accepted slots / rounds; None without a round."""
    identical: bool
    differences: tuple[Difference, ...]


class LosslessResult(Record):
    """The whole answer of `audit lossless`."""

    schema_: int = Field(default=CHAIN_SCHEMA, alias="schema")
    model: str
    slots: int
    p_min: float
    prompts: int
    new_tokens: int
    """All texts together, without any head."""
    smallest_margin: float
    """The verifier's smallest best minus second logit over all of them."""
    heads: tuple[LosslessHead, ...]
    notes: tuple[str, ...] = ()

    model_config = ConfigDict(populate_by_name=True)

    @property
    def holds(self) -> bool:
        """Every text is the same, and what was accepted is what `chain` predicts."""
        return all(one.identical and one.rounds_apart == 0 for one in self.heads)
