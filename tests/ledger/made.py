"""Runs, judgements and reviews made of nothing, for tests that need no audit. Loads no torch."""

from __future__ import annotations

import numpy as np

from audit.calibration import Calibration
from audit.records import (
    Candidate,
    Estimate,
    GateResult,
    HeadRecord,
    LimitResult,
    Outcome,
    PolicyRecord,
    Provenance,
    Review,
    Run,
    TraceInfo,
    TraceRecord,
    Verdict,
    VerdictKind,
    Waiver,
)
from audit.table import Frame, position_frame

POLICY = 'name = "release"\n'


def a_table(
    ref: list[int],
    cand: list[int],
    oracle: list[int],
    sequence: list[int],
    **more: object,
) -> Frame:
    """A position table; `more` overrides columns."""
    n = len(ref)
    columns: dict[str, object] = {
        "candidate": "cand", "corpus": "code", "register": "domain_shift",
        "sequence": np.array(sequence), "position": np.arange(n), "token": np.zeros(n, int),
        "oracle": np.array(oracle), "ref": np.array(ref), "cand": np.array(cand),
        "ref_margin": np.ones(n, np.float32), "cand_margin": np.ones(n, np.float32),
        "ref_tied": np.zeros(n, bool), "cand_tied": np.zeros(n, bool),
        "ref_rank": np.ones(n, int), "cand_rank": np.ones(n, int),
        "oracle_in_vocabulary": np.ones(n, bool), "ref_in_vocabulary": np.ones(n, bool),
        "tie_flip": np.zeros(n, bool), "kl_nats": None,
    }  # fmt: skip
    return position_frame(columns | more)


TABLE = a_table([1, 2], [1, 3], [1, 2], [0, 0])


def a_head(name: str, sha256: str = "0" * 64) -> HeadRecord:
    return HeadRecord(
        name=name, path=f"{name}.safetensors", kind="lm", container="safetensors", encoding="F32",
        rows=4, columns=1, vocabulary=4, stored_bytes=16, bits_per_weight=32.0, sha256=sha256,
        tensors=("lm_head.weight",), tied=False,
    )  # fmt: skip


def a_candidate(
    name: str = "cand",
    sha256: str = "c" * 64,
    verdict: VerdictKind = "undecided",
    retention: dict[str, float] | None = None,
    gate: GateResult | None = None,
) -> Candidate:
    """With retentions by corpus, 0.01 to either side."""
    estimates = tuple(
        Estimate(
            measure="retention", corpus=corpus, register="domain_shift", value=value,
            low=value - 0.01, high=value + 0.01, positions=10, sequences=5,
        )
        for corpus, value in (retention or {}).items()
    )  # fmt: skip
    return Candidate(
        head=a_head(name, sha256),
        estimates=estimates,
        verdict=Verdict(kind=verdict, sentence=f"{verdict}: made up", evidence=()),
        gate=gate,
    )


def a_trace(corpus: str, sha256: str = "t" * 64) -> TraceRecord:
    info = TraceInfo.model_validate(
        {
            "model": "tiny", "model_sha256": None, "tokenizer_sha256": None, "vocabulary": None,
            "corpus": corpus, "register": "domain_shift", "language": None, "stage": "post_norm",
            "oracle": "text", "captured_by": "test",
        }
    )  # fmt: skip
    return TraceRecord(
        path=f"{corpus}.trace", sha256=sha256, positions=10, sequences=5, hidden_size=1, info=info
    )


def a_run(
    seed: int = 0,
    *candidates: Candidate,
    created: str = "2026-01-01T00:00:00Z",
    reference: str = "ref",
    traces: tuple[TraceRecord, ...] = (),
    device: str = "cpu",
) -> Run:
    return Run(
        run="",
        reference=a_head(reference),
        candidates=candidates or (a_candidate(),),
        traces=traces,
        preflight=(),
        controls=(),
        provenance=Provenance(
            created=created, versions={}, measures_version=1, platform="x", device=device,
            settings={"seed": seed},
        ),
    )  # fmt: skip


def a_gate(
    outcome: Outcome,
    *limits: tuple[str, Outcome, str | None],
    judged: str = "2026-02-01T00:00:00Z",
    policy: str = "0" * 64,
    name: str = "release",
) -> GateResult:
    """Limits as (name, outcome, waiver)."""
    return GateResult(
        outcome=outcome,
        sentence=f"{outcome}: made up",
        limits=tuple(
            LimitResult(
                limit=name, measure="retention", bound="at least 95 %", outcome=found,
                sentence=found, reason="r", date="2026-01-01", waiver=waiver,
            )
            for name, found, waiver in limits
        ),
        policy=PolicyRecord(name=name, sha256=policy),
        judged=judged,
    )  # fmt: skip


def a_calibration(reference: str = "e" * 64, corpus: str = "code") -> Calibration:
    return Calibration(
        reference=reference, head="mtp", traces={corpus: "t" * 64}, yardsticks=(), rules=(),
        spearman_loss=0.5, spearman_loss_p=None, spearman_tax=None, spearman_tax_p=None,
    )  # fmt: skip


def a_review(run: Run, gate: GateResult | None = None, **changes: object) -> Review:
    """Accepts the first candidate, having seen this judgement."""
    fields: dict[str, object] = {
        "id": "", "run": run.run, "head_sha256": run.candidates[0].head.sha256,
        "decision": "accept", "reason": "looks fine", "reviewer": "ada", "authenticated": False,
        "created": "2026-03-01T00:00:00Z", "gate": gate.outcome if gate else None,
        "policy_sha256": gate.policy.sha256 if gate else None,
    }  # fmt: skip
    return Review.model_validate(fields | changes)


def a_waiver(limit: str, expires: str = "2999-12-31", head: str = "c" * 64) -> Waiver:
    return Waiver(
        id="", head_sha256=head, limit=limit, reason="one release", who="ada",
        created="2026-03-01T00:00:00Z", expires=expires,
    )  # fmt: skip
