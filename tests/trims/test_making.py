"""Ranks against counting by hand, and the card's two files."""

from __future__ import annotations

import json
import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.errors import BadUsageError, UnreadableError
from audit.provenance import sha256_file
from audit.trims.card import json_beside, read_facts, write_card
from audit.trims.emitted import emitted, most_frequent
from audit.trims.making import make_ranks
from audit.trims.weights import weights_of
from tests.trims.making import trace_of

NOTHING = {"stop": [], "special": [], "byte": []}


def one(*oracle, **more):
    return emitted(trace_of(list(oracle), **more))


def test_most_frequent_first_and_ties_by_id():
    ranks = make_ranks([one([7, 7, 3, 9, 9, 1])], {"code": Fraction(1)}, NOTHING, 50)
    assert ranks.ids.tolist() == [7, 9, 1, 3]
    assert ranks.seen == ranks.seen_kept == 4 and not ranks.padded


def test_rows_without_an_oracle_do_not_count():
    ranks = make_ranks([one([-1, 5, -1])], {"code": Fraction(1)}, NOTHING, 50)
    assert ranks.ids.tolist() == [5]


@given(
    st.lists(st.lists(st.integers(0, 19), min_size=1, max_size=30), min_size=1, max_size=4),
    st.lists(st.fractions(0, 5), min_size=4, max_size=4),
)
def test_scores_are_weighted_shares_exactly(texts, weights):
    named = {f"c{i}": weight for i, weight in enumerate(weights[: len(texts)])}
    if not any(named.values()):
        return
    given_ = [one(text, corpus=f"c{i}") for i, text in enumerate(texts)]
    score: Counter[int] = Counter()
    for text, weight in zip(texts, weights, strict=False):
        for token in text:
            score[token] += weight * Fraction(1, len(text))
    expected = [i for i, s in sorted(score.items(), key=lambda p: (-p[1], p[0])) if s > 0]
    assert make_ranks(given_, named, NOTHING, 20).ids.tolist() == expected


def test_kept_ids_stand_last_where_they_were_never_seen():
    text = one([7, 7, 7, 3, 3, 9])
    keep = {"stop": [0], "special": [3], "byte": [20, 21]}
    whole = make_ranks([text], {"code": Fraction(1)}, keep, 50)
    assert whole.ids.tolist() == [7, 3, 9, 0, 20, 21]
    assert whole.forced == {"stop": [0], "special": [], "byte": [20, 21]}
    # The least frequent id that nobody needs gives way; 3 is needed though 7 is more frequent.
    assert make_ranks([text], {"code": Fraction(1)}, keep, 50, 5).ids.tolist() == [7, 3, 0, 20, 21]
    assert make_ranks([text], {"code": Fraction(1)}, keep, 50, 4).ids.tolist() == [3, 0, 20, 21]


@pytest.mark.parametrize(
    ("rows", "words"),
    [(7, "there are 6 ids: 3 were emitted"), (3, "no room for the 4"), (51, "has 50 ids"),
     (0, "no room")],
)  # fmt: skip
def test_rows_that_can_not_be_had_are_refused(rows, words):
    keep = {"stop": [0], "special": [3], "byte": [20, 21]}
    with pytest.raises(BadUsageError, match=words):
        make_ranks([one([7, 3, 9])], {"code": Fraction(1)}, keep, 50, rows)


def test_padding_only_when_asked_for_and_marked():
    ranks = make_ranks([one([2, 2, 0])], {"code": Fraction(1)}, NOTHING, 50, 5, pad=True)
    assert ranks.ids.tolist() == [2, 0, 1, 3, 4] and ranks.padded == [1, 3, 4]
    assert ranks.seen == 2 and ranks.seen_kept == 2


def infos(*named):
    return [trace_of([[1]], corpus=name, language=language).info for name, language in named]


def test_flavours_and_weights():
    given_ = infos(("python-code", "code:python"), ("agent-transcripts", "en"), ("chat", "en"),
                   ("german", "de"))  # fmt: skip
    assert list(weights_of(given_, "mixed", []).values()) == [1, 1, 1, 1]
    assert list(weights_of(given_, "agentic", []).values()) == [3, 3, 1, Fraction(1, 4)]
    assert list(weights_of(given_, "prose", []).values()) == [Fraction(1, 4), Fraction(1, 4), 3, 3]
    assert weights_of(given_, "prose", ["german=2.5"])["german"] == Fraction(5, 2)


@pytest.mark.parametrize(
    "text",
    ["german", "german=", "=2", "german=-1", "german=nan", "german=inf", "french=1", "german=1/0"],
)
def test_bad_weights_are_refused(text):
    with pytest.raises(BadUsageError) as refused:
        weights_of(infos(("german", "de")), "mixed", [text])
    assert refused.value.hint


def test_all_weights_zero_is_refused():
    with pytest.raises(BadUsageError, match="weight 0"):
        weights_of(infos(("german", "de")), "mixed", ["german=0"])


def about(**more):
    return {
        "vocabulary": 50, "seen": 2, "seen_kept": 2, "forced": {}, "padded": [], "counts": [2, 1],
        "corpora": [], "flavour": "mixed", "model": "tiny", "model_sha256": None,
        "tokenizer_sha256": None, **more,
    }  # fmt: skip


def test_the_json_is_bound_to_the_card(tmp_path):
    path = tmp_path / "ranks.txt"
    write_card(path, [4, 2], about())
    assert path.read_text() == "4\n2\n"
    raw = json.loads((tmp_path / "ranks.txt.json").read_text())
    assert raw["card_sha256"] == sha256_file(path) and raw["rows"] == 2 and raw["counts"] == [2, 1]
    facts = read_facts(path)
    assert facts is not None and facts.vocabulary == 50
    path.write_text("4\n3\n")
    assert read_facts(path) is None
    json_beside(path).write_text('{"rows": NaN}')
    with pytest.raises(UnreadableError):
        read_facts(path)
    json_beside(path).unlink()
    assert read_facts(path) is None


def test_unwritable_cards_leave_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "ranks.txt", tmp_path / "ranks.csv"):
        with pytest.raises(BadUsageError):
            write_card(path, [1], about(counts=[1]))
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(BadUsageError):
        write_card(tmp_path / "folder.txt", [1], about(counts=[1]))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder.txt"]


def test_most_frequent_against_sorting():
    rng = random.Random(0)
    counts = np.array([rng.randint(0, 3) for _ in range(200)])
    expected = sorted((i for i in range(200) if counts[i]), key=lambda i: (-counts[i], i))
    for size in (1, 10, 500):
        assert most_frequent(counts, size).tolist() == expected[:size]
