"""Token classes: decoding against the tokenizers library, classes by hand, sums by brute force."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from audit.catalogue import CLASS_MEASURES, COUNTS, TOKEN_CLASSES
from audit.errors import UnreadableError
from audit.estimates import Facts, estimate_all
from audit.files import open_container
from audit.heads.token_text import _BYTES, Pieces, class_of_text
from audit.heads.tokens import Tokens, read_tokens
from audit.provenance import vocabulary_sha256
from audit.records import Estimate
from audit.stats import Resampling
from audit.table import sums_by_class, sums_by_sequence
from tests.test_estimates import frame

TEXT = [
    "def get_name(self): return self.name  # naïve café, 3.14 == x",
    "Привет, мир! Как дела? שלום עולם مرحبا نमस्ते नमस्ते दुनिया 你好世界",
    "こんにちは 한국어 Ελλάδα ไทย 🎉🎉",
] * 4


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (" the", "latin"), ("é", "latin"), ("naïve", "latin"), ("don't", "latin"), ("ﬁ", "latin"),
        ("ｆｕｌｌ", "latin"), ("ab_c", "code"), ("getName", "code"), (".append", "code"),
        ("():", "code"), ("==", "code"), ("</div>", "code"), ("HTTP", "latin"), ("The", "latin"),
        ("3.14", "digit"), ("٣", "digit"), ("½", "digit"), ("100%", "digit"), (" 7", "digit"),
        ("\n\n", "whitespace"), ("   ", "whitespace"), ("\u3000", "whitespace"),
        (".", "punctuation"), (" (", "punctuation"), ("—", "punctuation"), ("。", "punctuation"),
        ("🎉", "symbol"), (" →", "symbol"), ("€", "symbol"), ("привет", "cyrillic"),
        ("λόγος", "greek"), ("你好", "han"), ("々", "han"), ("カード", "kana"), ("の", "kana"),
        ("漢字の", "han"), ("한국", "hangul"), ("שלום", "hebrew"), ("مرحبا", "arabic"),
        ("नमस्ते", "devanagari"), ("ा", "devanagari"), ("ไทย", "thai"), ("বাংলা", "other"),
        ("\x02", "other"), ("", "other"), ("\u0301", "other"), ("привет_x", "cyrillic"),
    ],
)  # fmt: skip
def test_classes_by_hand(text: str, wanted: str) -> None:
    assert class_of_text(text) == wanted


@given(st.text(max_size=12))
def test_every_text_has_one_known_class(text: str) -> None:
    assert class_of_text(text) in TOKEN_CLASSES


def test_the_byte_alphabet_is_that_of_the_library() -> None:
    assert set(_BYTES) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(_BYTES.values()) == list(range(256))


def byte_level(folder: Path) -> Tokenizer:
    """A real byte-level BPE, trained and written by the library."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    made.train_from_iterator(TEXT, trainer)
    made.add_tokens([AddedToken("Ġplain", special=False), AddedToken("<|tool|>", special=False)])
    made.save(str(folder / "tokenizer.json"))
    return made


