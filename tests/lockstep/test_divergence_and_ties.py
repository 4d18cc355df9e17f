"""KL, tie flips, identical weights, row subsets, and what must be refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from audit.errors import BadUsageError, MismatchError, UnreadableError
from audit.heads.head import PostHead, trim_rows
from audit.heads.rows import SelectedRows
from audit.lockstep import compare_heads
from audit.lockstep.subset import takes_rows_of
from tests.heads_in_memory import head_of
from tests.lockstep.small import cut_small


def normal(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch, 256, 6)


@pytest.mark.parametrize(
    ("scale", "post"),
    [
        (1.0, PostHead()),
        (1.0, PostHead(softcap=5.0)),
        # Saturated: nearly all mass on one id; a careless running maximum overflows here.
        (60.0, PostHead()),
        (1e-4, PostHead(scale=3.0)),
    ],
)
def test_kl_is_that_of_float64(scale: float, post: PostHead) -> None:
    ref = head_of(normal((300, 16), 0) * scale, post=post)
    cand = head_of(normal((300, 16), 1) * scale, post=post)
    states, oracle = normal((13, 16), 2), torch.zeros(13, dtype=torch.int64)
    _, (answer,) = compare_heads(ref, [cand], states, oracle, kl=True)
    assert answer.kl_nats is not None
    logs = []
    for head in (ref, cand):
        logits = states.double() @ head.rows.tile(0, 300).double().T * post.scale
        if post.softcap:
            logits = post.softcap * torch.tanh(logits / post.softcap)
        logs.append(logits.log_softmax(-1))
    dense = (logs[0].exp() * (logs[0] - logs[1])).sum(-1)
    # float32 logits of size x carry an error of about 1e-7 x.
    torch.testing.assert_close(answer.kl_nats, dense, rtol=1e-5, atol=1e-6 * max(1.0, scale))


def test_identical_heads_are_exactly_identical() -> None:
    weight, states = normal((300, 16), 0), normal((13, 16), 1)
    ref, copy = head_of(weight), head_of(weight.clone())
    own, (answer,) = compare_heads(ref, [copy], states, torch.zeros(13).long(), kl=True)
    assert answer.kl_nats is not None and torch.equal(answer.kl_nats, torch.zeros(13).double())
    assert torch.equal(own.proposal, answer.proposal) and answer.same_weights


def test_one_changed_weight_is_not_identical() -> None:
    weight = normal((300, 16), 0)
    changed = weight.clone()
    changed[299, 15] += 1e-3
    states = normal((5, 16), 1)
    _, (answer,) = compare_heads(head_of(weight), [head_of(changed)], states, torch.zeros(5).long())
    assert not answer.same_weights


def test_a_scale_changes_no_token_but_is_not_identical() -> None:
    weight, states = normal((300, 16), 0), normal((13, 16), 1)
    own, (answer,) = compare_heads(
        head_of(weight), [head_of(200 * weight)], states, torch.zeros(13).long()
    )
    assert torch.equal(own.proposal, answer.proposal) and not answer.same_weights


def test_a_flip_between_tied_ids_is_a_tie() -> None:
    # Position 0: the reference rates ids 1 and 200 equal (in different tiles), the candidate
    # prefers 200. Position 1: the candidate rates 3 and 5 equal, the reference prefers 5.
    ref, cand = torch.zeros(300, 2), torch.zeros(300, 2)
    ref[1, 0], ref[200, 0], cand[200, 0] = 2.0, 2.0, 1.0
    ref[5, 1], cand[3, 1], cand[5, 1] = 1.0, 4.0, 4.0
    states = torch.eye(2)
    own, (answer,) = compare_heads(head_of(ref), [head_of(cand)], states, torch.tensor([1, 5]))
    assert own.proposal.tolist() == [1, 5] and answer.proposal.tolist() == [200, 3]
    assert answer.tie_flip is not None and answer.tie_flip.tolist() == [True, True]
    assert own.tied.tolist() == [True, False] and answer.tied.tolist() == [False, True]


def test_a_flip_away_from_tied_ids_is_a_disagreement() -> None:
    ref, cand = torch.zeros(300, 1), torch.zeros(300, 1)
    ref[1], ref[200], cand[7] = 2.0, 2.0, 1.0
    _, (answer,) = compare_heads(head_of(ref), [head_of(cand)], torch.ones(1, 1), torch.tensor([1]))
    assert answer.tie_flip is not None and not answer.tie_flip.any()


def test_an_exact_row_subset_agrees_wherever_it_can() -> None:
    ref = head_of(normal((300, 16), 0))
    kept = torch.arange(0, 300, 3)
    subset = trim_rows(ref, kept.flip(0), ref.record)
    assert takes_rows_of(subset, ref)
    states = normal((40, 16), 1)
    own, (answer,) = compare_heads(ref, [subset], states, torch.zeros(40).long())
    covered = torch.isin(own.proposal, kept)
    assert covered.any() and not covered.all()
    assert torch.equal(own.proposal[covered], answer.proposal[covered])


def test_shuffled_rows_are_not_taken_for_a_subset() -> None:
    ref = head_of(normal((300, 16), 0))
    order = torch.arange(300).flip(0)
    shuffled = replace(ref, rows=SelectedRows(ref.rows, order))
    assert not takes_rows_of(shuffled, ref)
    states = normal((10, 16), 1)
    own, (answer,) = compare_heads(ref, [shuffled], states, torch.zeros(10).long())
    assert torch.equal(answer.proposal, 299 - own.proposal)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_non_finite_states_and_weights_fail_closed(value: float) -> None:
    weight, states = normal((300, 16), 0), normal((5, 16), 1)
    bad_states, bad_weight = states.clone(), weight.clone()
    bad_states[3, 2], bad_weight[250, 1] = value, value
    oracle = torch.zeros(5).long()
    with pytest.raises(UnreadableError, match=r"NON_FINITE.*1 of 5 states.*rows 3"):
        compare_heads(head_of(weight), [], bad_states, oracle)
    with pytest.raises(UnreadableError, match=r"NON_FINITE.*1 row of cand.*id 250"):
        compare_heads(head_of(weight), [head_of(bad_weight, "cand")], states, oracle)


def test_overflowing_logits_fail_closed() -> None:
    states = torch.tensor([[1.0], [3e38]])
    with pytest.raises(UnreadableError, match=r"NON_FINITE.*at 1 of 2 positions \(rows 1\)"):
        compare_heads(head_of(torch.full((4, 1), 10.0)), [], states, torch.zeros(2).long())


def test_no_positions_and_other_widths_are_refused() -> None:
    head = head_of(normal((4, 3), 0))
    with pytest.raises(BadUsageError, match="no positions"):
        compare_heads(head, [], torch.empty(0, 3), torch.empty(0).long())
    with pytest.raises(MismatchError, match="5 columns"):
        compare_heads(head, [], torch.ones(1, 5), torch.zeros(1).long())


def test_answers_depend_on_neither_tile_nor_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    ref, cand = head_of(normal((900, 16), 0)), head_of(normal((900, 16), 1))
    states, oracle = normal((33, 16), 2), torch.arange(33)
    seen = []
    for tile, chunk in ((256, 5), (512, 33), (4096, 8)):
        cut_small(monkeypatch, tile, chunk)
        own, (answer,) = compare_heads(ref, [cand], states, oracle)
        seen.append([own.proposal, own.oracle_rank, answer.proposal, answer.oracle_rank])
    for other in seen[1:]:
        assert all(torch.equal(a, b) for a, b in zip(seen[0], other, strict=True))


def test_a_wide_tie_excuses_nothing() -> None:
    """A head to which all ids are equal does not agree with everyone."""
    ref = head_of(normal((300, 16), 0))
    dead = head_of(torch.full((300, 16), 1e-4))
    states = normal((10, 16), 1)
    own, (answer,) = compare_heads(ref, [dead], states, torch.zeros(10).long())
    assert (answer.ties == 300).all() and (own.ties == 1).all()
    assert answer.tie_flip is not None and not answer.tie_flip.any()


@pytest.mark.parametrize("width", [2, 3, 8, 9])
def test_ties_are_counted_across_tiles(width: int) -> None:
    weight = torch.zeros(900, 1)
    weight[torch.linspace(0, 899, width).long()] = 2.0
    own, _ = compare_heads(head_of(weight), [], torch.ones(3, 1), torch.zeros(3).long())
    assert own.ties.tolist() == [width] * 3 and own.proposal.tolist() == [0] * 3


def test_another_rule_after_the_product_is_not_identical() -> None:
    weight, states = normal((300, 16), 0), normal((5, 16), 1)
    capped = head_of(weight.clone(), post=PostHead(softcap=5.0))
    _, (answer,) = compare_heads(head_of(weight), [capped], states, torch.zeros(5).long(), kl=True)
    assert not answer.same_weights and answer.kl_nats is not None and answer.kl_nats.min() > 0


def test_a_trim_that_drops_nothing_is_the_same_head() -> None:
    ref = head_of(normal((300, 16), 0))
    whole = trim_rows(ref, torch.arange(300), ref.record)
    _, (answer,) = compare_heads(ref, [whole], normal((5, 16), 1), torch.zeros(5).long())
    assert answer.same_weights


def test_a_candidate_never_decides_which_ids_count() -> None:
    weight, states = normal((300, 16), 0), normal((20, 16), 1)
    short = head_of(weight.clone(), valid=10)
    own, (answer,) = compare_heads(head_of(weight), [short], states, torch.zeros(20).long())
    assert torch.equal(own.proposal, answer.proposal) and int(own.proposal.max()) >= 10
