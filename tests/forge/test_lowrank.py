"""Low rank against scipy's SVD and against a search for something better."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.errors import BadUsageError, MismatchError, UnreadableError
from audit.forge import tiles
from audit.forge.lowrank import low_rank, rank_for, second_moment_of


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def factors(weight, rank, moment=None) -> np.ndarray:
    moment = None if moment is None else torch.from_numpy(moment)
    left, right = low_rank(torch.from_numpy(weight).float(), rank, moment).factors()
    assert left.shape == (len(weight), rank) and right.shape == (rank, weight.shape[1])
    return left.double().numpy() @ right.double().numpy()


def output_error(weight, product, states) -> float:
    return float(np.square(states @ (weight - product).T).sum())


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 30), st.integers(2, 12), st.integers(0, 99), st.data())
def test_plain_is_the_truncated_svd(rows, columns, seed, data):
    rank = data.draw(st.integers(1, min(rows, columns)))
    weight = random(rows, columns, seed=seed)
    u, s, vt = scipy.linalg.svd(weight, full_matrices=False)
    best = np.sqrt(np.square(s[rank:]).sum())
    got = np.linalg.norm(weight - factors(weight, rank))
    assert got == pytest.approx(best, abs=1e-5 * np.linalg.norm(weight))
    if best > 1e-3 and (rank == len(s) or s[rank - 1] - s[rank] > 1e-2):
        np.testing.assert_allclose(
            factors(weight, rank), (u[:, :rank] * s[:rank]) @ vt[:rank], atol=1e-3
        )


def test_calibrated_is_the_closed_form_with_the_symmetric_root():
    """min ||(W - P) S^1/2|| by another root than the one in the code."""
    weight = random(20, 8)
    states = random(400, 8, seed=1) * np.geomspace(1, 30, 8)
    moment = states.T @ states / len(states)
    root = scipy.linalg.sqrtm(moment).real
    u, s, vt = scipy.linalg.svd(weight @ root)
    best = (u[:, :3] * s[:3]) @ vt[:3] @ np.linalg.inv(root)
    np.testing.assert_allclose(factors(weight, 3, moment), best, atol=2e-4)


def test_no_search_finds_a_better_calibrated_product():
    weight = random(6, 5)
    states = random(200, 5, seed=1) * np.array([9.0, 5.0, 1.0, 0.3, 0.1])
    ours = output_error(weight, factors(weight, 2, states.T @ states / 200), states)

    def loss(flat: np.ndarray) -> float:
        return output_error(weight, flat[:12].reshape(6, 2) @ flat[12:].reshape(2, 5), states)

    found = [
        scipy.optimize.minimize(
            loss, random(22, seed=s), method="BFGS", options={"maxiter": 2000}
        ).fun
        for s in range(5)
    ]
    assert ours <= min(found) * (1 + 1e-4)
    assert min(found) == pytest.approx(ours, rel=1e-2)  # the search did get there


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 999), st.integers(1, 5), st.integers(1, 60))
def test_calibrated_never_does_worse_on_its_own_states(seed, rank, n):
    """Also with fewer states than columns, where only the ridge makes the moment invertible."""
    weight = random(16, 6, seed=seed)
    states = random(n, 6, seed=seed + 1) * np.geomspace(1, 50, 6)
    moment = second_moment_of(torch.from_numpy(states)).numpy()
    np.testing.assert_allclose(moment, states.T @ states / n, rtol=1e-4, atol=1e-3)
    calibrated = output_error(weight, factors(weight, rank, moment), states)
    plain = output_error(weight, factors(weight, rank), states)
    scale = float(np.square(states @ weight.T).sum())
    assert calibrated <= plain * (1 + 1e-6) + 1e-5 * scale


def test_white_states_calibrate_to_the_plain_cut_and_tiles_change_nothing(monkeypatch):
    weight = random(50, 8)
    plain = factors(weight, 3)
    np.testing.assert_allclose(factors(weight, 3, np.eye(8) * 7), plain, atol=1e-5)
    monkeypatch.setattr(tiles, "_PRODUCT_WEIGHTS", 24)
    np.testing.assert_allclose(factors(weight, 3), plain, atol=1e-5)


def test_ranks():
    assert rank_for(0.5, 640, 2048, "parameters") == 243
    assert 243 * (640 + 2048) <= 0.5 * 640 * 2048 < 244 * (640 + 2048)
    assert rank_for(0.5, 640, 2048, "singular_values") == 320
    assert rank_for(0.25, 262144, 640, "parameters") == 159  # a tall head: nearly 0.25 * 640
    assert rank_for(0.15, 10, 10, "parameters") == 1  # 0.75, and no rank is lower
    with pytest.raises(BadUsageError, match="nearer to rank 0") as error:
        rank_for(1e-9, 10, 10, "parameters")
    assert error.value.hint == "keep at least 0.2"  # 20 weights of 100


def test_refusals():
    weight = torch.from_numpy(random(6, 5)).float()
    with pytest.raises(BadUsageError, match="rank 6 for a matrix of 6 x 5") as error:
        low_rank(weight, 6)
    assert error.value.hint == "a rank lies from 1 to 5"
    with pytest.raises(MismatchError, match=r"second moment is \[4, 4\], the matrix has 5 columns"):
        low_rank(weight, 2, torch.eye(4))
    with pytest.raises(UnreadableError, match="NaN or infinity, or is zero"):
        low_rank(weight, 2, torch.zeros(5, 5))
    with pytest.raises(UnreadableError, match="negative eigenvalues"):
        low_rank(weight, 2, torch.diag(torch.tensor([5.0, 5, 5, 5, -1])))
    with pytest.raises(BadUsageError, match="no states to calibrate on"):
        second_moment_of(torch.zeros(0, 5))