def with_head(folder: Path, **config: object) -> Tokens:
    save_file({"lm_head.weight": torch.zeros(4, 2)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return read_tokens(open_container(folder))


def test_byte_level_pieces_decode_as_the_library_decodes_them(tmp_path: Path) -> None:
    made = byte_level(tmp_path)
    end = made.token_to_id("<|endoftext|>")
    tokens = with_head(tmp_path, eos_token_id=end)
    assert tokens.pieces is not None
    broken = whole = 0
    for index in range(made.get_vocab_size()):
        text, partial = tokens.pieces.text(index)
        if index in tokens.pieces.literal:
            continue
        theirs = made.decode([index])
        assert partial == ("\ufffd" in theirs)
        assert text == theirs.replace("\ufffd", "")
        broken, whole = broken + partial, whole + (not partial)
    assert broken > 100 and whole > 200
    classes = tokens.classes(np.arange(made.get_vocab_size()))
    by_word = {word: classes[index] for word, index in made.get_vocab().items()}
    assert by_word["<|endoftext|>"] == "stop" and by_word["<|tool|>"] == "special"
    # An added token is written as it is: this Ġ is a letter, not a space.
    assert tokens.pieces.text(made.token_to_id("Ġplain"))[0] == "Ġplain"
    assert by_word["a"] == "latin" and by_word["Ġ"] == "whitespace" and by_word["Ã"] == "byte"
    assert {"cyrillic", "latin", "code", "digit", "byte"} <= set(classes)


def test_the_words_are_those_that_a_trace_remembers(tmp_path: Path) -> None:
    made = byte_level(tmp_path)
    tokens = with_head(tmp_path)
    assert tokens.of_trace(vocabulary_sha256(made.get_vocab())) and tokens.of_trace(None)
    assert not tokens.of_trace(vocabulary_sha256(made.get_vocab() | {"more": 1000}))


def test_sentencepiece_pieces_from_a_unigram_list(tmp_path: Path) -> None:
    words = ["<unk>", "</s>", "<0x41>", "<0xE2>", "▁the", "▁", "▁▁", "при", "▁你", "3", "▁=="]
    made = Tokenizer(
        models.Unigram([(w, -float(i)) for i, w in enumerate(words)], 0, byte_fallback=True)
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    made.add_special_tokens([AddedToken("<unk>"), AddedToken("</s>")])
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1]}')
    tokens = with_head(tmp_path)
    assert tokens.classes(np.arange(12)).tolist() == [
        "special", "stop", "byte", "byte", "latin", "whitespace", "whitespace", "cyrillic", "han",
        "digit", "code", None,
    ]  # fmt: skip
    assert tokens.pieces is not None and tokens.kinds.byte == {2, 3}
    for index in (4, 7, 8, 9):
        # After a first token the library keeps the space.
        assert made.decode([7, index])[3:] == tokens.pieces.text(index)[0]


def test_wordpiece_marks_continuations(tmp_path: Path) -> None:
    made = Tokenizer(
        models.WordPiece({"[UNK]": 0, "the": 1, "##3": 2, "##ми": 3}, unk_token="[UNK]")
    )
    made.add_special_tokens(["[UNK]"])
    made.save(str(tmp_path / "tokenizer.json"))
    tokens = with_head(tmp_path)
    assert tokens.classes(np.arange(4)).tolist() == ["special", "latin", "digit", "cyrillic"]


def write_gguf(path: Path, model: str, words: list[bytes], types: list[int]) -> Tokens:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(words)
    writer.add_token_types(types)
    writer.add_eos_token_id(0)
    writer.add_tensor("output.weight", np.zeros((len(words), 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read_tokens(open_container(path))


def test_gguf_words_by_model(tmp_path: Path) -> None:
    words = [b"</s>", b"<unk>", b"<0x0A>", "▁Haus".encode(), b"\n\n", b"[PAD5]", "ĠHaus".encode()]
    types = [3, 2, 6, 1, 4, 5, 1]
    spm = write_gguf(tmp_path / "spm.gguf", "llama", words, types)
    wanted = ["stop", "special", "byte", "latin", "whitespace", "special", "latin"]
    assert spm.classes(np.arange(7)).tolist() == wanted
    assert spm.pieces is not None and spm.pieces.text(6)[0] == "ĠHaus"
    bpe = write_gguf(tmp_path / "bpe.gguf", "gpt2", words, types)
    assert bpe.pieces is not None and bpe.pieces.text(6) == (" Haus", False)
    assert bpe.of_trace("another hash")  # a converter may have rewritten words
    other = write_gguf(tmp_path / "other.gguf", "rwkv", words, types)
    assert other.pieces is None and other.classes(np.arange(2)).tolist() == [None, None]


def test_no_tokenizer_no_classes(tmp_path: Path) -> None:
    tokens = with_head(tmp_path, eos_token_id=1)
    assert tokens.pieces is None and tokens.kinds.stop == {1}
    assert tokens.classes(np.array([0, 1])).tolist() == [None, None]


@pytest.mark.parametrize(
    "vocab", ['["a"]', "[[]]", "[3]", '{"a": "b"}', '{"a": -1}', '{"a": true}', "null", '"x"'],
)  # fmt: skip
def test_bad_vocabularies_are_refused(tmp_path: Path, vocab: str) -> None:
    (tmp_path / "tokenizer.json").write_text(f'{{"model": {{"vocab": {vocab}}}}}')
    with pytest.raises(UnreadableError, match="tokenizer file"):
        with_head(tmp_path)


def test_a_byte_level_piece_with_foreign_characters_is_taken_as_it_is() -> None:
    assert Pieces({0: "你"}, "byte_level").text(0) == ("你", False)


def test_estimates_by_class_are_counts_by_brute_force() -> None:
    """Eight sequences, three classes, one of them in two sequences only."""
    rng = np.random.default_rng(4)
    n = 240
    oracle, sequence = rng.integers(0, 4, n), np.repeat(np.arange(8), 30)
    ref = np.where(rng.random(n) < 0.8, oracle, 9)
    cand = np.where(rng.random(n) < 0.7, ref, 8)
    names = np.array(["latin", "code", "han"], dtype=object)[rng.integers(0, 2, n)]
    names[[3, 40]] = "han"
    names[7] = None
    inside = rng.random(n) < 0.9
    table = frame(
        list(ref), list(cand), list(oracle), list(sequence),
        oracle_class=names, oracle_in_vocabulary=inside,
    )  # fmt: skip
    estimates = estimate_all([table], Facts(trimmed=True), Resampling(resamples=800))
    found = {(e.measure, e.token_class): e for e in estimates if e.corpus == "code"}
    assert {e.token_class for e in estimates} == {None, "latin", "code", "han"}
    by_class = [e for e in estimates if e.token_class is not None]
    assert {e.measure for e in by_class} == set(CLASS_MEASURES)
    assert len(by_class) == 3 * len(CLASS_MEASURES) * 2  # per corpus, and per register
    for name in ("latin", "code", "han"):
        own = names == name
        a_ref, a_cand = (ref == oracle)[own].sum(), (cand == oracle)[own].sum()
        wanted = {
            "disagreement": (ref != cand)[own].mean(),
            "acceptance_ref": a_ref / own.sum(),
            "acceptance_cand": a_cand / own.sum(),
            "retention": a_cand / a_ref,
            "vocabulary_ceiling": inside[own].mean(),
        }
        for measure, value in wanted.items():
            estimate = found[measure, name]
            assert estimate.value == pytest.approx(value)
            assert estimate.positions == own.sum()
            assert estimate.sequences == len(set(sequence[own]))
    assert found["disagreement", "latin"].low is not None
    assert found["disagreement", "han"].low is None
    assert "2 sequences: an interval needs 5" in (found["disagreement", "han"].reason or "")
    # The classes' counts and the unclassed position's add up to the whole.
    total = sum(sums.to_numpy().sum(axis=0) for sums in sums_by_class(table).values())
    rest = sums_by_sequence(table[table["oracle_class"].isna()])[list(COUNTS)].to_numpy()
    whole = sums_by_sequence(table)[list(COUNTS)].to_numpy().sum(axis=0)
    np.testing.assert_allclose(total + rest.sum(axis=0), whole)


def test_the_interval_of_a_class_resamples_whole_sequences() -> None:
    """Where every position is of one class, its interval is that of all positions."""
    rng = np.random.default_rng(6)
    cand = rng.integers(1, 3, 200)
    rows = [i // 20 for i in range(200)]
    table = frame([1] * 200, list(cand), [1] * 200, rows, oracle_class="latin")
    found = estimate_all([table], Facts(), Resampling(resamples=300))
    for measure in CLASS_MEASURES:
        one, all_ = (pick(found, measure, name) for name in ("latin", None))
        assert one.model_copy(update={"token_class": None}) == all_


def pick(estimates: list[Estimate], measure: str, token_class: str | None) -> Estimate:
    return next(
        e
        for e in estimates
        if (e.measure, e.corpus, e.token_class) == (measure, "code", token_class)
    )


def test_a_whole_vocabulary_is_exact_and_proposals_tell_none() -> None:
    table = frame([1] * 60, [1] * 60, [1] * 60, [i // 10 for i in range(60)])
    full = pick(estimate_all([table], Facts(), Resampling()), "vocabulary_ceiling", None)
    assert (full.value, full.low, full.high) == (1, 1, 1)
    trim = pick(
        estimate_all([table], Facts(trimmed=True), Resampling()), "vocabulary_ceiling", None
    )
    assert trim.low is not None and trim.low < 1
    bare = Facts(vocabulary_known=False)
    told = pick(estimate_all([table], bare, Resampling()), "vocabulary_ceiling", None)
    assert told.value is None and "proposals do not tell" in (told.reason or "")
