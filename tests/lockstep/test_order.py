"""Trims merged from the reference's answers on parts, against a dense float64 reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.heads.head import trim_rows
from audit.lockstep import compare_heads
from audit.lockstep.order import parts_of
from tests.heads_in_memory import head_of
from tests.lockstep.small import cut_small

V, H, N = 1500, 24, 70


def data(seed: int, *, whole: bool = False):
    """With `whole`, weights and states of whole numbers: ties are common and sums exact."""
    rng = torch.Generator().manual_seed(seed)
    if whole:
        weight = torch.randint(-1, 2, (V, 4), generator=rng).float()
        return weight, torch.randint(-2, 3, (N, 4), generator=rng).float(), rng
    return torch.randn(V, H, generator=rng), torch.randn(N, H, generator=rng), rng


def dense(weight, states, ids, oracle, bias=None):
    """Proposal, margin, number of best ids, and rank of the oracle, by sorting everything."""
    logits = states.double() @ weight.double()[ids].T
    if bias is not None:
        logits += bias.double()[ids]
    best = logits.max(1).values
    first = [(row == top).nonzero()[0, 0] for row, top in zip(logits, best, strict=True)]
    proposal = ids[torch.stack(first)]
    two = torch.cat([logits, logits], 1) if len(ids) == 1 else logits
    two = two.sort(1, descending=True).values[:, :2]
    ties = (logits == best[:, None]).sum(1)
    rank = []
    for row, token in zip(logits, oracle, strict=True):
        place = (ids == token).nonzero()
        if len(place) == 0:
            rank.append(0)
        else:
            mine = row[place[0, 0]]
            rank.append(1 if mine == row.max() else max(2, 1 + int((row > mine).sum())))
    return proposal, two[:, 0] - two[:, 1], ties, torch.tensor(rank)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_trims_equal_brute_force(whole, with_bias):
    weight, states, rng = data(3, whole=whole)
    bias = torch.randint(-2, 3, (V,), generator=rng).float() if with_bias else None
    ref = head_of(weight, bias=bias)
    oracle = torch.randint(0, V, (N,), generator=rng)
    order = torch.randperm(V, generator=rng)
    kept = [order[:40], order[:300], order[:900], order[200:500], order[:1], order]
    trims = [trim_rows(ref, ids, ref.record) for ids in kept]
    own, answers = compare_heads(ref, trims, states, oracle)
    for ids, answer in zip([torch.arange(V), *kept], [own, *answers], strict=True):
        proposal, margin, ties, rank = dense(weight, states, ids.sort().values, oracle, bias)
        assert torch.equal(answer.proposal, proposal)
        assert torch.equal(answer.ties, ties) and torch.equal(answer.oracle_rank, rank)
        expected = margin.float() if len(ids) > 1 else torch.zeros(N)
        assert torch.allclose(answer.margin, expected, atol=1e-4)


@settings(max_examples=25)
@given(
    st.lists(st.sets(st.integers(0, 59), min_size=1), min_size=1, max_size=5), st.integers(0, 99)
)
def test_any_sets_of_ids(sets, seed):
    rng = torch.Generator().manual_seed(seed)
    weight = torch.randint(-1, 2, (60, 3), generator=rng).float()
    states = torch.randint(-2, 3, (9, 3), generator=rng).float()
    oracle = torch.randint(-1, 60, (9,), generator=rng)
    other = torch.randint(-1, 2, (60, 3), generator=rng).float()
    ref, own = head_of(weight), head_of(other)
    kept = [torch.tensor(sorted(ids)) for ids in sets]
    trims = [trim_rows(ref, ids, ref.record) for ids in kept]
    whole = torch.arange(60)
    first, answers = compare_heads(ref, [*trims, own], states, oracle)
    told = [(weight, ids) for ids in (whole, *kept)] + [(other, whole)]
    for (rows, ids), answer in zip(told, [first, *answers], strict=True):
        proposal, margin, ties, rank = dense(rows, states, ids, oracle)
        assert torch.equal(answer.proposal, proposal) and torch.equal(answer.ties, ties)
        assert torch.equal(answer.oracle_rank, rank)
        assert torch.equal(answer.margin, margin.float())


def test_nested_trims_make_one_part_more_than_there_are_trims():
    order = torch.randperm(V, generator=torch.Generator().manual_seed(5))
    trims = [order[:n].sort().values for n in (10, 100, 1000)]
    parts = parts_of(V, trims, valid=V, tile=256)
    ids = [torch.cat(tuple(part.tiles)) for part in parts]
    assert sorted(len(own) for own in ids) == [10, 90, 500, 900]
    assert torch.equal(torch.cat(ids).sort().values, torch.arange(V))
    for part, own in zip(parts, ids, strict=True):
        assert bool((own.diff() > 0).all()) and max(map(len, part.tiles)) <= 256
        for trim, keeps in zip(trims, part.keepers, strict=True):
            assert bool(torch.isin(own, trim).all() if keeps else ~torch.isin(own, trim).any())


def test_seventy_trims_are_told_apart():
    """2^70 combinations would not fit an integer; the few that occur do."""
    parts = parts_of(V, [torch.tensor([i]) for i in range(70)], valid=V, tile=256)
    assert len(parts) == 71 and sum(sum(part.keepers) for part in parts) == 70


def test_padding_comes_apart_from_the_ids_that_count():
    (part,) = parts_of(100, [], valid=90, tile=64)
    assert [ids.tolist() for ids in part.tiles] == [list(range(45)), list(range(45, 90))]
    assert [ids.tolist() for ids in part.padding] == [list(range(90, 100))] and part.keepers == ()


def test_no_product_but_the_references(monkeypatch):
    cut_small(monkeypatch, 512, N)
    weight, states, rng = data(6)
    ref = head_of(weight)
    done = []
    true = torch.mm

    def counted(a, b, **more):
        done.append(a.shape[0] * a.shape[1] * b.shape[1])
        return true(a, b, **more)

    monkeypatch.setattr(torch, "mm", counted)
    order = torch.randperm(V, generator=rng)
    trims = [trim_rows(ref, order[:n], ref.record) for n in (300, 600, 1200)]
    compare_heads(ref, trims, states, torch.zeros(N, dtype=torch.int64))
    assert sum(done) == N * V * H


@pytest.mark.parametrize(("columns", "positions"), [(64, 600), (2560, 130)])
def test_equal_rows_are_tied_whatever_stands_beside_them(columns, positions):
    """A row alone in its part is multiplied as it would be among others, to the last bit."""
    rng = torch.Generator().manual_seed(9)
    weight = torch.randn(V, columns, generator=rng)
    twins, others = torch.tensor([3, 700, 701]), torch.tensor([40, 900, 1400])
    weight[others] = weight[twins]
    states = torch.randn(positions, columns, generator=rng) + 3 * weight[twins].mean(0)
    ref = head_of(weight)
    oracle = torch.randint(0, V, (positions,), generator=rng)
    alone, _ = compare_heads(ref, [], states, oracle)
    assert alone.tied.double().mean() > 0.5 and bool((alone.ties[alone.tied] == 2).all())
    for kept in ([3], [40], [3, 700], [*range(50), 900], list(range(700)), [3, *range(300, 1450)]):
        trim = trim_rows(ref, torch.tensor(kept), ref.record)
        beside, _ = compare_heads(ref, [trim], states, oracle)
        for name in ("proposal", "tied", "ties", "margin", "oracle_rank"):
            assert torch.equal(getattr(alone, name), getattr(beside, name)), (kept, name)


def test_a_trim_that_lost_a_twin_disagrees_wherever_the_twin_was_proposed():
    """Which of two equal ids wins is chance only for a head that has them both."""
    weight, states, _ = data(10)
    weight[900] = weight[3]
    ref, oracle = head_of(weight), torch.zeros(N, dtype=torch.int64)
    states[: N // 2] += 4 * weight[3]
    lost, both = torch.arange(4, V), torch.arange(3, V)
    trims = [trim_rows(ref, ids, ref.record) for ids in (lost, both)]
    own, (without, with_both) = compare_heads(ref, trims, states, oracle)
    twin = own.proposal == 3
    assert int(twin.sum()) >= N // 2
    assert bool((without.proposal[twin] == 900).all()) and not bool(without.tie_flip.any())
    assert torch.equal(with_both.proposal[twin], own.proposal[twin])
    lower = weight.clone()
    lower[3] -= 1e-3 * states.mean(0).sign()
    _, (near,) = compare_heads(ref, [head_of(lower)], states, oracle)
    flips = twin & (near.proposal == 900)
    assert bool(flips.any()) and bool(near.tie_flip[flips].all())


def test_other_candidates_and_kl_are_what_they_are_without_trims():
    weight, states, rng = data(7)
    noisy = weight + 0.05 * torch.randn(V, H, generator=rng)
    ref, cand, same = head_of(weight), head_of(noisy), head_of(weight.clone())
    oracle = torch.randint(0, V, (N,), generator=rng)
    trim = trim_rows(ref, torch.randperm(V, generator=rng)[:321], ref.record)
    own, alone = compare_heads(ref, [cand, same], states, oracle, kl=True)
    again, beside = compare_heads(ref, [trim, cand, same], states, oracle, kl=True)
    assert torch.equal(own.proposal, again.proposal)
    for a, b in zip(alone, beside[1:], strict=True):
        assert torch.equal(a.proposal, b.proposal)
        assert torch.allclose(a.kl_nats, b.kl_nats, atol=1e-6)
    logits = [states.double() @ w.double().T for w in (weight, noisy)]
    logp, logq = (x.log_softmax(-1) for x in logits)
    exact = (logp.exp() * (logp - logq)).sum(-1)
    assert np.allclose(beside[1].kl_nats, exact, atol=1e-5)
    assert beside[2].same_weights and not beside[1].same_weights and beside[0].kl_nats is None
    assert not beside[0].same_weights


def test_padding_stays_masked_in_every_part():
    weight, states, rng = data(8)
    weight[1400:] *= 50.0
    ref = replace(head_of(weight), valid=1400)
    order = torch.randperm(V, generator=rng)
    trim = trim_rows(ref, torch.cat([order[:200], torch.arange(1400, V)]).unique(), ref.record)
    own, [answer] = compare_heads(ref, [trim], states, torch.zeros(N, dtype=torch.int64))
    assert int(own.proposal.max()) < 1400 and int(answer.proposal.max()) < 1400
    assert bool(own.pad_would_win.any()) and torch.equal(own.pad_would_win, answer.pad_would_win)
