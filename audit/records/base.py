"""What all records are: immutable, validated on reading, without unknown keys and without NaN."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

SCHEMA_VERSION = 1

Register = Literal["in_distribution", "same_register", "domain_shift"]
Stage = Literal["post_norm", "pre_norm"]
OracleKind = Literal["verifier_greedy", "text"]
VerdictKind = Literal["identical", "fidelity", "function", "vocabulary", "undecided"]
Severity = Literal["note", "warning", "error"]
Outcome = Literal["pass", "fail", "undecided"]
Decision = Literal["accept", "reject", "more-data"]


class Record(BaseModel):
    """Base of all records: immutable, no unknown keys, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
