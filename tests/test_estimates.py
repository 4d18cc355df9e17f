"""Estimates against worked examples by hand, scipy and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as sps

from audit.catalogue import CATALOGUE, COUNTS
from audit.estimates import Facts, estimate_all
from audit.records import Estimate
from audit.samples import pool_registers, sample_of
from audit.stats import (
    MIN_SEQUENCES,
    Resampling,
    binomial_interval,
    percentile_interval,
    positions_needed,
)
from audit.table import Frame, position_frame, sums_by_sequence, units_of

FAST = Resampling(resamples=500)


def frame(
    ref: list[int],
    cand: list[int],
    oracle: list[int],
    sequence: list[int],
    corpus: str = "code",
    register: str = "in_distribution",
    **more: object,
) -> Frame:
    n = len(ref)
    columns: dict[str, object] = {
        "candidate": "c", "corpus": corpus, "register": register, "sequence": np.array(sequence),
        "position": np.arange(n), "token": np.zeros(n, int), "oracle": np.array(oracle),
        "ref": np.array(ref), "cand": np.array(cand), "ref_margin": np.ones(n, np.float32),
        "cand_margin": np.ones(n, np.float32), "ref_tied": np.zeros(n, bool),
        "cand_tied": np.zeros(n, bool), "ref_rank": np.ones(n, int), "cand_rank": np.ones(n, int),
        "oracle_in_vocabulary": np.ones(n, bool), "ref_in_vocabulary": np.ones(n, bool),
        "tie_flip": np.zeros(n, bool), "kl_nats": None,
    }  # fmt: skip
    return position_frame(columns | more)


def by_name(estimates: list[Estimate], corpus: str | None = "code") -> dict[str, Estimate]:
    return {e.measure: e for e in estimates if e.corpus == corpus}


def test_worked_example_by_hand() -> None:
    """Two sequences of 4 and 2 positions.

    position   0  1  2  3 | 4  5
    oracle     1  2  3  4 | 5  6
    ref        1  2  9  4 | 5  7      accepts 3 of 4, 1 of 2   -> a_ref  = 4/6
    cand       1  8  9  5 | 5  6      accepts 1 of 4, 2 of 2   -> a_cand = 3/6
    disagree      x     x |    x      2 of 4, 1 of 2           -> D = 3/6, macro (1/2 + 1/2) / 2
    H = (4 - 3) / 3 = 1/3; macro ((3 - 1)/2 + (1 - 2)/1) / 2 = (1 - 1) / 2 = 0
    R = 3/4; macro (1/3 + 2/1) / 2 = 7/6
    flip margin: ref margins 2, 4 and 6 at the flips -> 4
    """
    table = frame(
        [1, 2, 9, 4, 5, 7], [1, 8, 9, 5, 5, 6], [1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 1, 1],
        ref_margin=np.array([1, 2, 3, 4, 5, 6], np.float32),
    )  # fmt: skip
    found = by_name(estimate_all([table], Facts(), FAST))
    values = {name: (e.value, e.macro) for name, e in found.items()}
    assert values["disagreement"] == pytest.approx((3 / 6, 1 / 2))
    assert values["harm"] == pytest.approx((1 / 3, 0.0))
    assert values["acceptance_ref"] == pytest.approx((4 / 6, (3 / 4 + 1 / 2) / 2))
    assert values["acceptance_cand"] == pytest.approx((3 / 6, (1 / 4 + 1) / 2))
    assert values["retention"] == pytest.approx((3 / 4, 7 / 6))
    assert values["flip_margin"] == pytest.approx((4.0, (3.0 + 6.0) / 2))
    assert found["disagreement"].positions == 6 and found["disagreement"].sequences == 2
    assert found["disagreement"].low is None
    assert "2 sequences: an interval needs 5" in (found["disagreement"].reason or "")


def test_pooling_is_over_positions_not_over_ratios() -> None:
    """7 prompts of 10 tokens at 0.2 and one of 4,000 at 0.9: pooled 3,614 / 4,070, macro 0.2875."""
    accepted = [2] * 7 + [3600]
    lengths = [10] * 7 + [4000]
    oracle, cand, sequence = [], [], []
    for i, (good, length) in enumerate(zip(accepted, lengths, strict=True)):
        oracle += [1] * length
        cand += [1] * good + [2] * (length - good)
        sequence += [i] * length
    found = by_name(estimate_all([frame(oracle, cand, oracle, sequence)], Facts(), FAST))
    assert found["acceptance_cand"].value == pytest.approx(3614 / 4070)
    assert found["acceptance_cand"].macro == pytest.approx((7 * 0.2 + 0.9) / 8)


def test_a_ref_minus_a_cand_is_d_times_h() -> None:
    rng = np.random.default_rng(0)
    ref, cand, oracle = rng.integers(0, 3, (3, 400))
    tie = rng.random(400) < 0.2
    table = frame(list(ref), list(cand), list(oracle), [i // 40 for i in range(400)], tie_flip=tie)
    found = {n: e.value for n, e in by_name(estimate_all([table], Facts(), FAST)).items()}
    assert found["disagreement"] and found["harm"] is not None
    gap = (found["acceptance_ref"] or 0) - (found["acceptance_cand"] or 0)
    assert gap == pytest.approx(found["disagreement"] * found["harm"])


def test_a_tie_flip_is_neither_disagreement_nor_harm() -> None:
    table = frame([1, 1], [2, 2], [1, 1], [0, 1], tie_flip=np.array([True, False]))
    assert table["disagree"].tolist() == [False, True]
    assert table["cand_accepts"].tolist() == [True, False]


def test_shift_tax_and_loss_by_hand() -> None:
    """In distribution R = 9/10, under shift 6/10: loss 0.4, tax 0.3."""

    def part(kept: int, corpus: str, register: str) -> Frame:
        cand = ([1] * kept + [2] * (10 - kept)) * 6
        return frame([1] * 60, cand, [1] * 60, [i // 10 for i in range(60)], corpus, register)

    tables = [part(9, "code", "in_distribution"), part(6, "de", "domain_shift")]
    found = by_name(estimate_all(tables, Facts(), FAST), "de")
    assert found["shift_loss"].value == pytest.approx(0.4)
    assert found["shift_tax"].value == pytest.approx(0.3)
    alone = by_name(estimate_all(tables[1:], Facts(), FAST), "de")
    assert alone["shift_tax"].value is None
    assert "no trace in distribution" in (alone["shift_tax"].reason or "")


def test_no_disagreement_gives_no_harm_but_a_bound() -> None:
    table = frame([1] * 100, [1] * 100, [1] * 50 + [2] * 50, [i // 10 for i in range(100)])
    found = by_name(estimate_all([table], Facts(), FAST))
    assert found["harm"].value is None and found["harm"].reason == "no disagreements"
    # Rule of three, exactly: 1 - 0.025 ** (1 / 100).
    high = 1 - 0.025 ** (1 / 100)
    assert found["disagreement"].value == 0 and found["disagreement"].low == 0
    assert found["disagreement"].high == pytest.approx(high)
    # R can differ from 1 by at most D / a_ref.
    assert found["retention"].low == pytest.approx(1 - high / 0.5)
    assert found["retention"].high == pytest.approx(1 + high / 0.5)


def test_a_head_that_keeps_nothing_has_a_sane_interval() -> None:
    table = frame([1] * 100, [2] * 100, [1] * 100, [i // 10 for i in range(100)])
    found = by_name(estimate_all([table], Facts(), FAST))
    assert found["retention"].value == found["retention"].low == 0
    assert found["retention"].high == pytest.approx(1 - 0.025 ** (1 / 100))


def test_identical_weights_are_exact_not_estimated() -> None:
    table = frame([1] * 10, [1] * 10, [1] * 10, [0] * 10)
    found = by_name(estimate_all([table], Facts(same_weights=True), FAST))
    assert (found["disagreement"].low, found["disagreement"].high) == (0, 0)
    assert (found["retention"].low, found["retention"].high) == (1, 1)


def test_a_reference_that_is_never_right_has_no_retention() -> None:
    table = frame([1] * 10, [1] * 10, [2] * 10, [0] * 10, register="domain_shift")
    found = by_name(estimate_all([table], Facts(), FAST))
    assert found["retention"].value is None and found["shift_loss"].value is None
    assert found["retention"].reason == "no ref accepted"


@given(
    st.integers(1, 12),
    st.integers(1, 30),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(0, 1000),
)
def test_no_estimate_is_ever_nan_or_out_of_order(
    sequences: int, length: int, p: float, q: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    n = sequences * length
    oracle = rng.integers(0, 3, n)
    ref = np.where(rng.random(n) < p, oracle, 7)
    cand = np.where(rng.random(n) < q, ref, 8)
    rows = [i // length for i in range(n)]
    tables = [
        frame(list(ref), list(cand), list(oracle), rows),
        frame(list(ref), list(cand), list(oracle), rows, "de", "domain_shift"),
    ]
    for e in estimate_all(tables, Facts(trimmed=True, has_kl=True), Resampling(resamples=100)):
        Estimate.model_validate(e.model_dump())  # refuses NaN and infinity
        if e.value is None:
            assert e.reason and e.low is None and e.high is None
        if e.low is not None and e.high is not None:
            assert e.low <= e.high
        else:
            assert e.reason


def test_intervals_are_those_of_scipy() -> None:
    """Ratio of sums over 40 sequences; scipy resamples, ours must agree within its own noise."""
    rng = np.random.default_rng(1)
    below = rng.integers(20, 60, 40).astype(float)
    above = rng.binomial(below.astype(int), 0.3).astype(float)
    weights = Resampling(resamples=20000).weights("x", 40)
    ours = (weights @ above) / (weights @ below)
    theirs = sps.bootstrap(
        (above, below), lambda a, b, axis: a.sum(axis) / b.sum(axis), paired=True,
        vectorized=True, n_resamples=20000, method="percentile", rng=rng,
    )  # fmt: skip
    low, high = np.quantile(ours, [0.025, 0.975])
    width = high - low
    assert abs(low - theirs.confidence_interval.low) < 0.03 * width
    assert abs(high - theirs.confidence_interval.high) < 0.03 * width
    wide = percentile_interval(ours, 40, 0.95)
    assert wide.low is not None and wide.high is not None
    assert wide.low < low and high < wide.high


def test_intervals_cover_what_they_claim() -> None:
    """Of 300 samples of 12 correlated sequences, about 95 % hold the truth; the plain percentile
    interval holds it clearly less often."""
    rng = np.random.default_rng(2)
    hits = 0
    how = Resampling(resamples=600)
    for trial in range(300):
        rates = rng.beta(6, 14, 12)  # mean 0.3, sequences differ
        above = rng.binomial(50, rates).astype(float)
        replicates = how.weights(str(trial), 12) @ above / 600
        found = percentile_interval(replicates, 12, 0.95)
        assert found.low is not None and found.high is not None
        hits += found.low <= 0.3 <= found.high
    assert 0.92 <= hits / 300 <= 0.985


@given(st.integers(0, 50), st.integers(0, 50))
def test_binomial_interval_is_clopper_pearson(events: int, others: int) -> None:
    n = events + others
    if n == 0:
        return
    found = binomial_interval(events, n, 0.95)
    exact = sps.binomtest(events, n).proportion_ci(0.95, method="exact")
    assert found.low == pytest.approx(exact.low) and found.high == pytest.approx(exact.high)


def test_too_few_sequences_have_no_interval() -> None:
    assert percentile_interval(np.ones(10), MIN_SEQUENCES - 1, 0.95).low is None
    assert percentile_interval(np.full(100, np.nan), 50, 0.95).low is None


def test_positions_needed_by_hand() -> None:
    # 0.10 with reach 0.04 towards 0.08: (0.04 / 0.02)^2 = 4 times as many.
    assert positions_needed(0.10, 0.06, 0.15, 0.08, 1000) == 4000
    assert positions_needed(0.10, 0.06, 0.15, 0.125, 1000) == 4000
    assert positions_needed(0.10, 0.06, 0.15, 0.10, 1000) is None


def test_pooled_registers_add_up_and_draws_depend_on_the_corpus_only() -> None:
    a = frame([1] * 60, [1, 2] * 30, [1] * 60, [i // 6 for i in range(60)], "a")
    b = frame([1] * 30, [2] * 30, [1] * 30, [i // 6 for i in range(30)], "b")
    samples = [sample_of(a, FAST), sample_of(b, FAST)]
    (pooled,) = pool_registers(samples, FAST)
    assert pooled.sequences == 15 and pooled.positions == 90
    np.testing.assert_allclose(pooled.total, samples[0].total + samples[1].total)
    np.testing.assert_array_equal(FAST.weights("a", 10), FAST.weights("a", 10))
    assert not np.array_equal(FAST.weights("a", 10), FAST.weights("b", 10))
    other = Resampling(resamples=500, seed=1)
    assert not np.array_equal(FAST.weights("a", 10), other.weights("a", 10))


def test_pooling_corpora_of_few_sequences_does_not_feign_certainty() -> None:
    """The same six sequences as one corpus, three of two and six of one: alike intervals."""
    rng = np.random.default_rng(5)
    rates = rng.uniform(0.1, 0.6, 6)
    cand = np.concatenate([np.where(rng.random(80) < rate, 2, 1) for rate in rates])
    widths = []
    for per in (6, 2, 1):
        tables = []
        for k in range(6 // per):
            part = list(cand[k * per * 80 : (k + 1) * per * 80])
            rows = [i // 80 for i in range(per * 80)]
            tables.append(frame([1] * len(part), part, [1] * len(part), rows, f"c{k}"))
        found = by_name(estimate_all(tables, Facts(), Resampling()), None)["disagreement"]
        assert found.low is not None and found.high is not None
        widths.append(found.high - found.low)
    assert max(widths) < 1.15 * min(widths)


def test_kl_that_was_asked_for_and_is_not_there_has_a_reason() -> None:
    table = frame([1] * 10, [1] * 10, [1] * 10, [0] * 10)
    facts = Facts(trimmed=True, kl_missing="infinite: no row for some ids")
    found = by_name(estimate_all([table], facts, FAST))
    assert found["kl_nats"].value is None and "infinite" in (found["kl_nats"].reason or "")


def test_catalogue_names_only_counts_that_exist() -> None:
    table = frame([1], [1], [1], [0])
    assert tuple(sums_by_sequence(table).columns) == COUNTS
    for measure in CATALOGUE.values():
        assert {measure.plus, measure.below} <= set(COUNTS)
        assert measure.minus is None or measure.minus in COUNTS
        assert measure.formula and measure.caveat and measure.title


def copies(times: int, *, apart: bool = False) -> Frame:
    """Six texts of 40 tokens, each `times` times; the copies with other tokens where `apart`."""
    rng = np.random.default_rng(5)
    token, oracle = rng.integers(0, 99, 240), rng.integers(0, 9, 240)
    cand = np.where(rng.random(240) < np.repeat(rng.random(6), 40), oracle, 99)
    many = [np.tile(column, times) for column in (oracle, cand, oracle)]
    n = 240 * times
    return frame(
        *(column.tolist() for column in many),
        (np.arange(n) // 40).tolist(),
        position=np.arange(n) % 40,
        token=np.tile(token, times) + (np.arange(n) if apart else 0),
    )


def test_copies_of_a_text_are_one_unit() -> None:
    """Ten copies of six texts: the same shares, and the same interval to the last digit."""
    once, tenfold = (estimate_all([copies(k)], Facts(), Resampling()) for k in (1, 10))
    assert len(once) == len(tenfold) > 5
    for a, b in zip(once, tenfold, strict=True):
        assert (a.measure, a.sequences, b.positions) == (b.measure, 6, 10 * a.positions)
        for name in ("value", "low", "high", "macro"):
            ours, theirs = getattr(a, name), getattr(b, name)
            assert ours == theirs or ours == pytest.approx(theirs, abs=1e-12), (a.measure, name)
    apart = by_name(estimate_all([copies(10, apart=True)], Facts(), Resampling()))["disagreement"]
    narrow = by_name(tenfold)["disagreement"]
    assert apart.sequences == 60 and apart.value == narrow.value
    assert apart.high - apart.low < 0.6 * (narrow.high - narrow.low)


def test_copies_never_make_five_sequences_of_four() -> None:
    rows = copies(10)
    four = rows[rows["sequence"] % 6 < 4].reset_index(drop=True)
    found = by_name(estimate_all([four], Facts(), Resampling()))["disagreement"]
    assert found.sequences == 4 and found.low is None and "4 sequences" in found.reason


def test_units_look_at_every_token_and_place() -> None:
    """Texts 0 and 2 are alike, 1 has them in another order, 3 begins later, 4 is longer."""
    texts = [([0, 1], [7, 8]), ([0, 1], [8, 7]), ([0, 1], [7, 8]), ([1, 2], [7, 8]),
             ([0, 1, 2], [7, 8, 0])]  # fmt: skip
    sequence = [i for i, (places, _) in enumerate(texts) for _ in places]
    table = frame(
        *[[1] * len(sequence)] * 3, sequence,
        position=np.concatenate([places for places, _ in texts]),
        token=np.concatenate([tokens for _, tokens in texts]),
    )  # fmt: skip
    assert units_of(table).tolist() == [0, 0, 1, 1, 0, 0, 3, 3, 4, 4, 4]
    mixed = table.sample(frac=1, random_state=0)
    assert units_of(mixed).tolist() == [[0, 1, 0, 3, 4][i] for i in mixed["sequence"]]
