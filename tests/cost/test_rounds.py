"""The arithmetic of rounds against simulation, hand-worked examples and the published figures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from audit.cost.machine import KvLayer, Load, Machine, Work, step_times
from audit.cost.rounds import (
    chain_acceptance,
    even_acceptance,
    even_tokens,
    rate,
    round_ms,
    shares_of,
    tokens_per_round,
)
from audit.cost.stored import planned_block
from audit.files import row_bytes

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden" / "study.json"
HIDDEN, INNER, ROWS, TRIMMED = 4096, 12288, 248320, 32768
BLOCK = [
    (INNER, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER), (HIDDEN, 2 * HIDDEN),
    (1024, HIDDEN), (1024, HIDDEN), (HIDDEN, HIDDEN), (2 * HIDDEN, HIDDEN),
]  # fmt: skip


def _bytes(encoding: str, rows: int) -> int:
    return planned_block(BLOCK, encoding) + rows * row_bytes(encoding, HIDDEN)


def test_published_bytes_follow_from_shapes_and_block_sizes() -> None:
    full, trimmed = _bytes("Q8_0", ROWS), _bytes("NVFP4", TRIMMED)
    # Q8_0: 34 bytes for 32 weights; NVFP4: 36 for 64.
    block = sum(a * b for a, b in BLOCK)
    assert block == 243269632
    assert full == (block + ROWS * HIDDEN) * 34 // 32
    assert trimmed == (block + TRIMMED * HIDDEN) * 36 // 64
    assert round(full / 1e9, 2) == 1.34
    assert round(trimmed / 1e9, 3) == 0.212
    assert round(ROWS / TRIMMED, 3) == 7.578


def test_published_figures_are_these() -> None:
    if not GOLDEN.is_file():
        pytest.skip(f"needs {GOLDEN}")
    facts = json.loads(GOLDEN.read_text())
    stored = facts["draft_head_bytes_per_token"]
    assert stored["full_head_q8_0_gb"] == round(_bytes("Q8_0", ROWS) / 1e9, 2)
    assert stored["trimmed_head_nvfp4_gb"] == round(_bytes("NVFP4", TRIMMED) / 1e9, 3)
    assert facts["row_ratio_248320_to_32768"] == round(ROWS / TRIMMED, 3)
    ref, cand = (one["acceptance"] for one in facts["acceptance_against_speed"])
    assert round(100 * (ref - cand), 1) == 3.1


def _gain(verify_ms: float, slots: int = 1) -> float:
    """Rate with the trimmed head over the rate with the full one, 3.1 points less accepted."""
    machine = Machine(bandwidth=1008.0, verify_ms=verify_ms)
    drafts = [Work(_bytes("Q8_0", ROWS), 0), Work(_bytes("NVFP4", TRIMMED), 0)]
    rates = []
    for number, acceptance in enumerate((0.667, 0.636)):
        steps = step_times(machine, drafts, number, None, slots, Load(), slots)
        assert steps.draft is not None and steps.verify == verify_ms
        whole = round_ms(steps.draft, steps.verify, slots)
        rates.append(rate(tokens_per_round(shares_of(acceptance, slots)), whole))
    return rates[1] / rates[0]


def test_a_trim_of_3_points_pays_only_where_the_head_is_much_of_a_round() -> None:
    assert _gain(5.0) > 1.1
    assert _gain(200.0) < 1.0
    # By hand: 1.636 (d_ref + v) = 1.667 (d_cand + v) where neither is faster.
    d_ref, d_cand = (1e3 * b / 1008e9 for b in (_bytes("Q8_0", ROWS), _bytes("NVFP4", TRIMMED)))
    turning = (1.636 * d_ref - 1.667 * d_cand) / 0.031
    assert _gain(turning) == pytest.approx(1.0, abs=1e-12)
    assert _gain(0.99 * turning) > 1.0 > _gain(1.01 * turning)


@pytest.mark.parametrize(("acceptance", "slots"), [(0.0, 3), (0.3, 1), (0.7, 4), (0.95, 8)])
def test_tokens_per_round_against_simulated_rounds(acceptance: float, slots: int) -> None:
    rng = np.random.default_rng(7)
    rounds = 40_000
    tokens = 0
    for drawn in rng.random((rounds, slots)) < acceptance:
        tokens += 1
        for accepted in drawn:
            if not accepted:
                break
            tokens += 1
    model = tokens_per_round(shares_of(acceptance, slots))
    assert tokens / rounds == pytest.approx(model, abs=5 * (slots + 1) / rounds**0.5 / 2)
    assert model == pytest.approx((1 - acceptance ** (slots + 1)) / (1 - acceptance))


def test_chain_acceptance_by_hand() -> None:
    shares = [0.5, 0.25, 0.0]
    assert tokens_per_round(shares) == 1.75
    assert chain_acceptance(shares) == 0.25


@pytest.mark.parametrize("slots", [1, 3, 8])
def test_even_acceptance_undoes_tokens_per_round(slots: int) -> None:
    for acceptance in (0.01, 0.4, 0.9, 1.0):
        tokens = tokens_per_round(shares_of(acceptance, slots))
        assert even_acceptance(tokens, slots) == pytest.approx(acceptance, abs=1e-12)
    assert even_acceptance(0.7, slots) == 0.0
    assert even_acceptance(slots + 1.01, slots) is None


def test_break_even_by_hand() -> None:
    # One slot, draft 2 ms, verify 10 ms, plain step 8 ms: a round must yield 1.5 tokens.
    needed = even_tokens(round_ms(2.0, 10.0, 1), 8.0)
    assert needed == 1.5
    assert even_acceptance(needed, 1) == pytest.approx(0.5)
    # A reference that yields 1.6 tokens in 16 ms: 12 ms need 1.2.
    assert even_tokens(12.0, 16.0, 1.6) == pytest.approx(1.2)


def test_a_steps_time_by_hand() -> None:
    work = Work(
        weight_bytes=1_000_000, parameters=500_000, expert_bytes=800_000,
        expert_parameters=400_000, expert_share=0.25, kv=(KvLayer(100), KvLayer(10, window=50)),
    )  # fmt: skip
    # Two users with one token each touch 1 - 0.75^2 = 7/16 of the experts: 350,000 bytes.
    read = 1_000_000 + 350_000 + 2 * (100 * 200 + 10 * 50)
    assert work.bytes_read(1, 200, 2) == read
    assert Machine(bandwidth=1.0).modelled(work, 1, Load(200, 2)) == pytest.approx(read / 1e6)
    # Arithmetic: 2 tokens x 600,000 weights x 2 operations at 1e9 per second take 2.4 ms.
    slow = Machine(bandwidth=1000.0, tflops=0.001)
    assert slow.modelled(work, 1, Load(200, 2)) == pytest.approx(2.4)


def test_measured_times_move_by_the_models_ratio() -> None:
    verifier = Work(900, 0, kv=(KvLayer(1),))
    drafts = [Work(100, 0), Work(25, 0)]
    machine = Machine(bandwidth=1.0, draft_ms=(4.0,), verify_ms=10.0, at=Load(context=100, users=1))
    here = step_times(machine, drafts, 1, verifier, 2, Load(100, 1), 2)
    assert (here.draft, here.verify, here.plain) == (1.0, 10.0, 10.0)
    there = step_times(machine, drafts, 0, verifier, 2, Load(1100, 1), 2)
    assert there.draft == 4.0
    assert there.verify == pytest.approx(10.0 * 2000 / 1000)
    bare = Machine(draft_ms=(4.0, 3.0), verify_ms=10.0, plain_ms=9.0)
    steps = step_times(bare, drafts, 1, None, 2, Load(5000, 3), 2)
    assert (steps.draft, steps.verify, steps.plain) == (3.0, 10.0, 9.0)
