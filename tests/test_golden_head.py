"""The LM head of a real-layout Qwen3.5 checkpoint: HF and llama.cpp's own GGUF of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from audit.heads import HeadOptions, load_candidate, load_head
from audit.heads.head import Head
from audit.lockstep import compare_heads


@pytest.fixture
def recorded(golden_qwen35: Path) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Post-norm trunk states [120, 256], greedy tokens [120] and top-2 logits [120, 2]."""
    found = load_file(golden_qwen35 / "expected.safetensors")
    states = found["trunk_hidden_post_norm"].flatten(0, 1)
    return states, found["verifier_greedy"].flatten().long(), found["verifier_top2"].flatten(0, 1)


@pytest.mark.parametrize("name", ["hf", "full-bf16.gguf"])
def test_recorded_states_give_the_recorded_tokens(
    golden_qwen35: Path, recorded: tuple[torch.Tensor, ...], name: str
) -> None:
    states, greedy, top2 = recorded
    own, _ = compare_heads(load_head(golden_qwen35 / name), [], states, greedy)
    assert torch.equal(own.proposal, greedy) and (own.oracle_rank == 1).all()
    torch.testing.assert_close(own.margin, top2[:, 0] - top2[:, 1], atol=1e-3, rtol=0)


def test_both_containers_hold_one_head(
    golden_qwen35: Path, recorded: tuple[torch.Tensor, ...]
) -> None:
    states, greedy, _ = recorded
    ref = load_head(golden_qwen35 / "hf")
    cand = load_candidate(golden_qwen35 / "full-bf16.gguf", HeadOptions(), ref)
    assert isinstance(cand, Head) and cand.record.sha256 == ref.record.sha256
    own, (answer,) = compare_heads(ref, [cand], states, greedy, kl=True)
    assert torch.equal(own.proposal, answer.proposal) and answer.same_weights
    assert ref.norm and cand.norm
    torch.testing.assert_close(ref.norm.gain, cand.norm.gain)


def test_a_draft_only_file_holds_the_trunks_head(golden_qwen35: Path) -> None:
    trunk = load_head(golden_qwen35 / "hf")
    draft = load_head(golden_qwen35 / "mtp-bf16.gguf")
    assert draft.record.sha256 == trunk.record.sha256
