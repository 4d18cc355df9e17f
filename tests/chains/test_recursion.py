"""What each kind of head reads of the slot before it, against layers run by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from audit.blocks import load_block_head
from audit.chains.drafting import Anchors, Drafts, draft_chains
from audit.chains.proposing import propose
from audit.chains.recursion import recursion_for
from audit.chains.verifying import Checker, accepted_slots, check_model
from audit.errors import MismatchError
from audit.files import open_container
from audit.heads import HeadOptions
from audit.traces import read_trace

from .conftest import CODE, MODEL

K = 3


@pytest.fixture(scope="module")
def trace():
    return read_trace(CODE)


def _head(name: str):
    return load_block_head(open_container(MODEL), name, HeadOptions())


def test_an_exit_runs_the_truncated_model(verifier, trace) -> None:
    """Layers 0 to 1, then 3, then norm and head, on the text and its own drafts."""
    head = _head("exit:2:3-3")
    from audit.chains.texts import trace_of

    tokens = trace.token[:40]
    states = trace_of(verifier, [tokens], [2])
    last = torch.tensor([11, 25, 39])
    drafts = draft_chains(
        head, recursion_for(head, verifier.model), states, Anchors(last, last), slots=K,
        valid=8192,
    )  # fmt: skip
    model = verifier.model.model
    for at, drafted in zip(last.tolist(), drafts.tokens.tolist(), strict=True):
        text = tokens[: at + 1]
        for wanted in drafted:
            with torch.no_grad():
                lower = model(input_ids=text.unsqueeze(0), output_hidden_states=True)
                state = lower.hidden_states[2]
                angles = model.rotary_emb(state, torch.arange(len(text)).expand(3, 1, -1))
                state = model.layers[3](state, position_embeddings=angles, attention_mask=None)
                logits = verifier.model.lm_head(model.norm(state))[0, -1]
            assert int(logits.argmax()) == wanted
            text = torch.cat([text, torch.tensor([wanted])])


def test_the_stage_of_the_own_state_is_the_users_to_say(trace) -> None:
    head = _head("mtp")
    last = torch.arange(20, 200, 3)
    anchors = Anchors(last - 1, last)
    usual, before = recursion_for(head, None), recursion_for(head, None, "pre_norm")
    assert "after its norm" in usual.said and "before its norm" in before.said
    one, other = (
        draft_chains(head, recursion, trace, anchors, slots=2, valid=8192).tokens
        for recursion in (usual, before)
    )
    assert torch.equal(one[:, 0], other[:, 0])
    assert not torch.equal(one[:, 1], other[:, 1])
    # The state before the norm, normed by hand, is the state after it.
    entering = usual.enter(usual.block.reads.of(trace)[:9].float().unsqueeze(0))
    following = head.block.embedding(trace.token[1:10]).unsqueeze(0)
    left, raw = usual.run(entering, following)
    norm = head.block.modules.get_submodule("decoder.model.norm")
    assert torch.allclose(norm(raw), left, atol=1e-5)


def test_proposals_against_a_dense_product(trace) -> None:
    head = _head("mtp")
    states = torch.randn(40, head.hidden_size, generator=torch.Generator().manual_seed(0)) * 3
    logits = states.double() @ head.rows.tile(0, head.rows.count).double().T
    ids, probability = propose(head, states, 8192)
    assert torch.equal(ids, logits.argmax(1))
    assert torch.allclose(probability.double(), logits.softmax(1).amax(1), atol=1e-5)
    ids, probability = propose(head, states, 5000)
    assert torch.equal(ids, logits[:, :5000].argmax(1))
    assert torch.allclose(probability.double(), logits[:, :5000].softmax(1).amax(1), atol=1e-5)


def test_acceptance_stops_at_the_end_of_a_text() -> None:
    tokens = torch.tensor([[5, 0, 7], [5, 6, 7], [5, 6, 7], [9, 6, 7]])
    greedy = torch.tensor([[5, 0, 7], [5, 6, 7], [5, 6, 8], [5, 6, 7]])
    drafted = torch.ones(4, 3, dtype=torch.bool)
    drafted[1, 2] = False
    found = accepted_slots(Drafts(tokens, drafted), greedy, ends=[0])
    assert found.int().tolist() == [[1, 1, 0], [1, 1, 0], [1, 1, 0], [0, 0, 0]]


def test_a_model_that_is_not_the_traces_is_refused(verifier, trace) -> None:
    """Oracles of another model: the drafts that agree with them are not what this model says."""
    last = torch.arange(20, 240, 2)
    drafts = torch.stack([torch.full_like(last, 77), torch.full_like(last, 78)], 1)
    foreign = replace(trace, oracle=torch.full_like(trace.oracle, 77))
    checker = Checker(verifier, foreign)
    checker.greedy(Anchors(last - 1, last), drafts)
    with pytest.raises(MismatchError, match="it is not its verifier"):
        check_model([checker])
