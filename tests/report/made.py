"""Runs made by hand and by hypothesis: odd numbers, hostile names, every outcome of a gate."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from audit.records import (
    Candidate,
    Control,
    Estimate,
    Evidence,
    Finding,
    GateResult,
    HeadRecord,
    LimitResult,
    PolicyRecord,
    Provenance,
    Review,
    Run,
    TraceRecord,
    Verdict,
)

REGISTERS = ("in_distribution", "same_register", "domain_shift")
MEASURES = (
    "disagreement", "harm", "acceptance_ref", "acceptance_cand", "retention", "vocabulary_ceiling",
    "flip_margin", "near_tie_auc", "kl_nats", "shift_loss", "shift_tax",
)  # fmt: skip
HOSTILE = (
    "\x12", "\x1b[31mred", "\ud800", "\udcff", "]]>", "<![CDATA[", "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>", "&lt;b&gt;", "|a|b|", "`x`", "``", "\\", "\\|",
    "a\nb", "a\r\nb",
    "[a](javascript:alert(1))", "![x](http://e.example/x.png)", "@someone", "#12", "a@b.example",
    "https://evil.example/x", "www.evil.example", ":smile:", "$x$", "~~x~~", "**x**", "__x__",
    "_x_",
    "\u202eabc", "\u2066x\u2069", "{{7*7}}", "{% raw %}", "- x", "1. x", "> x", "# x", "---", " x ",
    "\ufffe", "\uffff", "\x00", "\x85", "\u2028", "</details>", "<!-- x", '"', "'", "a: b",
    "x" * 300,
    "\u05e9\u05dc\u05d5\u05dd", "\U0001f600", "'; DROP TABLE runs; --",
)  # fmt: skip


def head(name: str = "cand.gguf", sha256: str = "c" * 64, **more: Any) -> HeadRecord:
    fields = {
        "name": name, "path": f"/models/{name}", "kind": "lm", "container": "gguf",
        "encoding": "Q4_0", "rows": 100, "columns": 8, "vocabulary": 100, "stored_bytes": 2**20,
        "bits_per_weight": 4.5, "sha256": sha256, "tensors": ("output.weight",), "tied": False,
    }  # fmt: skip
    return HeadRecord.model_validate(fields | more)


def estimate(measure: str, value: float | None, **more: Any) -> Estimate:
    fields = {
        "measure": measure, "corpus": None, "register": "in_distribution", "value": value,
        "low": value, "high": value, "macro": value, "positions": 1000, "sequences": 10,
        "reason": None if value is not None else "no disagreements",
    }  # fmt: skip
    return Estimate.model_validate(fields | more)


def limit(**more: Any) -> LimitResult:
    fields = {
        "limit": "shift", "measure": "retention", "register": "domain_shift", "corpus": "german",
        "bound": "at least 95.0 %", "threshold": 0.95, "value": 0.747, "low": 0.684, "high": 0.804,
        "outcome": "fail", "sentence": "retention R on german is 74.7 %, below 95.0 %",
        "reason": "below it the draft does not pay", "date": "2026-03-01",
    }  # fmt: skip
    return LimitResult.model_validate(fields | more)


def gate(outcome: str, *limits: LimitResult) -> GateResult:
    return GateResult.model_validate(
        {
            "outcome": outcome, "sentence": f"{outcome}: of {len(limits)} limits", "limits": limits,
            "policy": PolicyRecord(name="release.toml", sha256="a" * 64),
            "judged": "2026-11-01T10:00:00Z",
        }
    )  # fmt: skip


def trace(corpus: str, register: str, sha256: str = "d" * 64) -> TraceRecord:
    info = {
        "model": "verifier", "model_sha256": None, "tokenizer_sha256": None, "vocabulary": None,
        "corpus": corpus, "register": register, "language": None, "stage": "post_norm",
        "oracle": "verifier_greedy", "captured_by": "test",
    }  # fmt: skip
    return TraceRecord.model_validate(
        {"path": f"/traces/{corpus}", "sha256": sha256, "positions": 1000, "sequences": 10,
         "hidden_size": 8, "info": info}
    )  # fmt: skip


def candidate(name: str = "cand.gguf", sha256: str = "c" * 64, **more: Any) -> Candidate:
    """A function cut on two corpora, as an audit without yardsticks leaves it."""
    pairs = (("code", "in_distribution", 0.97), ("german", "domain_shift", 0.747))
    estimates = []
    for corpus, register, kept in pairs:
        for where in (corpus, None):
            place = {"corpus": where, "register": register}
            estimates += [
                estimate("disagreement", 0.2, low=0.18, high=0.22, **place),
                estimate("harm", 0.15, low=0.1, high=0.2, **place),
                estimate("retention", kept, low=kept - 0.06, high=kept + 0.06, **place),
            ]
    shift = {"register": "domain_shift", "low": 0.2, "high": 0.3}
    estimates.append(estimate("shift_loss", 0.253, **shift))
    evidence = Evidence(
        name="harm", corpus=None, value=0.15, low=0.1, high=0.2, threshold=0.21,
        source="published rule", points_to="undecided", weight=True, sentence="harm straddles 0.21",
    )  # fmt: skip
    sentence = "function cut: shift tax 22.3 points lies above 6.0 points"
    verdict = Verdict(kind="function", sentence=sentence, evidence=(evidence,))
    fields = {"head": head(name, sha256), "estimates": estimates, "verdict": verdict}
    return Candidate.model_validate(fields | more)


def run(*candidates: Candidate, **more: Any) -> Run:
    fields: dict[str, Any] = {
        "run": "0123456789abcdef",
        "reference": head("ref.safetensors", "e" * 64, stored_bytes=2**22),
        "candidates": candidates or (candidate(),),
        "traces": (trace("code", "in_distribution"), trace("german", "domain_shift", "f" * 64)),
        "preflight": (
            Finding(code="TIED", severity="note", subject="reference", sentence="tied"),
            Finding(code="STOP_LOST", severity="warning", subject="cand", sentence="it is lost"),
        ),
        "controls": (
            Control(name="self", corpus="all", observed=0.0, expected="0", passed=True,
                    sentence="the reference disagrees with itself at 0 positions"),
        ),
        "provenance": provenance(),
    }  # fmt: skip
    return Run.model_validate(fields | more)


def provenance(**more: Any) -> Provenance:
    fields = {
        "created": "2026-11-01T09:00:00Z", "versions": {"head-audit": "0.1"}, "measures_version": 1,
        "platform": "Linux x86_64", "device": "cpu", "settings": {"seed": 0, "level": 0.95},
    }  # fmt: skip
    return Provenance.model_validate(fields | more)


def review(**more: Any) -> Review:
    fields = {
        "id": "r", "run": "0123456789abcdef", "head_sha256": "c" * 64, "decision": "accept",
        "reason": "fast enough", "reviewer": "Ada", "authenticated": False,
        "created": "2026-11-02T08:00:00Z", "gate": "pass", "policy_sha256": "a" * 64,
    }  # fmt: skip
    return Review.model_validate(fields | more)


plain = st.sampled_from(("alpha", "beta", "gamma", "delta", "epsilon"))
hostile = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(exclude_categories=()), min_size=1, max_size=12),
    st.text(st.sampled_from("|`*_<>&[]()#!~$@:\\\n.-+ ab1"), min_size=1, max_size=16),
)
"""Any text, lone surrogates and control characters included, and what is known to do harm."""
numbers = st.one_of(
    st.none(),
    st.sampled_from((0.0, -0.0, 5e-324, 1e-12, -1e-9, 1.0, 1e6, -1e308, 1.7e308)),
    st.floats(-0.5, 1.5),
    st.floats(allow_nan=False, allow_infinity=False),
)


def estimates(words: st.SearchStrategy[str]) -> st.SearchStrategy[Estimate]:
    return st.builds(
        lambda m, c, r, v, lo, hi, macro, k, why: estimate(
            m, v, corpus=c, register=r, low=lo, high=hi, macro=macro, token_class=k, reason=why
        ),
        st.sampled_from(MEASURES), st.none() | words, st.sampled_from(REGISTERS), numbers, numbers,
        numbers, numbers, st.none() | words, st.none() | words,
    )  # fmt: skip


def limits(words: st.SearchStrategy[str]) -> st.SearchStrategy[LimitResult]:
    return st.builds(
        lambda n, m, c, v, lo, hi, t, o, s, why, w, k, need: limit(
            limit=n, measure=m, corpus=c, value=v, low=lo, high=hi, threshold=t, outcome=o,
            sentence=s, reason=why, waiver=w, token_class=k, positions_needed=need,
        ),
        words, st.sampled_from((*MEASURES, "verdict", "controls", "positions")), st.none() | words,
        numbers, numbers, numbers, numbers, st.sampled_from(("pass", "fail", "undecided")), words,
        words, st.none() | words, st.none() | words, st.none() | st.integers(1, 10**12),
    )  # fmt: skip


def candidates(words: st.SearchStrategy[str]) -> st.SearchStrategy[Candidate]:
    gates = st.builds(
        lambda outcome, found: gate(outcome, *found),
        st.sampled_from(("pass", "fail", "undecided")),
        st.lists(limits(words), max_size=4),
    )
    predictions = st.none() | st.dictionaries(
        st.sampled_from(("shift_loss", "shift_tax", "other")),
        st.fixed_dictionaries(
            {"measure": st.just("shift_loss"), "value": numbers, "low": numbers, "high": numbers,
             "level": numbers, "rank": st.none() | words, "reason": st.none() | words}
        ),
        max_size=2,
    )  # fmt: skip
    return st.builds(
        lambda name, digest, found, kind, why, g, p: candidate(
            name, digest, estimates=found, gate=g, prediction=p,
            verdict=Verdict(kind=kind, sentence=f"{kind} cut: {why}", evidence=()),
        ),
        words, st.sampled_from(("c" * 64, "b" * 64)) | words,
        st.lists(estimates(words), max_size=8),
        st.sampled_from(("identical", "fidelity", "function", "vocabulary", "undecided")), words,
        st.none() | gates, predictions,
    )  # fmt: skip


def runs(words: st.SearchStrategy[str] = hostile) -> st.SearchStrategy[Run]:
    findings = st.builds(
        lambda code, severity, sentence: Finding(
            code=code, severity=severity, subject=sentence, sentence=sentence
        ),
        words, st.sampled_from(("note", "warning", "error")), words,
    )  # fmt: skip
    controls = st.builds(
        lambda name, value, passed: Control(
            name=name, corpus=name, observed=value or 0.0, expected=name, passed=passed,
            sentence=name,
        ),
        words, numbers, st.booleans(),
    )  # fmt: skip
    return st.builds(
        lambda found, notes, checks, corpus, created: run(
            *found, preflight=tuple(notes), controls=tuple(checks),
            traces=(trace(corpus, "domain_shift", corpus),), run=created[:16],
            provenance=provenance(created=created, versions={created: created},
                                  settings={created: created}),
        ),
        st.lists(candidates(words), min_size=1, max_size=3), st.lists(findings, max_size=2),
        st.lists(controls, max_size=3), words, words,
    )  # fmt: skip
