"""The nouns: every record that is kept in a Run, a trace or the ledger, and nothing that computes.

All are frozen pydantic models, so that reading a file validates it, NaN and infinity can not enter
(`allow_inf_nan=False`), and the published JSON Schema is generated from this very text.
The large arrays live elsewhere: `table` and `traces.Trace`.
"""

from audit.records.base import (
    SCHEMA_VERSION,
    Decision,
    OracleKind,
    Outcome,
    Record,
    Register,
    Severity,
    Stage,
    VerdictKind,
)
from audit.records.decisions import (
    CandidateGate,
    GateAnswer,
    GateResult,
    LimitResult,
    PolicyRecord,
    Review,
    Waiver,
)
from audit.records.findings import Control, Estimate, Evidence, Finding, Verdict
from audit.records.inputs import ExtraState, HeadRecord, TraceInfo, TraceRecord
from audit.records.run import AbsentHead, Candidate, Dialect, Inspection, Provenance, Run

__all__ = [
    "SCHEMA_VERSION",
    "AbsentHead",
    "Candidate",
    "CandidateGate",
    "Control",
    "Decision",
    "Dialect",
    "Estimate",
    "Evidence",
    "ExtraState",
    "Finding",
    "GateAnswer",
    "GateResult",
    "HeadRecord",
    "Inspection",
    "LimitResult",
    "OracleKind",
    "Outcome",
    "PolicyRecord",
    "Provenance",
    "Record",
    "Register",
    "Review",
    "Run",
    "Severity",
    "Stage",
    "TraceInfo",
    "TraceRecord",
    "Verdict",
    "VerdictKind",
    "Waiver",
]
