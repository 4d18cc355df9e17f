"""Section B: rows beyond the tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.bugs.use import compare, matrix, model, tokenizer, told, trace, values

REAL, H = 4, 6
WORDS = ["a", "b", "c", "d"]


def run_with_pads(folder: Path, states: torch.Tensor, real: torch.Tensor, pads: torch.Tensor):
    """Reference and candidate alike, of 4 real rows and 2 pad rows; the oracle is a real row's."""
    for name in ("ref", "cand"):
        place = model(
            folder / name, {"vocab_size": REAL + 2}, lm_head__weight=torch.cat([real, pads])
        )
        tokenizer(place, WORDS)
    oracle = (states @ real.T).argmax(1)
    place = trace(folder / "t/code.trace.safetensors", real, states, oracle=oracle)
    return compare(folder / "ref", folder / "cand", "--trace", place, folder=folder)


def negative_logits(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """States and rows of which every real logit lies between -4 and -1."""
    states = matrix(100, H, seed).abs() + 0.5
    rows = -torch.rand(REAL, H, generator=torch.Generator().manual_seed(seed)) - 0.1
    assert float((states @ rows.T).max()) < 0
    return states, rows


def test_bug_14_zero_pad_rows_win_where_all_logits_are_negative(tmp_path: Path) -> None:
    states, rows = negative_logits()
    run = run_with_pads(tmp_path, states, rows, torch.zeros(2, H))
    assert values(run)["acceptance_cand"] == 1 == values(run)["acceptance_ref"]
    ((severity, sentence),) = told(run, "PADDING_WINS")
    assert severity == "warning"
    assert sentence == "padding rows are masked; they would have won at 100 of 100 positions"
    assert "4 padding rows beyond id 3 masked" in told(run, "PADDING")[0][1]  # two in each head


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_bug_15_constant_pad_rows_flip_with_the_states_sign(tmp_path: Path, sign: float) -> None:
    """The pad's logit is -c * sum(x): out of the way for one sign of x, above all for the other."""
    states, rows = negative_logits()
    states, rows = sign * states, sign * rows
    assert bool(((states.sum(1) < 0) == (sign < 0)).all())
    run = run_with_pads(tmp_path, states, rows, torch.full((2, H), -1e4))
    assert values(run)["acceptance_cand"] == 1
    wins = [text for _, text in told(run, "PADDING_WINS")]
    assert bool(wins) == (sign < 0)
