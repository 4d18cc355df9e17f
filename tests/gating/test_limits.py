"""Every kind of limit against intervals made by hand: pass, fail, undecided, missing."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from audit.catalogue import SHIFT_MEASURES, better_when_lower, possible_range
from audit.gating import judge_run, outcome_of
from audit.policy.suggest import MEASURES
from audit.records import Estimate, Run
from audit.stats import NO_SPREAD
from tests.gating.made import NOW, control, estimate, gate_of, limit, policy_of, result_of, run_of

SEVERITY = {"pass": 0, "undecided": 1, "fail": 2}


def outcome(low: float, value: float, high: float, **bounds: float) -> str:
    measure = "retention" if "minimum" in bounds else "disagreement"
    run = run_of(estimate(measure, "code", value, low, high))
    return result_of(run, limit(measure=measure, **bounds)).outcome


@pytest.mark.parametrize(
    ("low", "value", "high", "wanted"),
    [
        (0.96, 0.97, 0.98, "pass"),
        (0.95, 0.97, 0.98, "pass"),  # touches the bound from the good side, which includes it
        (0.95, 0.95, 0.95, "pass"),  # exactly the bound
        (0.94, 0.97, 0.98, "undecided"),
        (0.94, 0.945, 0.95, "undecided"),  # touches it from the bad side
        (0.90, 0.92, 0.9499999, "fail"),
        (0.96, 0.94, 0.98, "undecided"),  # resampling left the estimate itself outside
        (0.0, 0.0, 0.0, "fail"),
    ],
)
def test_minimum(low: float, value: float, high: float, wanted: str) -> None:
    assert outcome(low, value, high, minimum=0.95) == wanted


@pytest.mark.parametrize(
    ("low", "value", "high", "wanted"),
    [
        (0.01, 0.02, 0.03, "pass"),
        (0.01, 0.02, 0.05, "pass"),
        (0.05, 0.05, 0.05, "pass"),
        (0.04, 0.045, 0.06, "undecided"),
        (0.05, 0.055, 0.06, "undecided"),
        (0.0500001, 0.06, 0.07, "fail"),
    ],
)
def test_maximum(low: float, value: float, high: float, wanted: str) -> None:
    assert outcome(low, value, high, maximum=0.05) == wanted


@pytest.mark.parametrize("measure", MEASURES)
def test_every_measure_of_the_catalogue_can_be_limited(measure: str) -> None:
    """Of each measure: wholly good, wholly bad, and over the bound."""
    lowest = possible_range(measure)[0]
    bound = lowest + 1.5 if lowest >= 1 else 0.5 if math.isfinite(lowest) else 0.1
    key = "maximum" if better_when_lower(measure) else "minimum"
    sign = -1 if key == "maximum" else 1
    corpus = "de" if measure in SHIFT_MEASURES else "code"
    for centre, reach, wanted in (
        (bound + sign * 0.2, 0.1, "pass"), (bound - sign * 0.2, 0.1, "fail"),
        (bound + sign * 0.05, 0.1, "undecided"),
    ):  # fmt: skip
        run = run_of(estimate(measure, corpus, centre, centre - reach, centre + reach))
        found = result_of(run, limit(measure=measure, **{key: bound}))
        assert (found.outcome, found.threshold, found.value) == (wanted, bound, centre)
        assert found.measure == measure and found.corpus == corpus
        assert (found.positions_needed is not None) == (wanted == "undecided")


def test_both_bounds_and_which_one_decided() -> None:
    table = limit(measure="flip_margin", minimum=0.2, maximum=0.8)
    for value, wanted, threshold in (
        (0.5, "pass", 0.2), (0.6, "pass", 0.8), (0.1, "fail", 0.2), (0.9, "fail", 0.8),
    ):  # fmt: skip
        run = run_of(estimate("flip_margin", "code", value, value - 0.05, value + 0.05))
        found = result_of(run, table)
        assert (found.outcome, found.threshold) == (wanted, threshold)
        assert found.bound == "between 0.20 and 0.80"


def test_the_positions_that_would_decide() -> None:
    """0.97 with reach 0.04 to a bound 0.02 away: (0.04 / 0.02)^2 = 4 times the 1,000 positions.

    Without any spread the bound shrinks with n itself: 2 times.
    """
    run = run_of(estimate("retention", "code", 0.97, 0.93, 0.98))
    found = result_of(run, limit(measure="retention", minimum=0.95))
    assert found.positions_needed == pytest.approx(4000, abs=1)
    assert "positions would decide it, 1,000 were compared" in found.sentence
    flat = estimate("retention", "code", 0.97, 0.93, 0.98, reason=f"{NO_SPREAD}: exact bound")
    found = result_of(run_of(flat), limit(measure="retention", minimum=0.95))
    assert found.positions_needed == pytest.approx(2000, abs=1)
    on_it = run_of(estimate("retention", "code", 0.95, 0.93, 0.98))
    found = result_of(on_it, limit(measure="retention", minimum=0.95))
    assert found.positions_needed is None and "lies on the limit itself" in found.sentence


def test_the_margin_is_told_in_standard_errors() -> None:
    """0.98 with its lower end 0.0196 away: one standard error is 0.01, and the bound 0.03 away."""
    run = run_of(estimate("retention", "code", 0.98, 0.98 - 0.01959964, 0.99))
    told = result_of(run, limit(measure="retention", minimum=0.95)).sentence
    assert told.endswith("at least 95.0 % holds, by 3.0 standard errors")


def test_the_worst_corpus_counts_not_the_average() -> None:
    run = run_of(
        estimate("retention", "code", 0.99, 0.98, 1.0),
        estimate("retention", "de", 0.90, 0.89, 0.91),
        estimate("retention", "zh", 0.99, 0.98, 1.0),
        estimate("retention", None, 0.97, 0.965, 0.975, register="domain_shift"),
        estimate("retention", None, 0.99, 0.98, 1.0, register="in_distribution"),
    )
    found = result_of(run, limit(measure="retention", minimum=0.95))
    assert (found.outcome, found.corpus, found.register_) == ("fail", "de", "domain_shift")
    assert "the worst of 3 corpora" in found.sentence
    pooled = result_of(run, limit(measure="retention", minimum=0.95, over="register"))
    assert (pooled.outcome, pooled.corpus, pooled.value) == ("pass", None, 0.97)
    for keys, wanted in (
        ({"register": "in_distribution"}, "pass"), ({"register": "domain_shift"}, "fail"),
        ({"corpus": "zh"}, "pass"), ({"corpus": "de"}, "fail"),
        ({"register": "domain_shift", "over": "register"}, "pass"),
        ({"corpus": "zh", "register": "in_distribution"}, "fail"),  # it is not of that register
    ):  # fmt: skip
        assert result_of(run, limit(measure="retention", minimum=0.95, **keys)).outcome == wanted


def test_an_undecided_corpus_is_worse_than_one_that_holds_and_better_than_one_that_fails() -> None:
    good = estimate("retention", "code", 0.99, 0.98, 1.0)
    wide = estimate("retention", "de", 0.96, 0.90, 1.0)
    bad = estimate("retention", "zh", 0.90, 0.89, 0.91)
    table = limit(measure="retention", minimum=0.95)
    assert result_of(run_of(good, wide), table).corpus == "de"
    assert result_of(run_of(good, wide), table).outcome == "undecided"
    assert result_of(run_of(good, wide, bad), table).corpus == "zh"


MISSING = {
    "no estimate at all": [],
    "another measure": [estimate("disagreement", "code", 0.01, 0.0, 0.02)],
    "no value": [estimate("retention", "code", None, reason="no ref accepted")],
    "no interval": [estimate("retention", "code", 0.99, reason="2 sequences: 5 are needed")],
    "half an interval": [estimate("retention", "code", 0.99, 0.98, None)],
    "only a token class": [estimate("retention", "code", 0.99, 0.98, 1.0, token_class="latin")],
}  # fmt: skip


@pytest.mark.parametrize("case", MISSING)
def test_missing_evidence_fails(case: str) -> None:
    run = run_of(*MISSING[case], corpora=("code",))
    found = result_of(run, limit(measure="retention", minimum=0.95))
    assert found.outcome == "fail" and "retention R on code is missing" in found.sentence
    reason = MISSING[case][0].reason if MISSING[case] else None
    assert reason is None or reason in found.sentence


@pytest.mark.parametrize("field", ["value", "low", "high"])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_not_a_number_fails_and_is_never_kept(field: str, number: float) -> None:
    """A record refuses NaN; a judge that trusted it for that would pass whatever got past it."""
    sound = estimate("retention", "code", 0.99, 0.98, 1.0)
    run = run_of(sound.model_copy(update={field: number}))
    found = result_of(run, limit(measure="retention", minimum=0.95))
    assert found.outcome == "fail" and getattr(found, field) is None
    assert Run.model_validate(judge_run(run_of(sound), policy_of(limit(
        measure="retention", minimum=0.95)), now=NOW).model_dump()).candidates[0].gate  # fmt: skip


def test_an_interval_that_ends_before_it_begins_fails() -> None:
    run = run_of(estimate("retention", "code", 0.99, 1.0, 0.98))
    found = result_of(run, limit(measure="retention", minimum=0.95))
    assert found.outcome == "fail" and "ends before it begins" in found.sentence


def test_no_text_where_the_limit_is_to_hold_fails() -> None:
    run = run_of(estimate("retention", "code", 0.99, 0.98, 1.0))
    for keys, words in (
        ({"measure": "retention", "register": "domain_shift"}, "no text domain shift was audited"),
        ({"measure": "retention", "corpus": "german"}, "the corpus german was not audited"),
        ({"measure": "retention", "token_class": "han"}, "no position of class han"),
    ):
        found = result_of(run, limit(minimum=0.9, **keys))
        assert found.outcome == "fail" and words in found.sentence
    empty = result_of(run_of(corpora=()), limit(measure="retention", minimum=0.9))
    assert empty.outcome == "fail" and "nothing was audited" in empty.sentence


def test_token_classes() -> None:
    def of(corpus: str, name: str, value: float, positions: int, low: float | None) -> Estimate:
        high = None if low is None else min(1.0, value + 0.01)
        return estimate(
            "vocabulary_ceiling", corpus, value, low, high, token_class=name, positions=positions
        )

    run = run_of(
        estimate("vocabulary_ceiling", "code", 1.0, 1.0, 1.0),
        estimate("vocabulary_ceiling", "zh", 0.99, 0.98, 1.0),
        of("zh", "han", 0.60, 800, 0.58),
        of("zh", "latin", 0.99, 300, 0.98),
        of("code", "latin", 1.0, 900, 0.99),
        of("code", "han", 0.5, 2, None),
    )
    base = {"measure": "vocabulary_ceiling", "minimum": 0.9}
    assert result_of(run, limit(**base)).outcome == "pass"
    assert result_of(run, limit(**base, token_class="latin")).outcome == "pass"
    han = result_of(run, limit(**base, token_class="han"))
    # Two positions in passing have no interval, and what has none fails …
    assert (han.outcome, han.corpus) == ("fail", "code") and "no interval" in han.sentence
    # … unless the policy passes them over, which the sentence tells.
    han = result_of(run, limit(**base, token_class="han", ignore_fewer_than=30))
    assert (han.outcome, han.corpus, han.token_class) == ("fail", "zh", "han")
    assert "passed over on 1 with fewer than 30 positions" in han.sentence
    edge = limit(**base, token_class="latin", ignore_fewer_than=300)
    assert "passed over" not in result_of(run, edge).sentence
    assert "the worst of 2 corpora" in result_of(run, edge).sentence
    gone = result_of(run, limit(**base, token_class="han", ignore_fewer_than=5000))
    assert gone.outcome == "fail" and "fewer than 5000 on each corpus" in gone.sentence


def test_exact_values_are_decided() -> None:
    exact = "the weights are identical: exact, not estimated"
    run = run_of(
        estimate("disagreement", "code", 0.0, 0.0, 0.0, reason=exact),
        estimate("retention", "code", 1.0, 1.0, 1.0, reason=exact),
        estimate("harm", "code", None, reason="no disagreements"),
        kind="identical",
    )
    assert result_of(run, limit(measure="retention", minimum=1.0)).outcome == "pass"
    harm = result_of(run, limit(measure="harm", maximum=0.1))
    assert harm.outcome == "pass" and "never disagrees, exactly" in harm.sentence
    # Seen no disagreement is not the same: the next text may hold one.
    seen = run_of(
        estimate("disagreement", "code", 0.0, 0.0, 0.01),
        estimate("harm", "code", None, reason="no disagreements"),
    )
    assert result_of(seen, limit(measure="harm", maximum=0.1)).outcome == "fail"


def test_predictions_count_only_where_the_limit_says_so() -> None:
    told = {"value": 0.04, "low": 0.03, "high": 0.05, "level": 0.8, "reason": None}
    run = run_of(estimate("retention", "code", 0.99, 0.98, 1.0), prediction={"shift_loss": told})
    plain = result_of(run, limit(measure="shift_loss", maximum=0.06))
    assert plain.outcome == "fail" and not plain.predicted
    table = limit(measure="shift_loss", maximum=0.06, allow_predicted=True)
    found = result_of(run, table)
    assert (found.outcome, found.predicted, found.high) == ("pass", True, 0.05)
    assert "predicted from text in distribution at 80 %, not measured" in found.sentence
    over = run_of(prediction={"shift_loss": told | {"high": 0.07}}, corpora=())
    found = result_of(over, table)
    assert found.outcome == "undecided" and found.positions_needed is None
    assert "only measuring it decides" in found.sentence
    for bad in (
        told | {"value": None, "low": None, "high": None, "reason": "3 yardsticks, 4 are needed"},
        told | {"value": math.nan}, told | {"value": "4 %"}, None, 7,
    ):  # fmt: skip
        assert (
            result_of(run_of(prediction={"shift_loss": bad}, corpora=()), table).outcome == "fail"
        )
    assert result_of(run_of(corpora=()), table).outcome == "fail"


def test_what_was_measured_overrules_what_was_predicted() -> None:
    told = {"value": 0.01, "low": 0.0, "high": 0.02, "level": 0.8, "reason": None}
    run = run_of(estimate("shift_loss", "de", 0.2, 0.18, 0.22), prediction={"shift_loss": told})
    table = limit(measure="shift_loss", maximum=0.06, allow_predicted=True)
    found = result_of(run, table)
    assert (found.outcome, found.predicted, found.value) == ("fail", False, 0.2)


def test_numbers_are_shown_apart_from_the_bound() -> None:
    """94.996 % rounds to 95.0 %, which a sentence about `at least 95.0 %` must not say."""
    run = run_of(estimate("retention", "code", 0.94996, 0.9499, 0.94998))
    told = result_of(run, limit(measure="retention", minimum=0.95)).sentence
    assert "94.996 % (94.990 % to 94.998 %)" in told
    fine = result_of(run, limit(measure="retention", minimum=0.94875))
    assert fine.bound == "at least 94.875 %"


def test_a_failed_control_fails_the_gate_whatever_the_numbers() -> None:
    good = estimate("retention", "code", 0.99, 0.98, 1.0)
    table = limit(measure="retention", minimum=0.95)
    assert gate_of(run_of(good), table).outcome == "pass"
    for controls, words in (
        ((control(), control("shuffled rows", False)), "1 control failed, believe no number"),
        ((), "controls are missing: none ran"),
    ):
        gate = gate_of(run_of(good, controls=controls), table)
        assert gate.outcome == "fail" and "controls" in gate.sentence
        assert words in gate.limits[0].sentence and gate.limits[1].outcome == "pass"


def test_any_failure_fails_and_any_doubt_is_told() -> None:
    run = run_of(
        estimate("retention", "code", 0.99, 0.98, 1.0),
        estimate("disagreement", "code", 0.05, 0.03, 0.07),
        estimate("harm", "code", 0.5, 0.4, 0.6),
    )
    good = limit(name="good", measure="retention", minimum=0.95)
    wide = limit(name="wide", measure="disagreement", maximum=0.06)
    bad = limit(name="bad", measure="harm", maximum=0.2)
    assert gate_of(run, good).sentence == "pass: 2 of 2 limits hold"
    gate = gate_of(run, good, wide)
    assert gate.outcome == "undecided" and gate.sentence == "undecided: 1 undecided: wide on code"
    gate = gate_of(run, good, wide, bad)
    assert gate.outcome == "fail"
    assert gate.sentence == "fail: 1 of 4 limits failed: bad on code; 1 undecided: wide on code"


ENDS = st.floats(0, 1)


@given(ENDS, ENDS, ENDS, st.floats(0.01, 0.99), st.floats(0, 1))
def test_moving_to_the_bad_side_never_improves_the_outcome(
    a: float, b: float, c: float, bound: float, step: float
) -> None:
    low, value, high = sorted((a, b, c))
    assume(low - step >= -1)
    for measure, key, sign in (("retention", "minimum", -1), ("disagreement", "maximum", 1)):
        table = limit(measure=measure, **{key: bound})
        before = result_of(run_of(estimate(measure, "code", value, low, high)), table)
        moved = [max(0.0, end + sign * step) for end in (value, low, high)]
        after = result_of(run_of(estimate(measure, "code", *moved)), table)
        assert SEVERITY[after.outcome] >= SEVERITY[before.outcome]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["code", "other", "de"]),
            st.one_of(st.none(), ENDS), st.one_of(st.none(), ENDS), st.one_of(st.none(), ENDS),
        ),
        min_size=1, max_size=3, unique_by=lambda one: one[0],
    ),
    st.sampled_from(["retention", "acceptance_cand", "vocabulary_ceiling"]),
)  # fmt: skip
def test_nothing_passes_while_anything_is_missing(
    found: list[tuple[str, float | None, float | None, float | None]], measure: str
) -> None:
    estimates = [estimate(measure, *one) for one in found]
    run = judge_run(run_of(*estimates), policy_of(limit(measure=measure, minimum=0.0)), now=NOW)
    complete = all(None not in one and one[2] <= one[3] for one in found)  # type: ignore[operator]
    assert outcome_of(run) == ("pass" if complete else "fail")
