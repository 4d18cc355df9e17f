"""The self-test runs the real judge, and names every limit that could not fail or not pass."""

from __future__ import annotations

import pytest

import audit.gating.prove as module
from audit.gating import judge_run, outcome_of, selftest
from audit.gating.template import passing_run
from tests.gating.made import NOW, limit, policy_of, require

RETENTION = limit(name="retention", measure="retention", minimum=0.95)


def broken(*tables: str) -> dict[str, tuple[str, ...]]:
    return {one.limit: one.wrong for one in selftest(policy_of(*tables), NOW) if one.wrong}


EVERY = [
    RETENTION,
    limit(name="tax", measure="shift_tax", maximum=0.06, allow_predicted=True),
    limit(name="loss", measure="shift_loss", maximum=0.07, over="register", allow_predicted=True),
    limit(name="flips", measure="disagreement", maximum=0.1, register="in_distribution"),
    limit(name="harm", measure="harm", maximum=0.21, corpus="python"),
    limit(name="kl", measure="kl_nats", maximum=0.05),
    limit(name="margin", measure="flip_margin", minimum=0.1, maximum=2.0),
    limit(name="auc", measure="near_tie_auc", minimum=0.6),
    limit(name="stop", measure="vocabulary_ceiling", minimum=1.0, token_class="stop"),
    limit(name="han", measure="retention", minimum=0.8, token_class="han", corpus="chinese",
          register="domain_shift"),
    limit(name="code", measure="disagreement", maximum=0.2, token_class="code",
          ignore_fewer_than=50_000),
    require(name="v", verdicts=["fidelity"]), require(name="c", controls=["self"]),
    require(name="r", registers=["same_register"]), require(name="co", corpora=["german"]),
    require(name="p", positions=70_000), require(name="s", sequences=5, corpus="german"),
    require(name="z", compressed=True), require(name="a", run_age_days=100_000),
    require(name="ca", calibration_age_days=1), require(name="av", audit_version="0.10.0"),
    require(name="mv", measures_version=9), require(name="nf", no_findings=["STOP_LOST"]),
]  # fmt: skip


def test_every_kind_of_limit_can_fail_and_pass() -> None:
    found = selftest(policy_of(*EVERY), NOW)
    assert [one.wrong for one in found] == [()] * len(EVERY)
    assert [one.limit for one in found] == [p.name for p in policy_of(*EVERY).parts]
    assert all(one.tried >= 2 for one in found)
    assert [one.limit for one in selftest(policy_of(RETENTION), NOW)] == ["controls", "retention"]


def test_the_template_passes_and_only_its_own_policy_made_it() -> None:
    policy = policy_of(*EVERY)
    assert outcome_of(judge_run(passing_run(policy, NOW), policy, now=NOW)) == "pass"
    strict = policy_of(limit(measure="retention", minimum=1.0), limit(name="b", measure="harm",
                                                                      maximum=-0.9))  # fmt: skip
    assert outcome_of(judge_run(passing_run(strict, NOW), strict, now=NOW)) == "pass"
    other = policy_of(limit(measure="flip_margin", maximum=0.0))
    assert outcome_of(judge_run(passing_run(policy, NOW), other, now=NOW)) == "fail"


@pytest.mark.parametrize(
    "table",
    [
        limit(measure="retention", minimum=0.0),
        limit(measure="disagreement", maximum=1.0),
        limit(measure="vocabulary_ceiling", minimum=0.0, token_class="stop"),
        limit(measure="harm", maximum=1.0),
        limit(measure="shift_loss", maximum=1.0),
        limit(measure="near_tie_auc", minimum=0.0),
        limit(measure="flip_margin", minimum=0.0),
        require(verdicts=["identical", "fidelity", "function", "vocabulary", "undecided"]),
        require(audit_version="0"),
        require(run_age_days=10_000_000),
        require(calibration_age_days=10_000_000),
    ],
    ids=lambda table: table.replace("\n", " ")[9:60],
)  # fmt: skip
def test_a_limit_that_can_not_fail_is_named(table: str) -> None:
    found = broken(RETENTION, table)
    assert set(found) == {"it"}
    assert "it should be fail, and is pass" in found["it"][0] or "no evidence" in found["it"][0]


def test_limits_that_contradict_each_other_are_named() -> None:
    low = limit(name="low", measure="flip_margin", minimum=0.9)
    high = limit(name="high", measure="flip_margin", maximum=0.5)
    found = broken(low, high)
    assert set(found) & {"low", "high"} and "all is well: it should be pass" in str(found)
    kinds = (require(name="a", verdicts=["fidelity"]), require(name="b", verdicts=["function"]))
    assert broken(*kinds)


def test_a_judge_that_lets_everything_pass_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proof that the self-test asks the judge: break the judge, and it must complain."""
    real = module.judge_run

    def lenient(run, policy, waivers=(), *, now):  # type: ignore[no-untyped-def]
        judged = real(run, policy, waivers, now=now)
        (one,) = judged.candidates
        limits = tuple(r.model_copy(update={"outcome": "pass"}) for r in one.gate.limits)
        gate = one.gate.model_copy(update={"outcome": "pass", "limits": limits})
        return judged.model_copy(update={"candidates": (one.model_copy(update={"gate": gate}),)})

    monkeypatch.setattr(module, "judge_run", lenient)
    assert set(broken(*EVERY)) == {part.name for part in policy_of(*EVERY).parts}


@pytest.mark.parametrize("hole", ["nan", "no interval", "missing", "average"])
def test_a_judge_with_one_hole_is_caught(monkeypatch: pytest.MonkeyPatch, hole: str) -> None:
    """The classic holes: NaN passes, no interval passes, no estimate passes, the mean decides."""
    import audit.gating.limits as limits

    real = limits.hold

    def holed(asked, estimate, where):  # type: ignore[no-untyped-def]
        held = real(asked, estimate, where)
        value = None if estimate is None else estimate.value
        opened = {
            "nan": value is not None and value != value,
            "no interval": estimate is not None and estimate.low is None,
            "missing": estimate is None,
            "average": where.startswith("on self-test domain_shift"),
        }[hole]
        return limits.Held("pass", "", estimate) if opened else held

    monkeypatch.setattr(limits, "hold", holed)
    assert "retention" in broken(RETENTION)
