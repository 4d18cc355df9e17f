"""Anchors and controls must be able to fail: each is fed what it must refuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from audit.anchor import check_anchor, settle_anchors
from audit.chance import independent_share, upper
from audit.controls import run_controls
from audit.errors import MismatchError
from audit.heads import Head, load_head
from audit.measure import Measured, measure_trace
from audit.traces import Trace, read_trace
from tests.audit_files import V, head_weight, make_trace, write_head


@pytest.fixture
def ref(tmp_path: Path) -> Head:
    return load_head(write_head(tmp_path / "ref.safetensors", head_weight()))


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return read_trace(make_trace(tmp_path / "code.trace.safetensors", head_weight()))


def measured(ref: Head, trace: Trace) -> Measured:
    return measure_trace(ref, [], trace)


def controls(ref: Head, trace: Trace, m: Measured) -> dict[str, bool]:
    found = run_controls(ref, [trace], [m], V, device="cpu", seed=0)
    return {control.name: control.passed for control in found}


def test_all_pass_on_a_sound_audit(ref: Head, trace: Trace) -> None:
    found = controls(ref, trace, measured(ref, trace))
    assert found == dict.fromkeys(["self", "row subset", "shuffled rows", "shifted oracle"], True)


def test_a_pass_that_mixes_up_candidates_is_caught(
    ref: Head, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken comparison: the first two candidates' answers are off by one id, and the shuffled
    head answers like the reference."""
    from audit import controls as module

    honest = module.compare_heads

    def broken(*args: object, **options: object) -> object:
        own, answers = honest(*args, **options)  # type: ignore[arg-type]
        wrong = [replace(a, proposal=(a.proposal + 1) % V) for a in answers[:2]]
        return own, [*wrong, own]

    m = measured(ref, trace)
    monkeypatch.setattr(module, "compare_heads", broken)
    found = controls(ref, trace, m)
    assert not found["self"] and not found["row subset"] and not found["shuffled rows"]


def test_an_oracle_that_does_not_depend_on_the_position_is_caught(ref: Head, trace: Trace) -> None:
    """Positions that repeat after half the trace: the shifted oracle is then the right one."""
    m = measured(ref, trace)
    half = len(m.oracle) // 2
    again = replace(m.ref, proposal=m.ref.proposal[:half].repeat(2))
    repeated = replace(m, oracle=m.oracle[:half].repeat(2), ref=again)
    assert not controls(ref, trace, repeated)["shifted oracle"]


def test_an_own_head_must_reproduce_its_verifier(ref: Head, trace: Trace) -> None:
    m = measured(ref, trace)
    assert check_anchor(ref, trace, m, V).observed == 1.0
    wrong = m.ref.oracle_rank.clone()
    wrong[:2] = 2
    other = m.oracle.clone()
    other[:2] = (other[:2] + 1) % V
    off = replace(m, oracle=other, ref=replace(m.ref, oracle_rank=wrong))
    with pytest.raises(MismatchError, match=r"reproduces 98\.8 %.*99 % are needed"):
        check_anchor(ref, trace, off, V)
    assert check_anchor(ref, trace, off, V, minimum=0.98).passed


def test_masked_oracles_and_wide_ties_are_not_reproduced(ref: Head, trace: Trace) -> None:
    few = replace(trace, info=trace.info.model_copy(update={"vocabulary": V // 2}))
    with pytest.raises(MismatchError, match="only 200 ids are known"):
        measured(ref, few)
    blind = replace(trace, hidden=torch.zeros_like(trace.hidden))
    with pytest.raises(MismatchError, match="STATES_NOT_FOR_THIS_HEAD"):
        check_anchor(ref, blind, measured(ref, blind), V)
    masked = replace(ref, valid=V // 2)
    with pytest.raises(MismatchError, match="STATES_NOT_FOR_THIS_HEAD"):
        check_anchor(masked, trace, measured(masked, trace), V // 2)


def text_trace(trace: Trace, oracle: torch.Tensor) -> Trace:
    info = trace.info.model_copy(update={"oracle": "text"})
    return replace(trace, info=info, oracle=oracle)


def test_a_head_on_text_must_be_beyond_chance_somewhere(ref: Head, trace: Trace) -> None:
    n = trace.positions
    rng = torch.Generator().manual_seed(3)
    noise = torch.randint(0, V, (n,), generator=rng)
    half = torch.where(torch.arange(n) % 2 == 0, trace.oracle, noise)
    good, bad = text_trace(trace, half), text_trace(trace, noise)
    pairs = [(t, measure_trace(ref, [], t)) for t in (good, bad)]
    anchors = [check_anchor(ref, t, m, V) for t, m in pairs]
    assert [control.passed for control in anchors] == [True, False]
    settled = settle_anchors(ref, anchors, [m for _, m in pairs], V)
    assert all(control.passed for control in settled)
    assert "anchored on code" in settled[1].sentence
    with pytest.raises(MismatchError, match="near chance on every trace"):
        settle_anchors(ref, anchors[1:], [pairs[1][1]], V)


def test_chance_by_hand() -> None:
    # Proposals 1,1,2,3 and oracle 1,2,2,4: shares of 1: 1/2 x 1/4, of 2: 1/4 x 1/2.
    proposal, oracle = torch.tensor([1, 1, 2, 3]), torch.tensor([1, 2, 2, 4])
    assert independent_share(proposal, oracle) == pytest.approx(0.25)
    assert upper(0.25, 10**6) == pytest.approx(0.30) and upper(0.9, 4) == 1.0
