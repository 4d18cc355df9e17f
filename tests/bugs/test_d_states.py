"""Section D: what comes after the head, and whose states it reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from audit.blocks import BlockHead, BlockOptions, load_block_head
from audit.errors import AuditError
from audit.files import open_container
from audit.heads.options import HeadOptions
from audit.lockstep import compare_heads
from audit.traces import lookahead_rows
from tests.blocks.test_eagle3 import draft_tensors, speculators_folder
from tests.blocks.test_medusa import medusa_folder
from tests.blocks.tiny import random_trace, save_folder
from tests.bugs.use import compare, inspect, matrix, model, refused, told, trace, values

V, H = 40, 16
CAPPED = {"model_type": "gemma2", "final_logit_softcapping": 30.0, "rms_norm_eps": 1e-6}


def two(folder: Path, config: dict, other: dict, weight: torch.Tensor, near: torch.Tensor):
    """Two folders, of the reference and of a candidate."""
    ref = model(folder / "ref", config, lm_head__weight=weight)
    return ref, model(folder / "cand", other, lm_head__weight=near)


def test_bug_37_the_softcap(tmp_path: Path) -> None:
    """Cap 30, logits up to about 124: the token stays, the divergence changes."""
    weight = 12 * matrix(V, H)
    near = weight + 0.05 * matrix(V, H, 7)
    states = matrix(200, H, 1)
    assert 100 < float((states @ weight.T).max()) < 250
    place = trace(tmp_path / "t/code.trace.safetensors", weight, states)
    runs = []
    for name, config in (("with", CAPPED), ("without", {"model_type": "gemma2"})):
        ref, cand = two(tmp_path / name, config, config, weight, near)
        runs.append(compare(ref, cand, "--trace", place, "--kl", folder=tmp_path / name))
    capped, plain = (values(run) for run in runs)
    assert capped["disagreement"] == plain["disagreement"]
    # The oracle: softmax of c tanh(x / c) in float64.
    x, y = ((states.double() @ w.double().T) for w in (weight, near))
    p, q = ((30 * torch.tanh(z / 30)).log_softmax(1) for z in (x, y))
    assert capped["kl_nats"] == pytest.approx(float((p.exp() * (p - q)).sum(1).mean()), rel=1e-3)
    assert capped["kl_nats"] != pytest.approx(plain["kl_nats"], rel=0.05)
    assert runs[0]["reference"]["softcap"] == 30.0
    ref, cand = two(tmp_path / "lost", CAPPED, {"model_type": "gemma2"}, weight, near)
    run = compare(ref, cand, "--trace", place, folder=tmp_path / "lost")
    assert "softcap None, the reference's through 1 and 30.0" in told(run, "RULES_DIFFER")[0][1]


def test_bug_38_a_logit_scale_left_out(tmp_path: Path) -> None:
    weight = matrix(V, H)
    place = trace(tmp_path / "t/code.trace.safetensors", weight)
    ref, cand = two(
        tmp_path, {"model_type": "cohere", "logit_scale": 0.0625}, {"model_type": "cohere"},
        weight, weight + 0.01 * matrix(V, H, 3),
    )  # fmt: skip
    run = compare(ref, cand, "--trace", place, "--kl", folder=tmp_path)
    ((severity, sentence),) = told(run, "RULES_DIFFER")
    assert severity == "warning" and "greedy tokens do not change, probabilities do" in sentence
    granite = model(
        tmp_path / "g", {"model_type": "granite", "logits_scaling": 8.0}, lm_head__weight=weight
    )
    assert inspect(granite)["head"]["logit_scale"] == 0.125  # it divides
    odd = model(tmp_path / "o", {"model_type": "x", "my_logit_scaling": 9}, lm_head__weight=weight)
    ((severity, sentence),) = told(inspect(odd), "KEY_NOT_UNDERSTOOD")
    assert severity == "warning" and "my_logit_scaling" in sentence
    (odd / "generation_config.json").write_text('{"suppress_tokens": [3, 4]}')
    ((severity, sentence),) = told(inspect(odd), "SUPPRESSED_TOKENS")
    assert severity == "warning" and "2 tokens (3, 4)" in sentence


def normed_head(folder: Path, gain: torch.Tensor, kind: str = "llama") -> Path:
    weight = matrix(V, H)
    return model(
        folder, {"model_type": kind, "rms_norm_eps": 1e-6},
        lm_head__weight=weight, model__norm__weight=gain,
    )  # fmt: skip


def test_bug_39_states_from_before_the_norm(tmp_path: Path) -> None:
    """Gains that differ between channels: without the norm other tokens win."""
    gain = torch.linspace(-2, 3, H)
    head = normed_head(tmp_path / "m", gain)
    states = matrix(200, H, 1)
    normed = states * torch.rsqrt(states.square().mean(1, keepdim=True) + 1e-6) * gain
    oracle = (normed @ matrix(V, H).T).argmax(1)
    place = trace(tmp_path / "t/code.trace.safetensors", matrix(V, H), states, oracle=oracle)
    code_and_hint = refused("compare", head, head, "--trace", place)
    assert code_and_hint.startswith("STATES_NOT_FOR_THIS_HEAD")
    from tests.bugs.use import audit

    _, document = audit("compare", head, head, "--trace", place)
    assert "with the final norm applied it reproduces 100.0 %" in document["error"]["hint"]
    right = trace(
        tmp_path / "u/code.trace.safetensors", matrix(V, H), states, oracle=oracle, stage="pre_norm"
    )
    run = compare(head, head, "--trace", right, folder=tmp_path)
    assert next(c for c in run["controls"] if c["name"] == "anchor")["observed"] == 1


def test_bug_40_the_one_plus_convention(tmp_path: Path) -> None:
    """An inverted norm ranks the right token last; a mean gain near 0 tells of a missed + 1."""
    weight = matrix(V, H)
    states = matrix(200, H, 1)
    inverted = trace(
        tmp_path / "t/code.trace.safetensors", weight, -states,
        oracle=(states @ weight.T).argmax(1),
    )  # fmt: skip
    head = model(tmp_path / "m", {}, lm_head__weight=weight)
    message = refused("compare", head, head, "--trace", inverted)
    assert message.startswith("ANTI_CORRELATED") and "median rank of the right token 4" in message
    stored = 0.05 * matrix(1, H)[0]  # what a (1 + w) model stores
    read_as_is = told(inspect(normed_head(tmp_path / "a", stored)), "NORM_GAIN")
    assert read_as_is[0][0] == "warning" and "is it a (1 + w) norm" in read_as_is[0][1]
    as_meant = told(inspect(normed_head(tmp_path / "b", stored, "gemma2")), "NORM_GAIN")
    mean = 1 + float(stored.mean())
    assert as_meant == [("note", f"the final norm's mean gain is {mean:.2f} as applied")]


def test_bug_41_auxiliary_layers_off_by_one(tmp_path: Path) -> None:
    folder = speculators_folder(tmp_path / "d", draft_tensors())
    head = load_block_head(open_container(folder), "eagle3", HeadOptions())
    assert isinstance(head, BlockHead)
    assert head.block.conventions["states_entering_layers"] == [1, 2, 3]
    with pytest.raises(AuditError, match=r"layer_1|layers? .*1"):
        head.block.run(random_trace(layers=(2, 3, 4)))
    assert head.block.run(random_trace(layers=(1, 2, 3))).shape[1] == head.hidden_size


def test_bug_43_loss_at_a_later_draft_position_only(tmp_path: Path) -> None:
    """Medusa head 1 is damaged, head 0 is not: each draft position is audited as its own head."""
    folder, tensors = medusa_folder(tmp_path / "ref")
    noise = torch.randn(tensors["1.1.weight"].shape, generator=torch.Generator().manual_seed(3))
    damaged = tensors | {"1.1.weight": tensors["1.1.weight"] + noise}
    other = save_folder(tmp_path / "cand", {"medusa_num_heads": 5}, damaged)
    states = random_trace(lengths=(40, 40))
    flips = []
    for name in ("medusa:0", "medusa:1"):
        ref, cand = (
            load_block_head(open_container(place), name, HeadOptions(), None, BlockOptions())
            for place in (folder, other)
        )
        rows, _ = lookahead_rows(states, ref.lookahead)
        answers = [
            compare_heads(head, [], head.block.run(states)[rows], states.oracle[rows],
                          valid=head.vocabulary)[0].proposal
            for head in (ref, cand)
        ]  # fmt: skip
        flips.append(float((answers[0] != answers[1]).float().mean()))
    assert flips[0] == 0 and flips[1] > 0.2
