"""FP8, noise, pruning and trimming against plain formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from audit.errors import BadUsageError, MismatchError
from audit.forge import tiles
from audit.forge.fp8 import quantize_fp8
from audit.forge.noise import add_noise
from audit.forge.prune import channel_scores, prune_mlp, zero_mlp
from audit.forge.trim import absolute_d2t, ids_of_card, offset_d2t, t2d_mask
from audit.heads.vocab_map import resolve_d2t


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# FP8


@pytest.mark.parametrize("per", ["row", "tensor"])
def test_fp8_is_the_nearest_of_all_256_values(per):
    weight = random(6, 40) * torch.tensor([1e-3, 1, 5, 0, 100, 1e6]).unsqueeze(1)
    made = quantize_fp8(weight, per)
    assert made.scales.shape == ((6, 1) if per == "row" else (1,))
    every = torch.arange(256).to(torch.uint8).view(torch.float8_e4m3fn).double().numpy()
    every = every[np.isfinite(every)]
    exact = weight.double().numpy() / made.scales.double().numpy()
    best = np.abs(exact[..., None] - every).min(-1)
    got = np.abs(exact - made.codes.double().numpy())
    assert np.all(got <= best + 1e-4) and made.codes.float().abs().max() == 448
    assert torch.equal(made.values(), made.codes.float() * made.scales)
    assert bool((made.values()[3] == 0).all())


# Noise


def test_noise_has_the_strength_asked_for_and_is_gaussian():
    weight = random(400, 300) * 0.07
    noise = add_noise(weight, 0.15, "a.weight", 1) - weight
    assert float(noise.std() / weight.square().mean().sqrt()) == pytest.approx(0.15, rel=0.02)
    within = float((noise.abs() < noise.std()).float().mean())
    assert within == pytest.approx(0.6827, abs=0.01) and abs(float(noise.mean())) < 1e-4


def test_noise_depends_on_seed_and_name_alone(monkeypatch):
    weight = random(30, 7)
    once = add_noise(weight, 0.5, "a", 1)
    monkeypatch.setattr(tiles, "TILE_WEIGHTS", 21)  # odd: a draw of 32 bits is left over per tile
    assert torch.equal(add_noise(weight, 0.5, "a", 1), once)
    assert not torch.equal(add_noise(weight, 0.5, "a", 2), once)
    assert not torch.equal(add_noise(weight, 0.5, "b", 1), once)
    assert torch.equal(add_noise(torch.zeros(3, 7), 0.5, "a", 1), torch.zeros(3, 7))


# Pruning


def mlp(x, gate, up, down):
    """In float64: sums of another order, over fewer channels, round in another way."""
    x, gate, up, down = (matrix.double() for matrix in (x, gate, up, down))
    return (torch.nn.functional.silu(x @ gate.T) * (x @ up.T)) @ down.T


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 24), st.floats(0.01, 1.0), st.integers(0, 1000))
def test_narrow_and_zeroed_mlp_are_one_function_and_nothing_else_changes(channels, keep, seed):
    assume(keep * channels >= 0.5)
    gate, up, down = (
        random(channels, 8, seed=seed),
        random(channels, 8, seed=seed + 1),
        random(8, channels),
    )
    scores = channel_scores(gate, up, down)
    narrow = prune_mlp(gate, up, down, keep, scores)
    zeroed = zero_mlp(gate, up, down, keep, scores)
    assert len(narrow.kept) == max(1, round(keep * channels))
    assert torch.equal(narrow.kept, zeroed.kept) and zeroed.down.shape == down.shape
    left_out = [c for c in range(channels) if c not in narrow.kept]
    assert not left_out or scores[left_out].max() <= scores[narrow.kept].min()
    x = random(5, 8, seed=9)
    want = mlp(x, gate[narrow.kept], up[narrow.kept], down[:, narrow.kept])
    torch.testing.assert_close(mlp(x, narrow.gate, narrow.up, narrow.down), want)
    torch.testing.assert_close(mlp(x, zeroed.gate, zeroed.up, zeroed.down), want)


def test_magnitude_does_not_change_when_a_factor_moves_between_matrices():
    gate, up, down = random(12, 8), random(12, 8, seed=1), random(8, 12, seed=2)
    factor = torch.linspace(0.1, 10, 12)
    moved = channel_scores(gate, up * factor[:, None], down / factor)
    torch.testing.assert_close(moved, channel_scores(gate, up, down), rtol=1e-5, atol=0)


def test_activation_score_is_the_rms_contribution_of_a_channel():
    gate, up, down = random(12, 8), random(12, 8, seed=1), random(8, 12, seed=2)
    acts = random(50, 12, seed=3)
    scores = channel_scores(gate, up, down, "activation", activations=acts)
    for c in range(12):
        alone = torch.outer(acts[:, c], down[:, c]).double()
        assert float(scores[c]) == pytest.approx(
            float(alone.square().sum(1).mean().sqrt()), rel=1e-5
        )
    moment = acts.T @ acts / 50
    for given_moment in (moment, moment.diagonal()):
        same = channel_scores(gate, up, down, "activation", second_moment=given_moment)
        torch.testing.assert_close(same, scores, rtol=1e-5, atol=0)


def test_pruning_refuses_what_it_can_not_do():
    gate, up, down = random(12, 8), random(12, 8), random(8, 12)
    with pytest.raises(
        MismatchError, match=r"gate \[12, 8\], up \[12, 8\] and down \[12, 8\] are no MLP"
    ):
        channel_scores(gate, up, gate)
    with pytest.raises(BadUsageError, match="by activation needs what enters the down projection"):
        channel_scores(gate, up, down, "activation")
    with pytest.raises(MismatchError, match="have 8 channels, the MLP has 12"):
        channel_scores(gate, up, down, "activation", activations=random(3, 8))
    scores = channel_scores(gate, up, down)
    with pytest.raises(BadUsageError, match="0 of the channels can not be kept"):
        prune_mlp(gate, up, down, 0.0, scores)
    assert len(prune_mlp(gate, up, down, 0.4, scores, multiple=4).kept) == 4


# Trimming


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_both_maps_read_back_as_the_same_ids(data):
    vocabulary = data.draw(st.integers(2, 60))
    chosen = data.draw(st.sets(st.integers(0, vocabulary - 1), min_size=1, max_size=vocabulary - 1))
    ids = torch.tensor(sorted(chosen))
    t2d = t2d_mask(ids, vocabulary)
    read = resolve_d2t(offset_d2t(ids), vocabulary, t2d, "auto", "x")  # type: ignore[arg-type]
    assert torch.equal(read.ids, ids) and t2d.dtype == torch.bool
    assert torch.equal(absolute_d2t(ids), ids)
    offsets = offset_d2t(ids)
    assert bool((offsets >= 0).all()) and bool(
        (offsets.diff() >= 0).all()
    )  # as EAGLE-3 writes them


def test_a_card_gives_its_first_distinct_ids(tmp_path):
    card = tmp_path / "ranks.txt"
    card.write_text("5 3 5 9 0 3 7")
    assert ids_of_card(card, 3, 10).tolist() == [3, 5, 9]
    assert ids_of_card(card, None, 10).tolist() == [0, 3, 5, 7, 9]
    with pytest.raises(
        BadUsageError, match=r"names 5 distinct ids \(2 of its 7 entries are repeated\), 6"
    ):
        ids_of_card(card, 6, 10)
    with pytest.raises(MismatchError, match="outside 0"):
        ids_of_card(card, 3, 8)
