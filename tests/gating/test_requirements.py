"""What a release must show besides measures: each requirement met, and not met in every way."""

from __future__ import annotations

import pytest

from audit.records import Finding, Run
from tests.gating.made import control, estimate, gate_of, head, require, result_of, run_of

D = estimate("disagreement", "code", 0.1, 0.08, 0.12, positions=2000, sequences=10)
D_DE = estimate("disagreement", "de", 0.1, 0.08, 0.12, positions=900, sequences=4)
ALL = tuple(control(n) for n in ("anchor", "self", "row subset", "shuffled rows", "shifted oracle"))
SAME = Finding(code="NOT_COMPRESSED", severity="warning", subject="cand", sentence="same")
OF_REF = SAME.model_copy(update={"subject": "reference"})
OTHERS = SAME.model_copy(update={"subject": "other"})
CALIBRATED = {"created": "2026-02-01T00:00:00Z"}

MET: list[tuple[dict[str, object], Run]] = [
    ({"verdicts": ["fidelity", "identical"]}, run_of(D)),
    ({"controls": ["anchor", "self"]}, run_of(D, controls=ALL)),
    ({"registers": ["in_distribution", "domain_shift"]}, run_of(D, D_DE)),
    ({"corpora": ["code"]}, run_of(D)),
    ({"positions": 900}, run_of(D, D_DE)),
    ({"positions": 2000, "register": "in_distribution"}, run_of(D, D_DE)),
    ({"sequences": 10, "corpus": "code"}, run_of(D, D_DE)),
    ({"compressed": True}, run_of(D)),
    ({"no_findings": ["STOP_LOST"]}, run_of(D, preflight=(SAME,))),
    (
        {"no_findings": ["NOT_COMPRESSED"]},
        run_of(D, preflight=(OTHERS,), heads=(head(), head("other"))),
    ),
    ({"run_age_days": 1}, run_of(D)),
    ({"run_age_days": 1}, run_of(D, created="2026-02-28T12:00:00")),  # without a zone: UTC
    ({"calibration_age_days": 30}, run_of(D, calibration=CALIBRATED)),
    ({"audit_version": "0.0.9"}, run_of(D)),
    ({"audit_version": "0.1"}, run_of(D)),
    ({"measures_version": 2}, run_of(D)),
]
NOT_MET: list[tuple[dict[str, object], Run, str]] = [
    ({"verdicts": ["fidelity"]}, run_of(D, kind="function"), "the verdict is function; only"),
    ({"controls": ["anchor", "self"]}, run_of(D), "anchor did not run"),
    ({"controls": ["self"]}, run_of(D, controls=(control("self", False),)), "1 control failed"),
    ({"controls": ["self"]}, run_of(D, controls=(*ALL, control("x", False))), "1 control failed"),
    ({"controls": ["self"]}, run_of(D, controls=()), "none ran"),
    ({"registers": ["domain_shift"]}, run_of(D), "nothing domain shift was audited"),
    # A trace alone is no audit: the candidate has no estimate on it.
    ({"registers": ["domain_shift"]}, run_of(D, corpora=("code", "de")), "nothing domain shift"),
    ({"corpora": ["code", "de"]}, run_of(D), "de not audited"),
    ({"positions": 901}, run_of(D, D_DE), "900 positions on de, the fewest of 2 corpora"),
    ({"positions": 1}, run_of(D, corpora=("code", "de")), "nothing was counted on de"),
    ({"positions": 1}, run_of(), "no such text was audited"),
    ({"sequences": 5}, run_of(D, D_DE), "4 sequences on de"),
    ({"sequences": 5, "corpus": "zh"}, run_of(D), "no such text was audited"),
    ({"compressed": True}, run_of(D, kind="identical"), "nothing was compressed"),
    ({"compressed": True}, run_of(D, preflight=(SAME,)), "nothing was compressed"),
    ({"compressed": True}, run_of(D, heads=(head(stored_bytes=100),)), "it takes 0.0 MiB"),
    ({"compressed": True}, run_of(D, heads=(head(stored_bytes=None),)), "its size is missing"),
    (
        {"no_findings": ["STOP_LOST", "NOT_COMPRESSED"]},
        run_of(D, preflight=(SAME,)),
        "NOT_COMPRESSED: same",
    ),
    ({"no_findings": ["NOT_COMPRESSED"]}, run_of(D, preflight=(OF_REF,)), "the preflight found"),
    ({"run_age_days": 1}, run_of(D, created="2026-02-28T11:59:59Z"), "stale evidence"),
    ({"run_age_days": 1}, run_of(D, created=""), "does not say when it was made"),
    ({"run_age_days": 1}, run_of(D, created="soon"), "does not say when it was made"),
    ({"run_age_days": 1}, run_of(D, created="2026-03-03T00:00:00Z"), "in the future"),
    ({"calibration_age_days": 30}, run_of(D), "the calibration is missing"),
    ({"calibration_age_days": 30}, run_of(D, calibration={}), "does not say when"),
    ({"calibration_age_days": 28}, run_of(D, calibration=CALIBRATED), "28.5 days old"),
    ({"audit_version": "0.2"}, run_of(D), "made by head-audit 0.1.0"),
    ({"audit_version": "0.1"}, run_of(D, versions={"head-audit": "0.1rc1"}), "0.1rc1"),
    ({"audit_version": "0.1"}, run_of(D, versions={}), "is missing from the run"),
    ({"measures_version": 3}, run_of(D), "of version 2"),
]


@pytest.mark.parametrize(("keys", "run"), MET, ids=lambda one: str(one)[:40])
def test_met(keys: dict[str, object], run: Run) -> None:
    assert result_of(run, require(**keys)).outcome == "pass"
    assert gate_of(run, require(**keys)).outcome == "pass"


@pytest.mark.parametrize(("keys", "run", "words"), NOT_MET, ids=lambda one: str(one)[:40])
def test_not_met(keys: dict[str, object], run: Run, words: str) -> None:
    found = result_of(run, require(**keys))
    assert found.outcome == "fail" and words in found.sentence
    assert gate_of(run, require(**keys)).outcome == "fail"
    assert found.reason == "because" and found.date == "2026-01-01"


def test_the_check_of_controls_is_made_once() -> None:
    asked = require(name="controls", controls=["self"])
    names = [one.limit for one in gate_of(run_of(D), asked).limits]
    assert names == ["controls"]
    names = [one.limit for one in gate_of(run_of(D), require(compressed=True)).limits]
    assert names == ["controls", "it"]


def test_names_of_the_worst_place_are_kept() -> None:
    found = result_of(run_of(D, D_DE), require(positions=901))
    assert (found.corpus, found.register_, found.value, found.threshold) == (
        "de", "domain_shift", 900, 901,
    )  # fmt: skip
