"""The text of a cut: what parses, and what the errors say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.errors import BadUsageError, UnsupportedFormatError
from audit.forge import ENCODABLE, EXAMPLES, parse_cut


@pytest.mark.parametrize(
    ("text", "family", "title"),
    [
        ("q4_0", "fidelity", "Q4_0"),
        ("Q8-0", "fidelity", "Q8_0"),
        ("nvfp4", "fidelity", "NVFP4"),
        ("fp8", "fidelity", "FP8 (E4M3), a scale per row"),
        ("prune:0.5", "function", "50 % of MLP channels kept, by magnitude"),
        ("prune:0.5:magnitude", "function", "50 % of MLP channels kept, by magnitude"),
        ("prune:0.25:activation", "function", "25 % of MLP channels kept, by activation"),
        ("lowrank:0.25", "function", "low rank, 25 % of the weights, plain"),
        ("lowrank:0.125:calibrated", "function", "low rank, 12.5 % of the weights, calibrated"),
        ("noise:0.15", "noise", "noise of 15 %"),
        ("trim:cards/ranks.txt:32768", "vocabulary", "32,768 rows by ranks.txt"),
        ("trim:ranks.txt", "vocabulary", "the rows of ranks.txt"),
        ("trim:C:/ranks.txt:16", "vocabulary", "16 rows by ranks.txt"),
    ],
)
def test_cuts(text, family, title):
    cut = parse_cut(text)
    assert (cut.family, cut.title) == (family, title)
    assert parse_cut(str(cut)) == cut


def test_every_example_and_every_encoding_parses_to_its_own_text():
    for text in (*EXAMPLES, *(encoding.lower() for encoding in ENCODABLE)):
        assert str(parse_cut(text)) == text


@given(st.floats(0.0001, 0.9999))
def test_a_fraction_survives_its_text(keep):
    cut = parse_cut(f"prune:{keep!r}")
    assert parse_cut(str(cut)) == cut


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("q4", "there is no cut 'q4'", "did you mean q4_"),
        ("nvpf4", "there is no cut 'nvpf4'", "did you mean nvfp4"),
        ("low_rank:0.5", "there is no cut 'low_rank:0.5'", "did you mean lowrank"),
        ("", "there is no cut ''", "for instance q8_0"),
        ("q4_0:3", "q4_0 takes nothing after a colon", "write q4_0"),
        ("fp8:row", "fp8 takes nothing after a colon", "write fp8"),
        ("prune", "must say how much is kept", "prune:0.5:activation"),
        ("prune:50", "prune keeps 50 in 'prune:50'", "0.5 is half"),
        ("prune:0", "prune keeps 0", "a fraction over 0 and under 1"),
        ("prune:half", "'half' in 'prune:half' is not a number", "0.5"),
        ("prune:nan", "is not a number", "0.5"),
        ("prune:0.5:calibrated", "prune 'calibrated'", "magnitude or activation"),
        ("lowrank:0.5:activation", "lowrank 'activation'", "plain or calibrated"),
        ("lowrank:1", "lowrank keeps 1", "under 1"),
        ("noise", "must say how strong", "noise:0.15"),
        ("noise:15", "noise of strength 15", "at most 2"),
        ("noise:-0.1", "noise of strength -0.1", "over 0"),
        ("trim", "names no ranks card", "trim:ranks.txt:32768"),
        ("trim:ranks.txt:0", "keeps no rows", "trim:ranks.txt:32768"),
    ],
)
def test_errors(text, message, hint):
    with pytest.raises(BadUsageError) as error:
        parse_cut(text)
    assert message in error.value.message and hint in error.value.hint


def test_k_quants_name_the_tool_that_makes_them():
    with pytest.raises(UnsupportedFormatError, match="Q4_K_S is made by llama") as error:
        parse_cut("q4_k_s")
    assert error.value.hint == ("llama-quantize --output-tensor-type q4_k REF.gguf OUT.gguf Q4_K_S")
