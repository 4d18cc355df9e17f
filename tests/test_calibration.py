"""Rules checked on yardsticks, the noise ladder, and predictions, on worked examples."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.calibration import (
    Calibration,
    Family,
    Trial,
    Yardstick,
    ladder_distance,
    shift_ladder,
)
from audit.prediction import predict
from audit.records import Estimate
from audit.report.wording import trials_told
from audit.rulecheck import check_rules, leave_twins_out
from audit.trial import try_verdicts


def yardstick(
    cut: str, family: Family, d_in: float, h_in: float | None, d_shift: float, r_shift: float,
    r_in: float = 1.0,
) -> Yardstick:  # fmt: skip
    def one(measure: str, register: str, value: float | None) -> Estimate:
        return Estimate.model_validate(
            {"measure": measure, "corpus": None, "register": register, "value": value,
             "positions": 100, "sequences": 10, "reason": None}
        )  # fmt: skip

    return Yardstick(
        cut=cut, family=family, calibrated=cut.startswith("prune") or cut.endswith(":calibrated"),
        stored_bytes=None,
        estimates=(
            one("disagreement", "in_distribution", d_in), one("harm", "in_distribution", h_in),
            one("disagreement", "domain_shift", d_shift),
            one("shift_loss", "domain_shift", 1 - r_shift),
            one("shift_tax", "domain_shift", r_in - r_shift),
        ),
    )  # fmt: skip


EARLY_EXIT = [
    # The design's own table: Gemma's early exit, where the published rule is upside down.
    yardstick("q8_0", "fidelity", 0.009, 0.25, 0.011, 0.999, 0.997),
    yardstick("q4_0", "fidelity", 0.216, 0.26, 0.373, 0.818, 0.921),
    yardstick("nvfp4", "fidelity", 0.234, 0.31, 0.367, 0.823, 0.897),
    yardstick("prune:0.5", "function", 0.179, -0.02, 0.411, 0.866, 1.004),
    yardstick("prune:0.25", "function", 0.250, 0.03, 0.509, 0.813, 0.988),
    yardstick("lowrank:0.5", "function", 0.414, 0.22, 0.602, 0.757, 0.872),
    yardstick("lowrank:0.25", "function", 0.451, 0.24, 0.651, 0.695, 0.843),
    yardstick("lowrank:0.25:calibrated", "function", 0.281, 0.02, 0.632, 0.696, 0.993),
]
NOISE = [
    yardstick("noise:0.1", "noise", 0.186, 0.21, 0.339, 0.85),
    yardstick("noise:0.2", "noise", 0.350, 0.33, 0.579, 0.75),
]
STUDY = [
    # The published study: harm separates perfectly.
    yardstick(f"f{i}", "fidelity", 0.01 * i, 0.14, 0.02 * i, 0.97 + 0.005 * i) for i in (1, 2, 3)
] + [
    yardstick(f"g{i}", "function", 0.1 * i, 0.28 + 0.06 * i, 0.2 * i, 0.9 - 0.04 * i)
    for i in (1, 2, 3, 4)
]  # fmt: skip


def rules(yardsticks: list[Yardstick]) -> dict[str, tuple[int, int, int, bool]]:
    found = check_rules(yardsticks)
    return {r.name: (r.right, r.wrong, r.undecided, r.weight) for r in found}


def test_harm_carries_weight_where_it_separates() -> None:
    found = rules(STUDY)
    assert found["published harm"] == (7, 0, 0, True) and found["harm"] == (7, 0, 0, True)
    assert found["shift tax"] == (7, 0, 0, True)
    # One of the 7! / (3! 4!) = 35 ways to deal three fidelity and four function labels.
    assert [check.p for check in check_rules(STUDY)[:2]] == [pytest.approx(1 / 35)] * 2


def test_on_the_early_exit_harm_is_upside_down_and_weightless() -> None:
    found = rules(EARLY_EXIT + NOISE)
    # Published threshold 0.21: all three fidelity cuts above it, three of five function cuts below.
    assert found["published harm"] == (2, 6, 0, False)
    assert found["harm"][3] is False


def test_the_ladder_on_the_early_exit_by_hand() -> None:
    """Rungs (0, 0), (0.186, 0.339), (0.350, 0.579). Pruned 50 %: D 0.179 -> 0.339 x 0.179 / 0.186
    = 0.326 expected, 0.411 seen: 0.085 beyond. Q4_0: 0.216 -> 0.339 + 0.030 / 0.164 x 0.240
    = 0.383, 0.373 seen: on the ladder. D 0.414 is beyond the last rung: no distance."""
    ladder = shift_ladder(EARLY_EXIT + NOISE)
    assert ladder_distance(0.179, 0.411, ladder) == pytest.approx(0.085, abs=1e-3)
    assert ladder_distance(0.216, 0.373, ladder) == pytest.approx(-0.010, abs=1e-3)
    assert ladder_distance(0.414, 0.602, ladder) is None
    assert ladder_distance(None, 0.6, ladder) is None
    # The lower rung against the other alone: 0.339 - 0.186 x 0.579 / 0.350 = 0.031 beyond. The
    # three calibrated cuts lie above the others (0.085, 0.076, 0.154); the rule is silent on
    # fidelity cuts, on the rung, and on what lies beyond the last rung. The three on top: one of
    # the 35 ways to deal three labels over seven distances.
    (check,) = [c for c in check_rules(EARLY_EXIT + NOISE) if c.name == "ladder distance"]
    assert (check.right, check.wrong, check.undecided, check.weight) == (3, 0, 7, True)
    assert check.p == pytest.approx(1 / 35)
    assert check.threshold == pytest.approx((0.0313 + 0.0763) / 2, abs=1e-3)


def test_a_fidelity_cut_far_from_the_ladder_takes_the_rule_its_weight() -> None:
    odd = yardstick("odd", "fidelity", 0.2, 0.3, 0.9, 0.9)
    (check,) = [c for c in check_rules([*EARLY_EXIT, odd, *NOISE]) if c.name == "ladder distance"]
    # Left out, it is called a function cut; left in, nothing lies above it.
    assert (check.right, check.wrong, check.weight) == (0, 1, False) and check.threshold is None


def test_overlapping_families_have_no_threshold() -> None:
    by_name = {check.name: check for check in check_rules(EARLY_EXIT)}
    assert by_name["harm"].threshold is None
    by_name = {check.name: check for check in check_rules(STUDY)}
    assert by_name["harm"].threshold == pytest.approx((0.14 + 0.34) / 2)
    assert {c.name: c for c in check_rules(STUDY[:3])}["harm"].threshold is None
    assert check_rules([])[0].p == 1.0


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.sampled_from([0.1, 0.15, 0.2, 0.25, 0.3, 0.4]), st.booleans()),
        min_size=2, max_size=7,
    )
)  # fmt: skip
def test_rules_and_their_p_against_brute_force(cuts: list[tuple[float, bool]]) -> None:
    """The harm rule written as loops over every dealing of the labels."""

    def score(values: list[float], labels: tuple[bool, ...]) -> tuple[int, int]:
        right = wrong = 0
        for i, value in enumerate(values):
            rest = [(v, f) for j, (v, f) in enumerate(zip(values, labels, strict=True)) if j != i]
            low, high = [v for v, f in rest if not f], [v for v, f in rest if f]
            if low and high and max(low) < min(high):
                called = value > (max(low) + min(high)) / 2
                right, wrong = right + (called == labels[i]), wrong + (called != labels[i])
        return right, wrong

    values, labels = [v for v, _ in cuts], tuple(f for _, f in cuts)
    made = [
        yardstick(f"{i}", "function" if f else "fidelity", 0.1, v, 0.2, 0.9)
        for i, (v, f) in enumerate(cuts)
    ]
    check = {c.name: c for c in check_rules(made)}["harm"]
    right, wrong = score(values, labels)
    assert (check.right, check.wrong) == (right, wrong)
    deals = {d for d in product([False, True], repeat=len(cuts)) if sum(d) == sum(labels)}
    as_well = [d for d in deals if (lambda r: r[0] - r[1])(score(values, d)) >= right - wrong]
    assert check.p == pytest.approx(len(as_well) / len(deals))


def test_a_twin_of_the_candidate_is_left_out() -> None:
    """By its hash, or by its counts where the hash can not be the same."""
    per_corpus = [e.model_copy(update={"corpus": "code"}) for e in EARLY_EXIT[1].estimates]
    twin = EARLY_EXIT[1].model_copy(update={"head_sha256": "abc", "estimates": tuple(per_corpus)})
    made = calibration([EARLY_EXIT[0], twin, *EARLY_EXIT[2:]])
    left, names = leave_twins_out(made, "abc", [])
    assert (
        names == ["q4_0"]
        and len(left.yardsticks) == 7
        and left.rules == check_rules(left.yardsticks)
    )
    left, names = leave_twins_out(made, "other", per_corpus)
    assert names == ["q4_0"]
    left, names = leave_twins_out(made, "other", EARLY_EXIT[2].estimates)
    assert names == [] and left is made


def calibration(yardsticks: list[Yardstick]) -> Calibration:
    return Calibration(
        reference="r", head="mtp", traces={}, yardsticks=tuple(yardsticks),
        rules=check_rules(yardsticks),
        spearman_loss=None, spearman_loss_p=None, spearman_tax=None, spearman_tax_p=None,
    )  # fmt: skip


def test_prediction_by_hand() -> None:
    """Losses 0, 0.1, 0.3, 0.2 at D 0.1 .. 0.4: the fit is 0, 0.1, 0.25, 0.25, read at 0.25 as
    0.175. Inner points left out in turn: at 0.2 the others give 0.125 for 0.1, at 0.3 they give
    (0.1 + 0.2) / 2 = 0.15 for 0.3: a miss of 0.15."""
    points = [(0.1, 1.0), (0.2, 0.9), (0.3, 0.7), (0.4, 0.8)]
    made = calibration([yardstick("x", "function", d, 0.3, d, r) for d, r in points])
    found = predict(made, "shift_loss", 0.25, ["function"])
    assert found.value == pytest.approx(0.175)
    assert found.low == pytest.approx(0.175 - 0.15) and found.high == pytest.approx(0.175 + 0.15)
    assert found.level == pytest.approx(2 / 3) and found.rank == "3 of 5 by disagreement"


def test_no_prediction_outside_the_range_or_from_too_few() -> None:
    made = calibration(EARLY_EXIT)
    assert "outside" in (predict(made, "shift_loss", 0.9, ["function"]).reason or "")
    few = predict(made, "shift_loss", 0.2, ["fidelity"])
    assert few.value is None and "3 yardsticks of its kind, 4 are needed" in (few.reason or "")


def test_intervals_hold_most_left_out_yardsticks() -> None:
    """n / (n + 1) is honest: over 200 studies of 8 noisy cuts, 6 of them inner, about 6/7 of a
    ninth are held."""
    rng = np.random.default_rng(0)
    held = tried = 0
    for _ in range(200):
        d = np.sort(rng.uniform(0.05, 0.6, 9))
        loss = d**1.5 + rng.normal(0, 0.03, 9)
        i = int(rng.integers(1, 8))
        others = [yardstick("x", "function", float(a), 0.3, float(a), float(1 - b))
                  for a, b in zip(np.delete(d, i), np.delete(loss, i), strict=True)]  # fmt: skip
        found = predict(calibration(others), "shift_loss", float(d[i]), ["function"])
        if found.low is not None and found.high is not None:
            tried += 1
            held += found.low <= loss[i] <= found.high
    assert tried > 150 and held / tried > 0.8


def with_intervals(held: Yardstick) -> Yardstick:
    """Every estimate known to within 0.001, on a reference that accepts 60 %."""
    known = [
        e
        if e.value is None
        else e.model_copy(update={"low": e.value - 1e-3, "high": e.value + 1e-3})
        for e in held.estimates
    ]
    accepted = {"measure": "acceptance_ref", "corpus": None, "value": 0.6, "low": 0.59,
                "high": 0.61, "positions": 100, "sequences": 10}  # fmt: skip
    known += [
        Estimate.model_validate(accepted | {"register": register})
        for register in ("in_distribution", "domain_shift")
    ]
    return held.model_copy(update={"estimates": tuple(known)})


def test_the_verdict_is_tried_on_every_cut_left_out() -> None:
    """On the published study all seven are named rightly. With a function cut among them that is
    as harmless as precision (harm 0.1, tax 0.01) no rule holds, and nothing is named."""
    study = [with_intervals(held) for held in STUDY]
    tried = try_verdicts(calibration(study))
    assert [(t.cut, t.verdict) for t in tried] == [(y.cut, y.family) for y in STUDY]
    assert "right on 7 of 7 cuts, wrong on 0, undecided on 0" in trials_in_words(tried)
    odd = with_intervals(yardstick("odd", "function", 0.1, 0.1, 0.2, 0.99))
    tried = try_verdicts(calibration([*study[:3], *study[4:], odd]))
    assert {t.verdict for t in tried} == {"undecided"}


def test_the_trial_shows_where_the_verdict_errs() -> None:
    """In the design's table tax separates the early exit's families by a hair: fidelity cuts at
    most 10.2 points, function cuts at least 11.5. Left out, Q4_0 (10.2) is held against
    (7.4 + 11.5) / 2 = 9.5, and low rank 50 % (11.5) against (10.2 + 13.8) / 2 = 12.0."""
    tried = try_verdicts(calibration([with_intervals(held) for held in EARLY_EXIT + NOISE]))
    assert [t.cut for t in tried] == [y.cut for y in EARLY_EXIT]
    assert "right on 6 of 8 cuts, wrong on 2 (q4_0, lowrank:0.5)" in trials_in_words(tried)


def trials_in_words(tried: Sequence[Trial]) -> str:
    return trials_told(tried)
