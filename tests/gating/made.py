"""Runs and policies made by hand: every number in them is the test's own."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time

from audit.gating import judge_run
from audit.policy import Policy, parse_policy
from audit.records import (
    Candidate,
    Control,
    Estimate,
    Finding,
    GateResult,
    HeadRecord,
    LimitResult,
    Provenance,
    Run,
    TraceInfo,
    TraceRecord,
    Verdict,
    Waiver,
)

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HEAD = "ab" * 32
REGISTER_OF = {"code": "in_distribution", "other": "same_register", "de": "domain_shift",
               "zh": "domain_shift"}  # fmt: skip


def estimate(
    measure: str,
    corpus: str | None,
    value: float | None,
    low: float | None = None,
    high: float | None = None,
    **more: object,
) -> Estimate:
    """An estimate on a corpus of REGISTER_OF; with a register named where it is pooled."""
    fields: dict[str, object] = {
        "measure": measure, "corpus": corpus, "value": value, "low": low, "high": high,
        "register": REGISTER_OF.get(corpus or ""), "positions": 1000, "sequences": 20,
    }  # fmt: skip
    return Estimate.model_validate(fields | more)


def head(name: str = "cand", sha256: str = HEAD, stored_bytes: int | None = 50) -> HeadRecord:
    return HeadRecord(
        name=name, path=name, kind="lm", container="safetensors", encoding="Q4_0", rows=4,
        columns=2, vocabulary=4, stored_bytes=stored_bytes, bits_per_weight=4.5, sha256=sha256,
        tensors=(), tied=None,
    )  # fmt: skip


def trace(corpus: str, positions: int = 1000) -> TraceRecord:
    info = TraceInfo.model_validate(
        {
            "model": "tiny", "model_sha256": None, "tokenizer_sha256": None, "vocabulary": None,
            "corpus": corpus, "register": REGISTER_OF[corpus], "language": None,
            "stage": "post_norm", "oracle": "verifier_greedy", "captured_by": "test",
        }
    )  # fmt: skip
    return TraceRecord(
        path=corpus, sha256="t", positions=positions, sequences=20, hidden_size=2, info=info
    )


def control(name: str = "self", passed: bool = True) -> Control:
    return Control(
        name=name, corpus="code", observed=0.0, expected="0", passed=passed, sentence="as told"
    )


def run_of(
    *estimates: Estimate,
    corpora: tuple[str, ...] | None = None,
    kind: str = "fidelity",
    controls: tuple[Control, ...] = (control(),),
    created: str = "2026-02-28T12:00:00Z",
    versions: dict[str, str] | None = None,
    measures_version: int = 2,
    calibration: dict[str, object] | None = None,
    preflight: tuple[Finding, ...] = (),
    prediction: dict[str, object] | None = None,
    heads: tuple[HeadRecord, ...] = (head(),),
) -> Run:
    """A run whose candidates all have these estimates; traces of the corpora they name."""
    named = dict.fromkeys(e.corpus for e in estimates if e.corpus)
    verdict = Verdict.model_validate({"kind": kind, "sentence": f"{kind} cut", "evidence": ()})
    return Run(
        run="",
        reference=head("ref", "cd" * 32, 100),
        candidates=tuple(
            Candidate(head=one, estimates=estimates, verdict=verdict, prediction=prediction)
            for one in heads
        ),
        traces=tuple(trace(corpus) for corpus in (named if corpora is None else corpora)),
        preflight=preflight,
        controls=controls,
        calibration=calibration,
        provenance=Provenance(
            created=created,
            versions={"head-audit": "0.1.0"} if versions is None else versions,
            measures_version=measures_version, platform="", device="cpu", settings={},
        ),
    )  # fmt: skip


def limit(**keys: object) -> str:
    """The TOML of one [[limit]]."""
    return _table("limit", {"name": "it", "reason": "because", "date": "2026-01-01"} | keys)


def require(**keys: object) -> str:
    """The TOML of one [[require]]."""
    return _table("require", {"name": "it", "reason": "because", "date": "2026-01-01"} | keys)


def _table(name: str, keys: dict[str, object]) -> str:
    return "\n".join([f"[[{name}]]", *(f"{k} = {_toml(v)}" for k, v in keys.items()), ""])


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k} = {_toml(v)}' for k, v in value.items())}}}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def policy_of(*tables: str) -> Policy:
    return parse_policy("\n".join(['name = "test"', *tables]), "test.toml")


def gate_of(run: Run, *tables: str, waivers: tuple[Waiver, ...] = ()) -> GateResult:
    """The gate's answer for the run's first candidate."""
    found = judge_run(run, policy_of(*tables), waivers, now=NOW).candidates[0].gate
    assert found is not None
    return found


def result_of(run: Run, table: str) -> LimitResult:
    """The result of the limit named `it`."""
    return next(one for one in gate_of(run, table).limits if one.limit == "it")
