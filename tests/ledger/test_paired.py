"""Paired differences against brute force, against the two single estimates, and by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.errors import MismatchError
from audit.estimates import Facts, estimate_all
from audit.paired import Difference, paired_differences, reference_changes
from audit.stats import Resampling, binomial_interval, percentile_interval
from audit.table import Frame
from tests.ledger.made import a_table

HOW = Resampling(resamples=300, seed=5)


def corpus(
    seed: int, name: str, register: str, lengths: list[int], flips: tuple[float, float]
) -> tuple[Frame, Frame]:
    """The tables of two candidates on one trace; they flip mostly at the same positions."""
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    sequence = np.repeat(np.arange(len(lengths)) * 7, lengths)
    oracle = rng.integers(0, 5, n)
    ref = np.where(rng.random(n) < 0.8, oracle, (oracle + 1) % 5)
    luck = rng.random(n)
    tables = []
    for rate in flips:
        cand = np.where(luck < rate, (ref + rng.integers(1, 5, n)) % 5, ref)
        more = {"corpus": name, "register": register}
        tables.append(a_table(list(ref), list(cand), list(oracle), list(sequence), **more))
    return tables[0], tables[1]


CODE = corpus(1, "code", "in_distribution", [20] * 9, (0.1, 0.2))
GERMAN = corpus(2, "de", "domain_shift", [5, 30, 12, 8, 20, 9], (0.3, 0.45))
HEBREW = corpus(3, "he", "domain_shift", [11] * 7, (0.5, 0.2))
ALL = (CODE, GERMAN, HEBREW)


def of(found: list[Difference]) -> dict[tuple[str, str | None, str], Difference]:
    return {(one.measure, one.corpus, one.register): one for one in found}


def differences(how: Resampling = HOW) -> dict[tuple[str, str | None, str], Difference]:
    left, right = ([pair[side] for pair in ALL] for side in (0, 1))
    return of(paired_differences(left, right, how))


def test_the_difference_is_that_of_the_two_estimates() -> None:
    found = differences()
    singles = []
    for side in (0, 1):
        made = estimate_all([pair[side] for pair in ALL], Facts(), HOW)
        singles.append({(e.measure, e.corpus, e.register_): e.value for e in made})
    assert len(found) == 3 * (3 + 2)
    for key, one in found.items():
        assert (one.a, one.b) == (singles[0][key], singles[1][key])
        assert one.value == pytest.approx(singles[1][key] - singles[0][key], abs=1e-15)
        assert one.low is not None and one.high is not None and one.low <= one.value <= one.high


def ratios(rows: pd.DataFrame) -> dict[str, float]:
    """The three measures of one candidate from its rows, the plain way."""
    flips = (rows["ref"] != rows["cand"]).mean()
    accepted = (rows["cand"] == rows["oracle"]).sum()
    return {
        "disagreement": flips,
        "acceptance_cand": accepted / len(rows),
        "retention": accepted / (rows["ref"] == rows["oracle"]).sum(),
    }


def brute_force(pairs: list[tuple[Frame, Frame]]) -> dict[str, np.ndarray]:
    """Every resample laid out row by row: whole sequences repeated, both candidates alike."""
    draws = [
        HOW.weights(pair[0]["corpus"].iloc[0], pair[0]["sequence"].nunique()) for pair in pairs
    ]
    out: dict[str, list[float]] = {}
    for number in range(HOW.resamples):
        values = []
        for side in (0, 1):
            parts = []
            for pair, weights in zip(pairs, draws, strict=True):
                for place, (_, rows) in enumerate(pair[side].groupby("sequence")):
                    parts += [rows] * int(weights[number, place])
            values.append(ratios(pd.concat(parts)))
        for name, value in values[1].items():
            out.setdefault(name, []).append(value - values[0][name])
    return {name: np.array(values) for name, values in out.items()}


@pytest.mark.parametrize(
    ("pairs", "corpus", "register"),
    [([GERMAN], "de", "domain_shift"), ([GERMAN, HEBREW], None, "domain_shift")],
)
def test_intervals_against_brute_force(
    pairs: list[tuple[Frame, Frame]], corpus: str | None, register: str
) -> None:
    found = differences()
    sequences = sum(pair[0]["sequence"].nunique() for pair in pairs)
    for name, replicates in brute_force(pairs).items():
        one = found[name, corpus, register]
        expected = percentile_interval(replicates, sequences, HOW.level)
        assert (one.low, one.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
        assert one.sequences == sequences and one.positions == sum(len(p[0]) for p in pairs)


def test_pairing_makes_the_interval_shorter() -> None:
    """What both candidates lose at the same positions cancels."""
    found = differences(Resampling(resamples=4000))
    singles = [
        {(e.measure, e.corpus): e for e in estimate_all([pair], Facts(), Resampling())}
        for pair in CODE
    ]
    a, b = (one["acceptance_cand", "code"] for one in singles)
    assert None not in (a.low, a.high, b.low, b.high)
    unpaired = np.hypot(a.high - a.low, b.high - b.low)  # type: ignore[operator]
    paired = found["acceptance_cand", "code", "in_distribution"]
    assert paired.high - paired.low < 0.8 * unpaired  # type: ignore[operator]


def test_by_hand() -> None:
    """Two sequences of three positions; a flips at 1 and 4, b at 1, 2 and 5.

    position   0  1  2 | 3  4  5
    oracle     1  2  3 | 4  5  6
    ref        1  2  9 | 4  5  6    accepts 5 of 6
    a          1  8  9 | 4  8  6    accepts 3
    b          1  8  3 | 4  5  8    accepts 4: it wins 2 and 4, and loses 5
    """
    shared = ([1, 2, 9, 4, 5, 6], [1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 1, 1])
    a, b = (
        a_table(shared[0], cand, shared[1], shared[2])
        for cand in ([1, 8, 9, 4, 8, 6], [1, 8, 3, 4, 5, 8])
    )
    found = of(paired_differences([a], [b], HOW))
    key = ("code", "domain_shift")
    accepted, flips = found["acceptance_cand", *key], found["disagreement", *key]
    assert (accepted.only_a, accepted.only_b) == (1, 2)
    assert accepted.value == pytest.approx(1 / 6)
    assert found["retention", *key].value == pytest.approx(4 / 5 - 3 / 5)
    assert (flips.only_a, flips.only_b) == (1, 2) and flips.value == pytest.approx(1 / 6)
    assert accepted.low is None and "needs 5" in (accepted.reason or "")


def test_the_order_of_rows_does_not_matter() -> None:
    shuffled = GERMAN[1].sample(frac=1.0, random_state=3)
    assert paired_differences([GERMAN[0]], [shuffled], HOW) == paired_differences(
        [GERMAN[0]], [GERMAN[1]], HOW
    )


def test_swapping_the_two_turns_everything_round() -> None:
    there = paired_differences([GERMAN[0]], [GERMAN[1]], HOW)
    back = paired_differences([GERMAN[1]], [GERMAN[0]], HOW)
    for one, other in zip(there, back, strict=True):
        assert one.value == pytest.approx(-(other.value or 0.0))
        assert one.low == pytest.approx(-(other.high or 0.0), abs=1e-9)
        assert (one.only_a, one.only_b) == (other.only_b, other.only_a)


def test_a_head_against_itself_and_one_that_happens_to_agree() -> None:
    table = GERMAN[0]
    for one in paired_differences([table], [table], HOW, same_head=True):
        assert (one.value, one.low, one.high) == (0, 0, 0) and "exact" in (one.reason or "")
    found = of(paired_differences([table], [table], HOW))
    most = binomial_interval(0, len(table), 0.95).high
    assert most is not None
    flips = found["disagreement", "de", "domain_shift"]
    assert flips.value == 0 and (flips.low, flips.high) == pytest.approx((-most, most))
    accepted = table["ref_accepts"].sum()
    kept = found["retention", "de", "domain_shift"]
    assert kept.high == pytest.approx(most * len(table) / accepted)


def test_nothing_accepted_is_told_not_divided() -> None:
    n = 30
    table = a_table([1] * n, [2] * n, [3] * n, [i // 5 for i in range(n)])
    kept = of(paired_differences([table], [table], HOW))["retention", "code", "domain_shift"]
    assert kept.value is None and kept.low is None and kept.reason == "no ref accepted"


def test_other_positions_are_refused() -> None:
    left, right = GERMAN
    for other in (right.iloc[1:], right.assign(oracle=right["oracle"] + 1),
                  right.assign(position=right["position"] + 1)):  # fmt: skip
        with pytest.raises(MismatchError, match="different positions of de"):
            paired_differences([left], [other], HOW)
        with pytest.raises(MismatchError):
            reference_changes(left, other)


def test_a_reference_that_proposed_something_else_is_counted() -> None:
    left, right = GERMAN
    moved = right["ref"].to_numpy().copy()
    moved[:3] += 10
    assert reference_changes(left, right.assign(ref=moved)) == 3
    assert reference_changes(left, right) == 0


@settings(max_examples=40)
@given(st.data())
def test_discordant_counts_always_explain_the_difference(data: st.DataObject) -> None:
    """value = (only_b - only_a) / positions, and the interval always holds it."""
    n = data.draw(st.integers(1, 40))
    ids = st.lists(st.integers(0, 3), min_size=n, max_size=n)
    ref, oracle, a, b = (data.draw(ids) for _ in range(4))
    sequence = sorted(data.draw(st.lists(st.integers(0, 7), min_size=n, max_size=n)))
    tables = [a_table(ref, cand, oracle, sequence) for cand in (a, b)]
    for one in paired_differences([tables[0]], [tables[1]], Resampling(resamples=100)):
        if one.measure != "retention":
            assert one.value == pytest.approx((one.only_b - one.only_a) / n)
        if one.low is not None and one.high is not None and one.value is not None:
            assert np.isfinite([one.low, one.high]).all()
            assert one.low <= one.high
