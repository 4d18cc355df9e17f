"""Spearman's exact p and the near-tie AUC against brute force, scipy and the published study."""

from __future__ import annotations

import json
import math
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as sps

from audit.files.encodings import row_bytes
from audit.neartie import near_tie_estimate, weighted_auc
from audit.ranking import spearman
from audit.stats import Resampling
from tests.test_estimates import frame

STUDY = Path(__file__).resolve().parents[2] / "shared/golden/study.json"


@pytest.fixture
def study() -> dict:
    if not STUDY.exists():
        pytest.skip("needs the published study's facts")
    return json.loads(STUDY.read_text())


def test_seven_heads_in_perfect_order() -> None:
    found = spearman(np.arange(7.0), np.arange(7.0) ** 3)
    assert found.rho == pytest.approx(1) and found.p == pytest.approx(1 / 5040) and found.exact


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=5))
def test_against_brute_force_and_scipy_with_ties(pairs: list[tuple[int, int]]) -> None:
    x, y = (np.array(side, float) for side in zip(*pairs, strict=True))
    found = spearman(x, y)
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert found.rho is None and found.p is None
        return
    assert found.rho == pytest.approx(sps.spearmanr(x, y).statistic)
    rhos = [sps.spearmanr(x, np.array(order)).statistic for order in permutations(y)]
    assert found.p == pytest.approx(np.mean([rho >= found.rho - 1e-9 for rho in rhos]))


def test_many_pairs_are_drawn_and_near_scipy() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=14)
    y = x + rng.normal(size=14)
    found = spearman(x, y)
    exact = sps.spearmanr(x, y, alternative="greater")
    assert not found.exact and found.rho == pytest.approx(exact.statistic)
    assert found.p == pytest.approx(exact.pvalue, rel=0.2, abs=1e-4)
    assert found == spearman(x, y) and spearman(x[:1], y[:1]).rho is None


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.integers(0, 2)), min_size=1))
def test_auc_is_the_share_of_pairs(rows: list[tuple[int, bool, int]]) -> None:
    margin = np.array([row[0] for row in rows], float)
    flip = np.array([row[1] for row in rows])
    weight = np.array([row[2] for row in rows], float)
    won = possible = 0.0
    for i in range(len(rows)):
        for j in range(len(rows)):
            if flip[i] and not flip[j]:
                pair = weight[i] * weight[j]
                possible += pair
                won += pair * ((margin[i] < margin[j]) + 0.5 * (margin[i] == margin[j]))
    (found,) = weighted_auc(margin, flip, weight[None])
    if possible:
        assert found == pytest.approx(won / possible)
    else:
        assert math.isnan(found)


def test_near_ties_and_flips_anywhere() -> None:
    n = 400
    rng = np.random.default_rng(0)
    margin = rng.random(n).astype(np.float32)
    ones, rows = [1] * n, [i // 20 for i in range(n)]
    near = frame(ones, list(np.where(margin < 0.2, 2, 1)), ones, rows, ref_margin=margin)
    found = near_tie_estimate([near], "code", Resampling())
    assert found.value == 1.0
    anywhere = frame(ones, list(rng.integers(1, 3, n)), ones, rows, ref_margin=margin)
    found = near_tie_estimate([anywhere], "code", Resampling())
    assert found.low is not None and found.high is not None and found.low < 0.5 < found.high
    none = frame(ones, ones, ones, rows, ref_margin=margin)
    assert near_tie_estimate([none], "code", Resampling()).reason == "no disagreements"


def test_the_published_taxes_and_p_reproduce(study: dict) -> None:
    heads = study["acceptance_retention_percent"]
    for head in heads.values():
        tax = head["in_distribution"] - head["domain_shift"]
        assert tax == pytest.approx(head["shift_tax_points"], abs=0.11)
    perfect = spearman(np.arange(7.0), np.arange(7.0))
    assert perfect.p == pytest.approx(study["spearman_disagreement_vs_tax"]["exact_one_sided_p"])


def test_the_published_bytes_per_token_reproduce(study: dict) -> None:
    """The block's shape and ggml's block sizes give 1.34 GB and 0.212 GB, and rows 7.578."""
    facts = study["draft_head_bytes_per_token"]
    h, m = facts["hidden_size"], facts["intermediate_size"]
    block = 3 * h * m + h * 8192 + 2 * h * 1024 + h * h + 2 * h * h
    assert block == facts["draft_block_parameters"]
    sizes = {
        "full_head_q8_0_gb": ("Q8_0", facts["vocabulary"]),
        "trimmed_head_nvfp4_gb": ("NVFP4", facts["trimmed_vocabulary"]),
    }
    for name, (encoding, rows) in sizes.items():
        # Block sizes divide both parts, so the whole is as long as one row of all its weights.
        gigabytes = row_bytes(encoding, block + rows * h) / 1e9
        assert gigabytes == pytest.approx(facts[name], rel=2e-3)
    ratio = facts["vocabulary"] / facts["trimmed_vocabulary"]
    assert ratio == pytest.approx(study["row_ratio_248320_to_32768"], abs=1e-3)
