"""What went into an audit: heads and traces, as a Run remembers them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from audit.records.base import SCHEMA_VERSION, OracleKind, Record, Register, Stage


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
    """Hash of the documents, or of the token ids where only those are known."""
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
