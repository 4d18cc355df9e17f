"""Lists told apart, and every figure of the check against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from audit.errors import MismatchError
from audit.files import open_container
from audit.heads.keeping import kept_ids
from audit.heads.tokens import read_tokens
from audit.stats import Resampling
from audit.traces import read_traces
from audit.trims.checking import check_card, own_lists
from audit.trims.emitted import emitted, most_frequent
from audit.trims.padding import take_apart
from tests.trims.making import MODEL, TRACES, card, trace_of

HOW = Resampling(resamples=300)
V = 8192


@pytest.fixture(scope="module")
def tokens():
    return read_tokens(open_container(MODEL))


@pytest.fixture(scope="module")
def sample(tokens):
    return [emitted(trace, tokens) for trace in read_traces(sorted(TRACES.glob("*")))]


@pytest.fixture(scope="module")
def good(sample, tokens):
    """The sample's own ranking, 600 rows of it, with the tokens that must be kept."""
    counts = sum(one.counts(V) for one in sample)
    keep = [i for ids in kept_ids(tokens).values() for i in ids]
    return np.array(list(dict.fromkeys([*most_frequent(counts, 600).tolist(), *keep])))


def word(tmp_path, ids, sample, tokens=None, name="list.txt"):
    return check_card(card(tmp_path / name, ids), sample, V, HOW, tokens).verdict


def test_good_padded_and_foreign_are_told_apart(tmp_path, good, sample, tokens):
    assert word(tmp_path, good, sample, tokens).word == "good"
    short = word(tmp_path, good[:300], sample, tokens)
    assert short.word == "poor" and "python-code 87.8 %" in short.sentence
    counts = sum(one.counts(V) for one in sample)
    full = most_frequent(counts, V)
    assert word(tmp_path, full, sample, tokens).word == "good"
    fill = np.setdiff1d(np.arange(V), full)[:1500]
    assert word(tmp_path, [*full, *fill], sample).word == "padded"
    assert word(tmp_path, [*full, *full[:500]], sample).word == "padded"
    moved = np.random.default_rng(0).permutation(V)
    foreign = word(tmp_path, moved[full], sample)
    assert foreign.word == "foreign" and "another model" in foreign.sentence
    assert word(tmp_path, [*full, V + 1], sample).word == "foreign"


def test_a_list_of_11114_ids_padded_to_32768_is_called_padded(tmp_path):
    """The published bad list: 32,768 entries, 11,114 distinct."""
    rng = np.random.default_rng(1)
    ids = rng.permutation(60_000)[:11_114]
    given = [emitted(trace_of([list(ids[:900]) for _ in range(6)], vocabulary=60_000))]
    repeats = np.concatenate([ids, rng.choice(ids, 32_768 - 11_114)])
    filled = np.concatenate([ids, np.setdiff1d(np.arange(60_000), ids)[: 32_768 - 11_114]])
    found = check_card(card(tmp_path / "r.txt", repeats), given, 60_000, HOW)
    assert (found.listed, found.distinct, found.repeated) == (32_768, 11_114, 32_768 - 11_114)
    assert found.verdict.word == "padded" and "11,114 of its 32,768" in found.verdict.sentence
    found = check_card(card(tmp_path / "f.txt", filled), given, 60_000, HOW)
    assert (found.distinct, found.filled) == (32_768, 32_768 - 11_114)
    assert found.verdict.word == "padded" and "11,114 of its 32,768" in found.verdict.sentence
    assert check_card(card(tmp_path / "g.txt", ids), given, 60_000, HOW).verdict.word == "good"


def test_a_list_that_lacks_ids_costs_points_on_every_text(sample):
    """Half of the model's own ids dropped cost more than 6 points everywhere, a hundredth not."""
    counts = sum(one.counts(V) for one in sample)
    full = most_frequent(counts, V)
    rng = np.random.default_rng(3)
    for lost, expected in ((0.45, True), (0.01, False)):
        kept = full[rng.random(len(full)) > lost]
        costs = [one.cost for one in own_lists(sample, kept, V, HOW)]
        assert all(cost > 0.06 for cost in costs) == expected


def test_coverage_and_classes_against_counting(tmp_path, good, sample, tokens):
    found = check_card(card(tmp_path / "c.txt", good), sample, V, HOW, tokens)
    kept = set(good.tolist())
    for one in sample:
        [value] = [e for e in found.coverage if e.corpus == one.corpus]
        assert value.value == pytest.approx(np.mean([i in kept for i in one.oracle]))
        assert value.low is not None and value.low <= value.value <= value.high
        by_class = [e for e in found.coverage_by_class if e.corpus == one.corpus]
        assert sum(e.positions for e in by_class) == len(one.oracle)
        for e in by_class:
            mine = [i in kept for i, c in zip(one.oracle, one.classes, strict=True)
                    if c == e.token_class]  # fmt: skip
            assert e.value == pytest.approx(np.mean(mine)) and e.positions == len(mine)
    seen = set(np.concatenate([one.oracle for one in sample]).tolist())
    assert found.seen == len(seen) and found.missing == len(seen - kept)
    assert found.never_seen == len(kept - seen)
    assert found.lost == {"stop": [], "special": [], "byte": []}


