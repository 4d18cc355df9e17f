"""The nouns: every record that is kept in a Run or a trace, and nothing that computes.

All are frozen pydantic models, so that reading a file validates it, NaN and infinity can not enter
(`allow_inf_nan=False`), and the published JSON Schema is generated from this very text.
The large arrays live elsewhere: `table.PositionTable` and `traces.Trace`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1

Register = Literal["in_distribution", "same_register", "domain_shift"]
Stage = Literal["post_norm", "pre_norm"]
OracleKind = Literal["verifier_greedy", "text"]
VerdictKind = Literal["identical", "fidelity", "function", "vocabulary", "undecided"]
Severity = Literal["note", "warning", "error"]


class Record(BaseModel):
    """Base of all records: immutable, no unknown keys, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ExtraState(Record):
    """One more hidden state per row of a trace, beside the one that enters the LM head."""

    tensor: str
    """Name of the tensor in the trace file, for instance `layer_16`."""
    layer: int
    """The state entering this layer (Hugging Face `hidden_states[layer]`), before any norm."""


class TraceInfo(Record):
    """What a trace file says of itself; its metadata, word for word."""

    schema_version: Annotated[int, Field(ge=1)] = SCHEMA_VERSION
    model: str
    """Name of the verifier, for people."""
    model_sha256: str | None
    """Hash of the verifier's weight files; None when the states came without their model."""
    tokenizer_sha256: str | None
    vocabulary: Annotated[int, Field(ge=1)] | None
    """Number of ids the tokenizer knows; rows of a head beyond it are padding."""
    corpus: str
    corpus_sha256: str | None = None
    """Hash of the documents' text as it was run; None when the text is not known."""
    register_: Register = Field(alias="register")
    language: str | None
    stage: Stage
    """Whether `hidden` was taken after or before the verifier's final norm."""
    oracle: OracleKind
    states: tuple[ExtraState, ...] = ()
    captured_by: str
    """Program and version that wrote the trace."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """How it was captured (context length, dtype, ...): what would change the bytes."""

    model_config = ConfigDict(populate_by_name=True)


class TraceRecord(Record):
    """A trace as a Run remembers it: its metadata, size and content hash."""

    path: str
    sha256: str
    positions: int
    sequences: int
    counted: int | None = None
    """How many rows' oracles count; None when all do."""
    hidden_size: int
    info: TraceInfo


class HeadRecord(Record):
    """One head: what was read, from where, and by which rules."""

    name: str
    path: str
    kind: str
    """`lm`, a draft head such as `mtp` or `exit:16`, or `proposals`."""
    container: str
    """`safetensors`, `gguf`, `proposals` or `trim`."""
    encoding: str
    """Stored type of the projection, such as BF16 or Q4_0."""
    rows: int | None
    columns: int | None
    vocabulary: int
    """Size of the target vocabulary that proposals are ids of."""
    stored_bytes: int | None
    bits_per_weight: float | None
    sha256: str
    """Hash of the stored bytes and rules that the proposals depend on, not of the whole file."""
    tensors: tuple[str, ...]
    tied: bool | None
    """True when the input embedding serves as the head."""
    bias: bool = False
    softcap: float | None = None
    logit_scale: float | None = None
    map_source: str | None = None
    """Where the vocabulary map came from and how its numbers were read."""
    notes: tuple[str, ...] = ()


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


class Candidate(Record):
    """One candidate's part of a Run."""

    head: HeadRecord
    estimates: tuple[Estimate, ...]
    verdict: Verdict
    prediction: dict[str, Any] | None = None
    gate: dict[str, Any] | None = None


class Inspection(Record):
    """What `audit inspect` found in one file."""

    head: HeadRecord
    files: tuple[str, ...]
    tensors_in_file: int
    heads: tuple[str, ...]
    """What `--head` can name in this file; of the early exits only the usual one."""
    norm_found: bool
    """The file holds the final norm and its configuration tells the norm's convention."""
    valid_ids: int | None
    """Number of ids that the tokenizer knows, where the file tells."""
    row_norm_median: float
    dead_rows: int
    dead_columns: int
    preflight: tuple[Finding, ...]


class Provenance(Record):
    """With what, when and with which settings the numbers were made."""

    created: str
    """UTC, ISO 8601."""
    versions: dict[str, str]
    measures_version: int
    platform: str
    device: str
    settings: dict[str, Any]


class Run(Record):
    """One finished audit: immutable, and named by the hash of its own content."""

    schema_: int = Field(default=SCHEMA_VERSION, alias="schema")
    run: str
    """Content hash of this document with `run` empty and of the position table."""
    reference: HeadRecord
    candidates: tuple[Candidate, ...]
    traces: tuple[TraceRecord, ...]
    preflight: tuple[Finding, ...]
    controls: tuple[Control, ...]
    calibration: dict[str, Any] | None = None
    provenance: Provenance
    positions_sha256: str | None = None
    """Hash of the Parquet table of positions beside this document."""

    model_config = ConfigDict(populate_by_name=True)
