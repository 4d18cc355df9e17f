"""Section E: ties, overflow, references that lose bits, ratios of ratios."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from audit.catalogue import CATALOGUE, OTHER_MEASURES
from audit.doubts import doubts_of
from audit.dumps.logits_file import LogitsFile
from audit.errors import UnreadableError
from audit.estimates import Facts, estimate_all
from audit.stats import Resampling
from audit.table import read_positions
from audit.verdict import judge
from tests.bugs.use import compare, matrix, refused, told, trace, values, write
from tests.dumps.writers import logits_file
from tests.test_doubts import frame as doubt_frame
from tests.test_doubts import guesses
from tests.test_estimates import by_name, frame

V, H = 24, 16


def test_bug_45_exact_ties(tmp_path: Path) -> None:
    """Two equal rows: the lower id wins everywhere, and a flip between them is no disagreement."""
    weight = matrix(V, H)
    weight[9] = weight[4]
    states = weight[4] + 0.01 * matrix(100, H, 2)
    assert bool(((states @ weight.T).argmax(1) == 4).all())
    swapped = weight.clone()
    swapped[4] *= 0.999  # now only row 9 keeps the old logit
    paths = [
        write(tmp_path / f"{name}.safetensors", lm_head__weight=rows)
        for name, rows in (("ref", weight), ("cand", swapped))
    ]
    place = trace(tmp_path / "t/code.trace.safetensors", weight, states)
    run = compare(*paths, "--trace", place, folder=tmp_path)
    table = read_positions(next((tmp_path / "ledger").glob("runs/*/positions.parquet")))
    assert set(table["ref"]) == {4} and set(table["cand"]) == {9}
    assert values(run)["disagreement"] == 0 and values(run)["retention"] == 1
    equal = compare(paths[0], paths[0], "--trace", place, folder=tmp_path / "same")
    assert "at 100 of 100 positions" in told(equal, "TIES")[0][1]


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_bug_46_states_that_are_not_finite(tmp_path: Path, value: float) -> None:
    """Neither the writer of a trace nor a comparison takes them, and none is dropped silently."""
    weight, states = matrix(V, H), matrix(100, H, 1)
    head = write(tmp_path / "h.safetensors", lm_head__weight=weight)
    place = trace(tmp_path / "t/code.trace.safetensors", weight, states)
    states[7, 3] = value
    with pytest.raises(UnreadableError, match=r"NON_FINITE.*1"):
        trace(tmp_path / "u/code.trace.safetensors", weight, states)
    with safe_open(place, "pt") as file:
        metadata = file.metadata()
    save_file(load_file(place) | {"hidden": states}, place, metadata=metadata)
    message = refused("compare", head, head, "--trace", place, "--ledger", tmp_path / "ledger")
    assert message.startswith("NON_FINITE") and "7" in message
    assert not list(tmp_path.glob("**/run.json"))


def test_bug_48_a_reference_in_sixteen_bits(tmp_path: Path) -> None:
    """A head against itself disagrees nowhere; logits of llama-perplexity end 16 nats down."""
    weight = matrix(V, H)
    head = write(tmp_path / "h.safetensors", lm_head__weight=weight)
    place = trace(tmp_path / "t/code.trace.safetensors", weight)
    run = compare(head, head, "--trace", place, "--kl", folder=tmp_path)
    assert values(run)["disagreement"] == 0 == values(run)["kl_nats"]
    logits = np.full((8, 4), -20.0)
    logits[4, 2] = logits[5, 1] = 0.0
    logits[6, 0], logits[6, 3] = 0.0, -1e-4  # nearer than half a step of 16 / 65535
    stored = [1, 2, 3, 0, 1, 2, 3, 0]
    file = LogitsFile(logits_file(tmp_path / "base.kld", [stored], [logits]))
    assert file.oracle(torch.tensor(stored)).tolist() == [-1, -1, -1, -1, 2, 1, -1, -1]
    settings, (note,) = file.report()
    assert settings["half_quantum_nats"] == pytest.approx(16 / 65535 / 2, rel=1e-3)
    assert "known up to 1.2e-04 nats; 1 tied within that have none" in note.sentence


def test_bug_49_a_reference_worse_than_its_cut() -> None:
    made = doubt_frame(guesses(0.4, 1), guesses(0.7, 2))
    estimates = estimate_all([made], Facts(), Resampling(resamples=400))
    (doubt,) = doubts_of("c", estimates, [made])
    assert doubt.code == "REFERENCE_BEATEN" and "which no cut does" in doubt.sentence
    verdict = judge(estimates, same_weights=False, trimmed=False, doubts=[doubt.sentence])
    assert verdict.kind == "undecided"  # a gate on it is undecided: exit 3
    assert not any("perplexity" in name for name in [*CATALOGUE, *OTHER_MEASURES])


def test_bug_50_the_mean_of_ratios() -> None:
    """7 prompts of 10 tokens at 0.2, one of 4,000 at 0.9: 88.8 % pooled, 28.75 % by prompt."""
    lengths, accepted = [10] * 7 + [4000], [2] * 7 + [3600]
    cand = np.concatenate(
        [np.r_[np.ones(a), np.zeros(n - a)] for a, n in zip(accepted, lengths, strict=True)]
    )
    ones = [1] * len(cand)
    sequence = np.repeat(np.arange(8), lengths).tolist()
    table = frame(ones, cand.astype(int).tolist(), ones, sequence)
    found = by_name(estimate_all([table], Facts(), Resampling(resamples=200)))["acceptance_cand"]
    assert found.value == pytest.approx(3614 / 4070) and found.sequences == 8
    assert found.macro == pytest.approx((7 * 0.2 + 0.9) / 8)


def test_bug_52_whether_the_bonus_token_counts() -> None:
    """Nothing here is a length of which one could ask: every rate is per proposed position."""
    for measure in CATALOGUE.values():
        words = f"{measure.name} {measure.title} {measure.formula}"
        if "tokens per round" in words or "length" in words:
            assert "bonus" in f"{words} {measure.caveat}", measure.name
        if measure.name.startswith("acceptance"):
            assert measure.below in ("positions", "covered")
