"""Stage and alignment as measurements: on the real traces of the sample, and on made-up norms."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from scipy import stats

from audit.dumps.alignment import (
    FAR,
    SHIFTS,
    Alignment,
    agreement,
    require_agreement,
    text_logits,
)
from audit.dumps.stage import measure_rms
from audit.dumps.strays import find_strays
from audit.errors import MismatchError
from audit.heads import FinalNorm, Head, load_head
from audit.traces import read_trace
from tests.dumps.conftest import MODEL, SAMPLE
from tests.dumps.writers import Real

TRACES = sorted((SAMPLE / "traces").glob("*.trace.safetensors"))


@pytest.fixture(scope="module")
def head() -> Head:
    return load_head(MODEL)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.split(".")[0])
@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_every_sample_trace_shows_its_alignment(head: Head, path: Path, shift: int) -> None:
    """German too, of which this code model knows next to nothing."""
    trace = read_trace(path)
    hidden = trace.hidden.float().roll(-shift, 0)
    found = text_logits(head, lambda rows: hidden[rows], trace.token, trace.sequence)
    assert found.shift == (shift or None) and found.shown == (shift == 0)


def test_the_evidence_is_the_difference_of_log_probabilities(head: Head, real: Real) -> None:
    """Against log-softmax over the whole vocabulary in float64."""
    token, hidden = real.tokens[1], real.post[1]
    found = text_logits(head, lambda rows: hidden[rows], token, torch.zeros_like(token))
    logits = hidden.double() @ head.rows.tile(0, 8192).double().T
    logp = logits.log_softmax(dim=1)
    for shift in (-2, -1, 1, 2):
        gains = [
            float(logp[t, token[t + 1]] - logp[t, token[t + 1 + shift]])
            for t in range(len(token) - 1)
            if 0 <= t + 1 + shift < len(token)
        ]
        values = torch.tensor(gains, dtype=torch.float64)
        wanted = float(values.mean() / (values.std() / len(values) ** 0.5))
        assert found.z[shift] == pytest.approx(wanted, abs=1e-4)


def test_alignment_never_reaches_into_another_text(head: Head) -> None:
    """Two texts of two tokens: one row each, and no neighbour but the row's own token."""
    token, sequence = torch.tensor([5, 6, 7, 8]), torch.tensor([0, 0, 1, 1])
    seen: list[int] = []

    def states(rows: torch.Tensor) -> torch.Tensor:
        seen.extend(rows.tolist())
        return torch.ones(len(rows), 192)

    found = text_logits(head, states, token, sequence)
    assert seen == [0, 2] and found.positions == 2
    assert found.z[1] == found.z[2] == found.z[-2] == 0.0 and found.z[-1] != 0.0


def test_agreement_by_hand() -> None:
    """Texts 1 2 3 4 and 9 8: the oracle is right at rows 0 and 1, and row 2's is its own token."""
    token = torch.tensor([1, 2, 3, 4, 9, 8])
    sequence = torch.tensor([0, 0, 0, 0, 1, 1])
    oracle = torch.tensor([2, 3, 3, 9, -1, 8])
    # row 3's next token would be of the other text; row 5 has none.
    assert agreement(oracle, token, sequence) == {-1: 2 / 5, 0: 2 / 3, 1: 0.0}
    with pytest.raises(MismatchError, match=r"ALIGNMENT: the oracle fits the text better .* \+1"):
        text = torch.arange(100)
        require_agreement(text + 2, text, torch.zeros(100, dtype=torch.int64), Path("x"))
    require_agreement(text + 1, text, torch.zeros(100, dtype=torch.int64), Path("x"))


def test_one_text_of_several_with_a_shifted_oracle_is_named() -> None:
    """The shifted one is an eighth of all: together the oracle fits where it should."""
    token, sequence = torch.arange(800), torch.arange(800) // 100
    oracle = token + 1
    require_agreement(oracle, token, sequence, Path("x"))
    oracle[300:400] += 1
    with pytest.raises(MismatchError, match=r"by \+1 \(in 1 of 8 texts, the first is number 3"):
        require_agreement(oracle, token, sequence, Path("x"))
    oracle[300:400] -= 2
    with pytest.raises(MismatchError, match=r"by -1 .* with 100 of its tokens instead of 0"):
        require_agreement(oracle, token, sequence, Path("x"))


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.split(".")[0])
@pytest.mark.parametrize("length", [16, 64, 400])
def test_no_honest_text_is_a_stray(head: Head, path: Path, length: int) -> None:
    trace = read_trace(path)
    rows = trace.position < length
    hidden = trace.hidden[rows].float()
    found = text_logits(head, lambda r: hidden[r], trace.token[rows], trace.sequence[rows])
    strays = find_strays(found)
    assert not strays.shifted and not strays.astray
    assert strays.shown + strays.untold == trace.sequences


def test_a_text_says_what_students_t_says() -> None:
    """Twelve gains against scipy's own test, at the error that 3 of them share with 4 shifts."""
    rng = torch.Generator().manual_seed(1)
    good = {s: 5 + torch.randn(12, generator=rng, dtype=torch.float64) for s in (*SHIFTS, *FAR)}
    for scale, shifted in ((2.0, True), (0.4, False)):
        bad = good | {1: -scale - torch.randn(12, generator=rng, dtype=torch.float64).abs()}
        bad[1][:4] += 1.5
        p = stats.ttest_1samp(bad[1].numpy(), 0, alternative="less").pvalue
        assert (p <= stats.norm.sf(3) / 12) == shifted
        gains = {s: torch.cat([good[s], bad[s], good[s]]) for s in good}
        found = Alignment({}, 36, gains, torch.arange(3).repeat_interleave(12))
        assert find_strays(found).shifted == ({1: 1} if shifted else {})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bias", [False, True])
def test_rms_of_a_norms_output(dtype: torch.dtype, bias: bool) -> None:
    rng = torch.Generator().manual_seed(0)
    raw = 7 * torch.randn(500, 256, generator=rng) * (0.1 + torch.rand(500, 1, generator=rng))
    gain = 0.01 + 3 * torch.rand(256, generator=rng)
    shift = torch.randn(256, generator=rng) if bias else None
    norm = FinalNorm(gain, 1e-6, shift)
    after, before = measure_rms(norm(raw).to(dtype), norm), measure_rms(raw.to(dtype), norm)
    assert after is not None and after.stage == "post_norm" and after.near_one == 1.0
    assert before is not None and before.stage == "pre_norm"
    mixed = measure_rms(torch.cat([norm(raw), raw]), norm)
    assert mixed is not None and mixed.stage is None


def test_a_gain_of_zeros_measures_nothing() -> None:
    gain = torch.ones(100)
    gain[:1] = 0
    assert measure_rms(torch.randn(9, 100), FinalNorm(gain, 1e-6)) is not None
    gain[:3] = 0
    assert measure_rms(torch.randn(9, 100), FinalNorm(gain, 1e-6)) is None
