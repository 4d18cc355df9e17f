"""The finished audit, and what `audit inspect` says of one file."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from audit.records.base import SCHEMA_VERSION, Record
from audit.records.decisions import GateResult
from audit.records.findings import Control, Estimate, Finding, Verdict
from audit.records.inputs import HeadRecord, TraceRecord


class Candidate(Record):
    """One candidate's part of a Run."""

    head: HeadRecord
    estimates: tuple[Estimate, ...]
    verdict: Verdict
    prediction: dict[str, Any] | None = None
    gate: GateResult | None = None


class Dialect(Record):
    """Whose spelling the names of one part are."""

    role: str
    """Such as `lm_head` or `mtp_projection`; see `heads.aliases`."""
    dialect: str
    tensors: tuple[str, ...]


class AbsentHead(Record):
    """A kind of head that a file does not hold."""

    head: str
    """lm, mtp, eagle3 or medusa."""
    looked_for: tuple[str, ...]
    """Names by which it would have been recognised; N is any number."""


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
    dialects: tuple[Dialect, ...] = ()
    absent: tuple[AbsentHead, ...] = ()
    """Kinds of head that are not there, and under which names they were looked for."""
    coverage: dict[str, tuple[int, int]] = Field(default_factory=dict)
    """Of a trimmed head: token class -> ids of it with a row, ids of it in all."""
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
