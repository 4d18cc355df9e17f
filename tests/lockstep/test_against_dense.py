"""The streamed pass against a dense reference in float64, in the regimes that break streams.

Weights and states are small whole numbers in most regimes: every float32 sum of them is exact, so
proposals, ties and ranks must agree exactly, not nearly.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from audit.heads.head import Head, PostHead
from audit.lockstep import Answers, compare_heads
from tests.heads_in_memory import head_of
from tests.lockstep.small import cut_small


def whole_numbers(shape: tuple[int, ...], seed: int, span: int = 4) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randint(-span, span + 1, shape, generator=rng).float()


def dense_logits(head: Head, states: Tensor) -> Tensor:
    """float64 [N, vocabulary] before the post-head rule; -inf where there is no row."""
    logits = states.double() @ head.rows.tile(0, head.rows.count).double().T
    if head.bias is not None:
        logits += head.bias.double()
    full = torch.full((len(states), head.vocabulary), -torch.inf, dtype=torch.float64)
    full[:, head.ids] = logits
    return full


def check(head: Head, answers: Answers, states: Tensor, oracle: Tensor, valid: int) -> None:
    """Every field of the answers against sorting the dense logits."""
    logits = dense_logits(head, states)[:, :valid]
    best = logits.max(-1).values
    lowest = (logits == best[:, None]).int().argmax(-1)
    assert torch.equal(answers.proposal, lowest)
    top = logits.topk(2, dim=-1).values
    assert torch.equal(answers.tied, top[:, 0] == top[:, 1])
    post = [head.post(part.float()) for part in (top[:, 0], top[:, 1])]
    torch.testing.assert_close(answers.margin, post[0] - post[1], atol=1e-5, rtol=1e-5)
    known = (oracle >= 0) & torch.isin(oracle, head.ids)
    own = logits.gather(1, oracle.clamp(min=0)[:, None])
    rank = 1 + (logits > own).sum(-1)
    assert torch.equal(answers.oracle_rank, torch.where(known, rank, 0))


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many tiles and chunks even for small heads."""
    cut_small(monkeypatch, 256, 7)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("vocabulary", [2, 127, 128, 129, 256, 700, 1025])
@pytest.mark.parametrize("positions", [1, 7, 20])
def test_ragged_tiles_and_ties(vocabulary: int, positions: int) -> None:
    # Small whole numbers in few dimensions tie often: about half the positions here.
    ref = head_of(whole_numbers((vocabulary, 3), seed=1, span=1))
    cand = head_of(whole_numbers((vocabulary, 3), seed=2, span=1))
    states = whole_numbers((positions, 3), seed=3)
    oracle = torch.arange(positions) % vocabulary
    own, (other,) = compare_heads(ref, [cand], states, oracle)
    check(ref, own, states, oracle, vocabulary)
    check(cand, other, states, oracle, vocabulary)


@pytest.mark.usefixtures("small_tiles")
def test_every_candidate_shares_one_pass() -> None:
    ref = head_of(whole_numbers((600, 16), seed=0))
    cands = [head_of(whole_numbers((600, 16), seed=s), name=f"c{s}") for s in range(1, 21)]
    states, oracle = whole_numbers((15, 16), seed=99), torch.arange(15)
    own, answers = compare_heads(ref, cands, states, oracle)
    check(ref, own, states, oracle, 600)
    for cand, answer in zip(cands, answers, strict=True):
        check(cand, answer, states, oracle, 600)


@pytest.mark.usefixtures("small_tiles")
def test_bias_softcap_and_scale() -> None:
    post = PostHead(scale=0.25, softcap=30.0)
    bias = whole_numbers((300,), seed=5)
    head = head_of(whole_numbers((300, 8), seed=4), bias=bias, post=post)
    states, oracle = whole_numbers((9, 8), seed=6), torch.arange(9)
    own, _ = compare_heads(head, [], states, oracle)
    check(head, own, states, oracle, 300)


def test_softcap_saturates_without_changing_the_token() -> None:
    weight = torch.tensor([[1000.0], [999.0], [0.0]])
    plain, capped = head_of(weight), head_of(weight, post=PostHead(softcap=1.0))
    states, oracle = torch.ones(1, 1), torch.tensor([0])
    before, _ = compare_heads(plain, [], states, oracle)
    after, _ = compare_heads(capped, [], states, oracle)
    assert before.proposal.tolist() == after.proposal.tolist() == [0]
    assert before.margin.tolist() == [1.0] and not before.saturated.any()
    assert after.margin.tolist() == [0.0] and after.saturated.all() and not after.tied.any()


@pytest.mark.usefixtures("small_tiles")
def test_trimmed_head_in_any_tile() -> None:
    ids = torch.tensor([3, 250, 255, 256, 400, 699])
    ref = head_of(whole_numbers((700, 4), seed=1))
    cand = head_of(whole_numbers((6, 4), seed=2), ids=ids, vocabulary=700)
    states, oracle = whole_numbers((11, 4), seed=3), torch.arange(250, 261)
    _, (answer,) = compare_heads(ref, [cand], states, oracle)
    check(cand, answer, states, oracle, 700)
    assert (answer.oracle_rank > 0).tolist() == [i in {250, 255, 256} for i in range(250, 261)]


@pytest.mark.usefixtures("small_tiles")
def test_bfloat16_weights_are_used_as_they_are() -> None:
    rng = torch.Generator().manual_seed(0)
    weight = torch.randn(500, 64, generator=rng).bfloat16()
    states = torch.randn(30, 64, generator=rng)
    oracle = (states.double() @ weight.double().T).argmax(-1)
    own, _ = compare_heads(head_of(weight), [], states, oracle)
    assert torch.equal(own.proposal, oracle) and (own.oracle_rank == 1).all()


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_padding_rows_never_win_and_are_counted(sign: float) -> None:
    # Real logits are -1..-4, so zero rows would win; so would rows of -1e4 on negative states.
    real = torch.tensor([[-1.0], [-2.0], [-3.0], [-4.0]]) * sign
    pads = torch.tensor([[0.0], [-1e4 * sign]])
    states, oracle = torch.full((1, 1), sign), torch.tensor([0])
    head = head_of(torch.cat([real, pads]), valid=4)
    own, (other,) = compare_heads(head, [head_of(real)], states, oracle)
    assert own.proposal.tolist() == other.proposal.tolist() == [0]
    assert own.pad_would_win.tolist() == [True]


@pytest.mark.usefixtures("small_tiles")
@settings(max_examples=60, deadline=None)
@given(
    vocabulary=st.integers(1, 400),
    positions=st.integers(1, 12),
    width=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    span=st.integers(0, 3),
)
def test_any_shape(vocabulary: int, positions: int, width: int, seed: int, span: int) -> None:
    ref = head_of(whole_numbers((vocabulary, width), seed, span))
    cand = head_of(whole_numbers((vocabulary, width), seed + 1, span))
    states = whole_numbers((positions, width), seed + 2)
    oracle = torch.arange(positions) % vocabulary
    own, (other,) = compare_heads(ref, [cand], states, oracle)
    if vocabulary == 1:
        assert own.proposal.tolist() == [0] * positions and not own.tied.any()
        return
    check(ref, own, states, oracle, vocabulary)
    check(cand, other, states, oracle, vocabulary)
