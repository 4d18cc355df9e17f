"""The verdict from evidence alone: every kind, every conflict, and what it must not claim."""

from __future__ import annotations

import itertools

import pytest

from audit.evidence import PUBLISHED, TAX_THRESHOLD
from audit.records import Estimate
from audit.rulecheck import PUBLISHED_HARM
from audit.verdict import judge


def estimate(
    measure: str,
    value: float | None,
    low: float | None = None,
    high: float | None = None,
    register: str = "in_distribution",
    corpus: str | None = None,
    reason: str | None = None,
) -> Estimate:
    return Estimate.model_validate(
        {
            "measure": measure, "corpus": corpus, "register": register, "value": value,
            "low": low, "high": high, "positions": 1000, "sequences": 10, "reason": reason,
        }
    )  # fmt: skip


def case(
    disagreement: tuple[float, float, float] = (0.2, 0.18, 0.22),
    harm: tuple[float | None, float | None, float | None] = (0.1, 0.05, 0.15),
    tax: tuple[float, float, float] | None = None,
    acceptance: float = 0.7,
) -> list[Estimate]:
    out = [
        estimate("disagreement", *disagreement),
        estimate("acceptance_ref", acceptance, acceptance, acceptance),
        estimate("harm", *harm, reason="no disagreements" if harm[0] is None else None),
        estimate("retention", 0.95, 0.9, 1.0),
    ]
    if tax:
        out += [
            estimate("disagreement", *disagreement, register="domain_shift"),
            estimate("acceptance_ref", acceptance, register="domain_shift"),
            estimate("shift_tax", *tax, register="domain_shift"),
            estimate("retention", 0.8, 0.7, 0.9, register="domain_shift"),
        ]
    return out


def kind(estimates: list[Estimate], **facts: object) -> str:
    options = {"same_weights": False, "trimmed": False} | facts
    return judge(estimates, **options).kind  # type: ignore[arg-type]


def test_identical_weights() -> None:
    found = judge(case(), same_weights=True, trimmed=False)
    assert found.kind == "identical" and "nothing was compressed" in found.sentence


def test_harm_below_and_above_the_published_threshold() -> None:
    assert kind(case(harm=(0.14, 0.1, 0.2))) == "fidelity"
    assert kind(case(harm=(0.4, 0.28, 0.54))) == "function"
    assert PUBLISHED in judge(case(), same_weights=False, trimmed=False).sentence


def test_an_interval_across_the_threshold_is_undecided_and_says_what_would_decide() -> None:
    found = judge(case(harm=(0.25, 0.17, 0.33)), same_weights=False, trimmed=False)
    # (0.08 / 0.04)^2 times the 1,000 positions.
    assert found.kind == "undecided" and "about 4,000 positions would decide it" in found.sentence


def test_a_tiny_disagreement_settles_the_case_without_any_harm() -> None:
    """At most 0.7 % of positions at acceptance 0.7: retention falls by 1 point at most."""
    tiny = case(disagreement=(0.003, 0.001, 0.007), harm=(0.9, 0.3, 1.5))
    found = judge(tiny, same_weights=False, trimmed=False)
    assert found.kind == "fidelity" and "can not fall by more than 1.0 points" in found.sentence
    assert found.evidence[0].high == pytest.approx(0.01)


def test_the_bound_must_hold_in_every_register() -> None:
    tiny = case(disagreement=(0.003, 0.001, 0.007), harm=(0.3, 0.25, 0.5))
    shifted = estimate("disagreement", 0.3, 0.25, 0.35, register="domain_shift")
    accepted = estimate("acceptance_ref", 0.4, register="domain_shift")
    assert kind([*tiny, shifted, accepted]) == "function"


def test_measured_tax_speaks_too_and_contradictions_are_undecided() -> None:
    low, high = (0.01, -0.01, 0.03), (0.15, 0.1, 0.2)
    assert kind(case(harm=(0.1, 0.05, 0.15), tax=low)) == "fidelity"
    assert kind(case(harm=(0.4, 0.3, 0.5), tax=high)) == "function"
    found = judge(case(harm=(0.1, 0.05, 0.15), tax=high), same_weights=False, trimmed=False)
    assert found.kind == "undecided" and "the evidence conflicts" in found.sentence
    # The table of the design: calibrated low rank, no harm in distribution, then the worst loss.
    assert kind(case(harm=(0.02, -0.05, 0.09), tax=(0.298, 0.26, 0.33))) == "undecided"


def test_the_rule_says_nothing_of_the_verifiers_own_head() -> None:
    found = judge(
        case(harm=(1.0, None, None), tax=(0.19, 0.15, 0.22), acceptance=1.0),
        same_weights=False,
        trimmed=False,
    )
    assert found.kind == "undecided"
    assert "does not apply" in found.sentence and "20.0 points under domain shift" in found.sentence
    assert [piece.weight for piece in found.evidence] == [True, False, False]


def test_no_interval_is_undecided() -> None:
    assert kind(case(disagreement=(0.2, None, None), harm=(0.5, None, None))) == "undecided"  # type: ignore[arg-type]
    assert kind(case(harm=(None, None, None))) == "undecided"


def test_failed_controls_decide_nothing() -> None:
    found = judge(case(), same_weights=True, trimmed=False, failed_controls=["self: 3 of 128"])
    assert found.kind == "undecided" and "self: 3 of 128" in found.sentence


def trimmed_case(disagreement: float, harm: tuple[float, float, float]) -> list[Estimate]:
    return [
        *case(),
        estimate("vocabulary_ceiling", 0.98, corpus="code"),
        estimate("vocabulary_ceiling", 0.45, corpus="de", register="domain_shift"),
        estimate("acceptance_ref_covered", 0.7, 0.68, 0.72),
        estimate("disagreement_covered", disagreement, 0.8 * disagreement, 1.2 * disagreement),
        estimate("harm_covered", *harm),
    ]


def test_a_pure_trim_is_a_vocabulary_cut_and_names_its_ceiling() -> None:
    found = judge(trimmed_case(0.0, (0.0, 0.0, 0.0)), same_weights=False, trimmed=True)
    assert found.kind == "vocabulary"
    assert "acceptance ceiling from vocabulary: 45.00 % on de" in found.sentence


def test_a_trim_with_changed_weights_is_judged_within_its_vocabulary() -> None:
    found = judge(trimmed_case(0.3, (0.4, 0.3, 0.5)), same_weights=False, trimmed=True)
    assert found.kind == "function" and "45.00 % on de" in found.sentence
    assert kind(trimmed_case(0.005, (0.4, 0.3, 0.5)), trimmed=True) == "vocabulary"


def test_the_bound_of_a_trim_is_taken_within_its_vocabulary() -> None:
    """0.5 % disagreements where the reference is accepted at 1 %: all of it could be lost."""
    rare = [
        e for e in trimmed_case(0.005, (0.4, 0.3, 0.5)) if e.measure != "acceptance_ref_covered"
    ]
    rare.append(estimate("acceptance_ref_covered", 0.01, 0.008, 0.012))
    assert kind(rare, trimmed=True) == "function"


def test_the_published_study_is_told_apart_by_its_own_rule() -> None:
    """Seven heads: harm 0.14 for fidelity cuts, 0.28 to 0.54 for function cuts; taxes likewise."""
    for harm, tax in itertools.product((0.14,), (-0.001, 0.017, 0.019)):
        assert harm < PUBLISHED_HARM and tax < TAX_THRESHOLD
    for harm, tax in itertools.product((0.28, 0.54), (0.102, 0.168, 0.187)):
        assert harm > PUBLISHED_HARM and tax > TAX_THRESHOLD
