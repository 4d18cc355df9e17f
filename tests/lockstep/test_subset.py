"""Trims in files of their own: found by their weights, and only when every one is equal."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from audit.heads.head import Head
from audit.heads.rows import DenseRows
from audit.lockstep import compare_heads
from audit.lockstep import subset as subset_module
from audit.lockstep.subset import takes_rows_of
from tests.heads_in_memory import head_of

V, H, N = 3000, 16, 40


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


WEIGHT, BIAS = normal(V, H, seed=0), normal(V, seed=1)
KEPT = torch.randperm(V, generator=torch.Generator().manual_seed(2))[:1700].sort().values
REF = head_of(WEIGHT, bias=BIAS)


def trimmed(weight: Tensor | None = None, bias: Tensor | None = BIAS[KEPT]) -> Head:
    """The kept rows as a head of its own, with weights that share nothing with the reference's."""
    rows = DenseRows(WEIGHT[KEPT].clone() if weight is None else weight)
    return replace(REF, rows=rows, ids=KEPT, bias=bias)


def products(monkeypatch: pytest.MonkeyPatch, cand: Head) -> int:
    """Multiply-adds of a comparison beyond the reference's own."""
    done, true = [], torch.mm

    def counted(a: Tensor, b: Tensor, **more: Tensor) -> Tensor:
        done.append(a.shape[0] * a.shape[1] * b.shape[1])
        return true(a, b, **more)

    monkeypatch.setattr(torch, "mm", counted)
    compare_heads(REF, [cand], normal(N, H, seed=3), torch.zeros(N, dtype=torch.int64))
    return sum(done) - N * V * H


def test_a_trim_in_its_own_file_costs_no_product(monkeypatch: pytest.MonkeyPatch) -> None:
    assert takes_rows_of(trimmed(), REF) and products(monkeypatch, trimmed()) == 0


@pytest.mark.parametrize("row", [0, 849, 850, 1699])
def test_one_row_that_differs_makes_it_a_head_of_its_own(
    row: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subset_module, "_PIECE_BYTES", 850 * 4 * H)
    weight = WEIGHT[KEPT].clone()
    weight[row, 3] = torch.nextafter(weight[row, 3], torch.tensor(9.0))
    cand = trimmed(weight)
    assert not takes_rows_of(cand, REF)
    assert products(monkeypatch, cand) == N * len(KEPT) * H


def test_another_bias_is_another_head() -> None:
    other = BIAS[KEPT].clone()
    other[-1] += 1.0
    assert not takes_rows_of(trimmed(bias=other), REF)
    assert not takes_rows_of(trimmed(bias=None), REF)
    assert not takes_rows_of(trimmed(), head_of(WEIGHT))


def test_ids_beyond_the_reference_are_not_its_rows() -> None:
    short = replace(REF, rows=DenseRows(WEIGHT[:2000]), ids=torch.arange(2000), bias=BIAS[:2000])
    assert not takes_rows_of(trimmed(), short)


def test_damaged_weights_are_never_equal() -> None:
    """NaN on both sides is no agreement: each head is looked at, and the damage is told."""
    bad = WEIGHT.clone()
    bad[KEPT[5], 0] = torch.nan
    ref = head_of(bad, bias=BIAS)
    assert not takes_rows_of(replace(trimmed(), rows=DenseRows(bad[KEPT])), ref)


def test_a_whole_copy_keeps_its_own_product(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = replace(REF, rows=DenseRows(WEIGHT.clone()))
    assert not takes_rows_of(copy, REF) and products(monkeypatch, copy) == N * V * H


def test_it_answers_what_its_own_product_would() -> None:
    states, oracle = normal(N, H, seed=4), torch.arange(N) * 70
    _, [answer] = compare_heads(REF, [trimmed()], states, oracle)
    logits = states.double() @ WEIGHT[KEPT].double().T + BIAS[KEPT].double()
    assert torch.equal(answer.proposal, KEPT[logits.argmax(-1)])
    place = torch.searchsorted(KEPT, oracle).clamp_(max=len(KEPT) - 1)
    known = KEPT[place] == oracle
    rank = 1 + (logits > logits.gather(1, place[:, None])).sum(1)
    assert known.any() and not known.all()
    assert torch.equal(answer.oracle_rank, torch.where(known, rank, 0))
