"""The MTP head of a checkpoint that llama.cpp converted and another implementation ran."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from audit.blocks import BlockHead, heads_in, load_block_head
from audit.files import open_container
from audit.heads.options import HeadOptions
from audit.lockstep import compare_heads
from audit.traces import lookahead_rows

from .tiny import make_trace, near

EXACT = ("hf", "mtp-bf16.gguf", "full-bf16.gguf")
CUTS = ("mtp-Q8_0.gguf", "mtp-Q4_0.gguf", "mtp-Q4_K_M.gguf")


@pytest.fixture(scope="module")
def golden(golden_qwen35: Path):
    """Folder, expectations, and the trace of its recorded tokens and states."""
    expected = load_file(golden_qwen35 / "expected.safetensors")
    tokens = expected["tokens"].long()
    embedding = load_file(golden_qwen35 / "hf/model.safetensors")["model.embed_tokens.weight"]
    flat = tokens.flatten()
    hidden = expected["trunk_hidden_post_norm"].flatten(0, 1)
    lengths = [tokens.shape[1]] * tokens.shape[0]
    trace = make_trace(hidden, lengths, flat, {0: embedding[flat].float()})
    return golden_qwen35, expected, trace


def mtp(folder: Path, name: str, base=None) -> BlockHead:
    head = load_block_head(open_container(folder / name), "mtp", HeadOptions(), base)
    assert isinstance(head, BlockHead)
    return head


def logits(head: BlockHead, trace, sequences: int) -> torch.Tensor:
    scores = head.block.run(trace) @ head.rows.tile(0, head.rows.count).T
    return scores.view(sequences, -1, head.rows.count)[:, :-1]


@pytest.mark.parametrize("name", EXACT)
def test_exact_files_give_the_expected_proposals(golden, name):
    folder, expected, trace = golden
    scores = logits(mtp(folder, name), trace, len(expected["tokens"]))
    assert torch.equal(scores.argmax(-1), expected["mtp_greedy"].long())
    assert float((scores.topk(2).values - expected["mtp_top2"]).abs().max()) < 1e-3


@pytest.mark.parametrize("name", CUTS)
def test_quantized_files_load_and_run(golden, name):
    folder, expected, trace = golden
    ref = mtp(folder, "hf")
    head = mtp(folder, name, ref)
    agreed = logits(head, trace, 3).argmax(-1) == expected["mtp_greedy"]
    assert 0.5 < float(agreed.float().mean()) < 1.0
    assert head.record.sha256 != ref.record.sha256
    assert head.record.stored_bytes < ref.record.stored_bytes


def test_the_two_bf16_files_are_one_head(golden):
    """Other tensors in the file do not matter, nor does the container to the proposals."""
    folder, _, trace = golden
    alone, whole = mtp(folder, "mtp-bf16.gguf"), mtp(folder, "full-bf16.gguf")
    assert alone.record.sha256 == whole.record.sha256
    assert torch.equal(alone.block.run(trace), mtp(folder, "hf").block.run(trace))


def test_rows_without_a_next_token_are_zero_and_not_judged(golden):
    folder, _, trace = golden
    head = mtp(folder, "mtp-bf16.gguf")
    states = head.block.run(trace)
    rows, _ = lookahead_rows(trace, head.lookahead)
    assert head.lookahead == 2
    assert bool((states[rows].abs().sum(1) > 0).all())
    left_out = torch.ones(len(states), dtype=torch.bool)
    left_out[rows] = False
    assert bool((states[left_out] == 0).all())


@pytest.mark.parametrize("name", ["hf", "full-bf16.gguf"])
def test_all_layers_as_an_exit_give_the_trunk(golden, name):
    """Linear attention included, whose value heads the converter reorders."""
    folder, expected, trace = golden
    head = load_block_head(open_container(folder / name), "exit:0:0-3", HeadOptions())
    assert near(head.block.run(trace), trace.hidden, 1e-4)
    assert head.lookahead == 1
    greedy = (head.block.run(trace) @ head.rows.tile(0, head.rows.count).T).argmax(-1)
    assert torch.equal(greedy, expected["verifier_greedy"].long().flatten())


def test_heads_in_each_file(golden):
    folder, _, _ = golden
    found = {name: heads_in(open_container(folder / name)) for name in (*EXACT, CUTS[0])}
    assert found["hf"] == found["full-bf16.gguf"] == ["lm", "mtp", "exit:2"]
    assert found["mtp-bf16.gguf"] == found["mtp-Q8_0.gguf"] == ["lm", "mtp"]


def test_disagreement_with_itself_is_zero(golden):
    """Reference from Hugging Face, candidates from GGUF: equal weights never disagree."""
    folder, _, trace = golden
    ref = mtp(folder, "hf")
    same, cut = mtp(folder, "full-bf16.gguf", ref), mtp(folder, "mtp-Q4_0.gguf", ref)
    rows, targets = lookahead_rows(trace, ref.lookahead)
    states = [head.block.run(trace)[rows] for head in (ref, same, cut)]
    oracle = trace.oracle[targets]
    answer, answers = compare_heads(ref, [same, cut], states[0], oracle, cand_states=states[1:])
    flips = [int((cand.proposal != answer.proposal).sum()) for cand in answers]
    assert flips[0] == 0 < flips[1]


def test_notes_say_what_was_decided(golden):
    folder, _, _ = golden
    notes = mtp(folder, "hf").record.notes
    assert "concat order: embedding_first" in notes
    assert "state stage: post_norm" in notes
    assert "position offset: 0" in notes
    assert any(note.startswith("mean norm gains") for note in notes)