def test_overlap_marginal_and_own_list_against_counting(tmp_path, good, sample):
    ids = good[:300]
    found = check_card(card(tmp_path / "o.txt", ids), sample, V, HOW)
    tally = sum(one.counts(V) for one in sample)
    mine = sorted(np.flatnonzero(tally), key=lambda i: (-tally[i], i))[:300]
    assert found.overlap == pytest.approx(len(set(mine) & set(ids.tolist())) / 300)
    assert found.marginal.rows == 150
    for one, gained in zip(sample, [e for e in found.marginal.gained if e.corpus], strict=True):
        last = np.isin(one.oracle, ids[-150:]).mean()
        both = np.isin(one.oracle, ids).mean() - np.isin(one.oracle, ids[:-150]).mean()
        assert gained.value == pytest.approx(last) == pytest.approx(both)
    for one, own in zip(sample, found.own_list, strict=True):
        hits = 0
        for fold in (0, 1):
            others = np.concatenate([o.oracle[o.sequence % 2 != fold] for o in sample])
            values, counts = np.unique(others, return_counts=True)
            order = sorted(zip(-counts, values, strict=True))[:300]
            top = {value for _, value in order}
            hits += sum(int(i) in top for i in one.oracle[one.sequence % 2 == fold])
        assert own.own_coverage == pytest.approx(hits / len(one.oracle))
        assert own.cost == pytest.approx(own.own_coverage - own.coverage)


def test_missing_stop_and_byte_tokens_are_told(tmp_path, sample, tokens):
    counts = sum(one.counts(V) for one in sample)
    found = check_card(card(tmp_path / "s.txt", most_frequent(counts, V)), sample, V, HOW, tokens)
    assert found.lost is not None and found.lost["stop"] == [0]
    keep = kept_ids(tokens)
    assert len(keep["byte"]) == 256
    kept = set(most_frequent(counts, V).tolist())
    assert found.lost["byte"] == [i for i in keep["byte"] if i not in kept]
    assert check_card(tmp_path / "s.txt", sample, V, HOW).lost is None


def test_all_forms_of_a_list_are_read(tmp_path, good, sample):
    np.save(tmp_path / "l.npy", good)
    torch.save(good.tolist(), tmp_path / "l.pt")
    (tmp_path / "l.json").write_text(str(good.tolist()))
    card(tmp_path / "l.txt", good)
    found = [
        check_card(tmp_path / f"l.{end}", sample, V, HOW) for end in ("txt", "npy", "pt", "json")
    ]
    figures = [one.model_dump(exclude={"card"}) for one in found]
    assert all(one == figures[0] for one in figures)


def test_a_list_of_another_vocabulary_only(tmp_path, sample):
    with pytest.raises(MismatchError):
        check_card(card(tmp_path / "x.txt", [V, V + 5, -1]), sample, V, HOW)


def test_the_same_seed_gives_the_same_check(tmp_path, good, sample):
    path = card(tmp_path / "d.txt", good)
    assert check_card(path, sample, V, HOW) == check_card(path, sample, V, HOW)


@pytest.mark.parametrize("size", [40, 100, 400])
def test_fill_is_found_and_true_tails_are_not(size):
    rng = np.random.default_rng(size)
    head = rng.permutation(3000)[:700]
    fill = np.setdiff1d(np.arange(3000), head)[:size]
    assert take_apart(np.concatenate([head, fill]), 3000).filled >= size
    # Ties in ascending order, as a true ranking ends with.
    tail = np.sort(np.setdiff1d(rng.permutation(3000)[:1500], head))
    assert take_apart(np.concatenate([head, tail]), 3000).filled == 0
    assert take_apart(head, 3000).filled == 0


def test_needed_ids_fill_nothing_up():
    head = np.random.default_rng(0).permutation(np.arange(300, 2000))[:500]
    needed = range(256)
    ids = np.concatenate([head, np.array(needed)])
    assert take_apart(ids, 2000, needed).filled == 0
    assert take_apart(ids, 2000).filled == 256


def test_a_sorted_set_is_said_to_be_no_ranking(tmp_path, good, sample):
    found = check_card(card(tmp_path / "s.txt", np.sort(good)), sample, V, HOW)
    assert found.is_sorted and "not a ranking" in found.notes[0]
