"""A ledger made of nothing for the dashboard: realistic runs, tables of any length, decisions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from audit.ledger import Ledger, open_ledger
from audit.records import Candidate, GateResult, Run, Verdict
from audit.table import Frame, position_frame
from tests.report import made

CORPORA = (("code", "in_distribution"), ("german", "domain_shift"))
CLASSES = np.array(["latin", "code", "digit", "punctuation"], dtype=object)
HOSTILE = "<img src=x onerror=alert(1)> **b** :material/home: $x$ [a](http://evil.example) \u202e"
_VOCABULARY = 3_000


def table(name: str, rows: int, seed: int = 0, sequences: int = 20) -> Frame:
    """A position table of one candidate on all corpora, about `rows` long.

    Trace and reference are the same for every seed; what the candidate proposes is not.
    """
    trace, own = np.random.default_rng(0), np.random.default_rng(seed)
    frames = []
    each = max(rows // len(CORPORA), sequences)
    for place, (corpus, register) in enumerate(CORPORA):
        n = each
        oracle = trace.zipf(1.3, n) % _VOCABULARY
        ref = np.where(trace.random(n) < 0.6, oracle, trace.integers(0, _VOCABULARY, n))
        token, margin = trace.integers(0, _VOCABULARY, n), trace.exponential(1.0, n)
        other = np.where(own.random(n) < 0.2, oracle, own.integers(0, _VOCABULARY, n))
        cand = np.where(own.random(n) < (0.9 if place == 0 else 0.7), ref, other)
        length = -(-n // sequences)
        columns = {
            "candidate": name, "corpus": corpus, "register": register,
            "sequence": np.arange(n) // length, "position": np.arange(n) % length,
            "token": token, "oracle": oracle,
            "oracle_class": CLASSES[oracle % len(CLASSES)], "ref": ref, "cand": cand,
            "ref_margin": margin.astype(np.float32),
            "cand_margin": own.exponential(0.5, n).astype(np.float32), "ref_tied": False,
            "cand_tied": False,
            "ref_rank": 1, "cand_rank": 2, "oracle_in_vocabulary": True, "ref_in_vocabulary": True,
            "tie_flip": np.zeros(n, bool), "kl_nats": own.exponential(0.05, n).astype(np.float32),
        }  # fmt: skip
        frames.append(position_frame(columns))
    return pd.concat(frames, ignore_index=True)


def a_candidate(name: str, digit: str, gate: GateResult | None = None, **more: object) -> Candidate:
    """A function cut whose hash is one digit throughout."""
    prediction = {
        "shift_loss": {"measure": "shift_loss", "value": 0.21, "low": 0.1, "high": 0.3,
                       "level": 0.8}
    }  # fmt: skip
    fields: dict[str, object] = {"prediction": prediction, "gate": gate}
    return made.candidate(name, digit * 64, **(fields | more))


def a_run(*candidates: Candidate, created: str, **more: object) -> Run:
    fields: dict[str, object] = {"run": "", "provenance": made.provenance(created=created)}
    return made.run(*candidates, **(fields | more))


def small_ledger(folder: Path) -> tuple[Ledger, dict[str, Run]]:
    """Five runs: judged and reviewed, of two candidates, of a hostile name, without anything
    measured, and of another reference."""
    ledger = open_ledger(folder)
    failed = made.gate("fail", made.limit(), made.limit(limit="sum", outcome="pass"))
    changed = failed.model_copy(update={"changes": ("shift: threshold changed 0.9 -> 0.95",)})
    runs = {
        "judged": a_run(a_candidate("prune.gguf", "1", changed), created="2026-11-01T09:00:00Z"),
        "two": a_run(
            a_candidate("q4_0.gguf", "2"), a_candidate("q8_0.gguf", "3"),
            created="2026-11-02T09:00:00Z",
        ),
        "hostile": a_run(a_candidate(HOSTILE, "4"), created="2026-11-03T09:00:00Z"),
        "bare": a_run(
            made.candidate("bare.gguf", "5" * 64, estimates=(), verdict=Verdict(
                kind="undecided", sentence="undecided: nothing was measured", evidence=())),
            created="2026-11-04T09:00:00Z", preflight=(), controls=(),
        ),
        "other": a_run(
            a_candidate("other.gguf", "6"), created="2026-11-05T09:00:00Z",
            reference=made.head("other-ref.safetensors", "f" * 64),
        ),
    }  # fmt: skip
    saved = {}
    for place, (name, run) in enumerate(runs.items()):
        frames = [table(one.head.name, 400, place + i) for i, one in enumerate(run.candidates)]
        saved[name] = ledger.save_run(run, frames)
    review = made.review(
        id="", run=saved["judged"].run, head_sha256="1" * 64, decision="reject", gate="fail"
    )
    ledger.add_review(review)
    return ledger, saved


def large_ledger(folder: Path, runs: int, positions: int, older: int = 2_000) -> Ledger:
    """Many runs, the newest with a table of `positions` rows for each of its two candidates, the
    others of `older`."""
    ledger = open_ledger(folder)
    for number in range(runs):
        newest = number == runs - 1
        candidates = [a_candidate(f"cut-{number}-{side}.gguf", digit) for side, digit in
                      zip("ab", "78", strict=True)]  # fmt: skip
        created = f"2026-10-{1 + number % 28:02d}T{number % 24:02d}:00:00Z"
        run = a_run(*candidates, created="2026-12-01T00:00:00Z" if newest else created)
        size = positions if newest else older
        frames = [table(one.head.name, size, number) for one in candidates]
        ledger.save_run(run, frames)
    return ledger
