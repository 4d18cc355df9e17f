"""Flips against brute force, and the text that stands around them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from audit.dashboard import flips
from audit.report.token_text import TokenReader, read_tokenizer
from tests.dashboard.made import HOSTILE, table
from tests.ledger.made import a_table
from tests.report.made import HOSTILE as NAMES

TABLE = table("a.gguf", 2_000, 3)


def reader(tmp_path: Path, *words: str) -> TokenReader:
    """A tokenizer of these whole words, ids in their order."""
    content = {
        "version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
        "post_processor": None, "decoder": {"type": "Fuse"}, "truncation": None, "padding": None,
        "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(words)},
                  "unk_token": words[0]},
    }  # fmt: skip
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))
    return read_tokenizer(path)


def test_flips_are_all_disagreements_the_surest_first() -> None:
    found = flips.flips_of(TABLE, "a.gguf")
    loop = [row for row in TABLE.to_dict("records") if row["disagree"]]
    assert len(found) == len(loop) > 100
    assert list(found["ref_margin"]) == sorted((r["ref_margin"] for r in loop), reverse=True)
    words = {
        (r["corpus"], r["sequence"], r["position"]): "lost" if r["ref"] == r["oracle"]
        else "gained" if r["cand"] == r["oracle"] else "neither right"
        for r in loop
    }  # fmt: skip
    for row in found.to_dict("records"):
        assert row["outcome"] == words[row["corpus"], row["sequence"], row["position"]]
    assert set(found["outcome"]) == {"lost", "gained", "neither right"}


@pytest.mark.parametrize(
    "wanted",
    [
        flips.Wanted(None, None, 0.0, flips.EVERY),
        flips.Wanted("german", None, 0.0, flips.LOST),
        flips.Wanted(None, "digit", 1.0, flips.NEITHER),
        flips.Wanted("code", "latin", 0.5, flips.GAINED),
        flips.Wanted(None, None, 99.0, flips.EVERY),
    ],
)
def test_filters_keep_what_a_loop_keeps(wanted: flips.Wanted) -> None:
    found = flips.flips_of(TABLE, "a.gguf")
    kept = [
        row for row in found.to_dict("records")
        if (wanted.outcome in (flips.EVERY, row["outcome"]))
        and wanted.corpus in (None, row["corpus"])
        and wanted.token_class in (None, row["oracle_class"])
        and row["ref_margin"] >= wanted.margin
    ]  # fmt: skip
    assert flips.filtered(found, wanted).to_dict("records") == kept


def test_tokens_most_often_lost_are_counted_as_by_hand() -> None:
    small = a_table(
        ref=[1, 1, 1, 2, 2, 3, 9], cand=[0, 0, 1, 0, 2, 0, 0], oracle=[1, 1, 1, 2, 2, 5, 9],
        sequence=[0] * 7,
    )  # fmt: skip
    found = flips.flips_of(small, "cand")
    lost = flips.most_lost(found, small, "cand", 10)
    # Token 1: lost 2 of 3; then 9: 1 of 1, before 2: 1 of 2; 5 was never had.
    assert lost.to_numpy().tolist() == [[1, 2, 3], [9, 1, 1], [2, 1, 2]]
    shown = flips.lost_frame(lost, None)
    assert [cell.strip() for cell in shown["share lost"]] == ["66.7 %", "100.0 %", "50.0 %"]
    assert flips.most_lost(found, small, "cand", 1).to_numpy().tolist() == [[1, 2, 3]]


def test_a_table_without_margins_or_classes_is_shown_all_the_same() -> None:
    bare = a_table([1, 1], [2, 1], [1, 1], [0, 0], ref_margin=None, cand_margin=None)
    found = flips.flips_of(bare, "cand")
    assert list(found["oracle_class"]) == [flips.NO_CLASS]
    rows = flips.flip_frame(found, bare, "lm", None)
    assert list(rows["its margin"]) == ["–"] and list(rows["verifier wanted"]) == ["1"]
    none = flips.Wanted(None, None, 0.1, flips.EVERY)
    assert flips.filtered(found, none).empty, "what has no margin has none of 0.1"


@pytest.mark.parametrize(
    ("kind", "text"),
    [("lm", "bcd"), ("exit:16", "bcd"), ("mtp", "bcde"), ("medusa:0", "bcde"),
     ("medusa:1", "bcdef")],
)  # fmt: skip
def test_the_text_before_ends_where_the_verifier_had_read(
    tmp_path: Path, kind: str, text: str
) -> None:
    six = a_table([0] * 6, [1] * 6, [0] * 6, [0] * 6, token=np.arange(1, 7))
    say = reader(tmp_path, *"abcdefgh")
    row = {"candidate": "cand", "corpus": "code", "sequence": 0, "position": 2}
    assert flips.context(six, row, kind, say, 99) == text
    assert flips.context(six, row, kind, say, 2) == text[-2:]
    assert flips.context(six, row, "lm", None, 99) == "1 2 3"


def test_text_that_is_not_in_the_table_is_marked(tmp_path: Path) -> None:
    two = a_table([0] * 2, [1] * 2, [0] * 2, [0] * 2, token=np.array([1, 2]))
    row = {"candidate": "cand", "corpus": "code", "sequence": 0, "position": 1}
    assert flips.context(two, row, "mtp", reader(tmp_path, *"abc"), 9) == "bc…"


@pytest.mark.parametrize("word", [*NAMES[:8], HOSTILE, "a\nb\tc", "\x00\u2066"])
def test_hostile_tokens_stay_on_one_line(tmp_path: Path, word: str) -> None:
    word = word.encode(errors="replace").decode()
    say = reader(tmp_path, "[unk]", word)
    for text in (say.one(1), say.many([1, 0, 7])):
        assert text.isprintable() and not set("\u202e\u2066") & set(text)
    assert say.many([1, 7]).endswith("⟨7⟩") and say.one(7) == "7"


def test_the_readers_hash_is_the_traces(golden: object) -> None:
    from tests.conftest import SAMPLE

    run = golden.run  # type: ignore[attr-defined]
    assert {t.info.tokenizer_sha256 for t in run.traces} == {
        read_tokenizer(SAMPLE / "model").sha256()
    }


def test_all_heads_of_a_run_at_one_position() -> None:
    one = a_table([1, 2], [3, 4], [1, 2], [0, 0])
    both = pd.concat([one, one.assign(candidate="b", cand=[5, 6])], ignore_index=True)
    row = {"corpus": "code", "sequence": 0, "position": 1}
    assert flips.at_position(both, row)[["candidate", "cand"]].to_numpy().tolist() == [
        ["cand", 4], ["b", 6],
    ]  # fmt: skip
