"""Section C: the wrong head, the wrong scale, the wrong precision. Bare projections."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from audit.estimates import Facts, estimate_all
from audit.stats import Resampling
from audit.verdict import judge
from tests.bugs.use import (
    compare,
    inspect,
    matrix,
    model,
    refused,
    told,
    trace,
    values,
    write,
)
from tests.heads.files import gguf_file
from tests.packed.writers import fp4_case
from tests.test_estimates import frame

V, H = 24, 16


def pair(folder: Path, cand: torch.Tensor, ref: torch.Tensor | None = None):
    """A run of a candidate beside a reference that is right everywhere."""
    weight = matrix(V, H) if ref is None else ref
    paths = [
        write(folder / f"{name}.safetensors", lm_head__weight=value)
        for name, value in (("ref", weight), ("cand", cand))
    ]
    place = trace(folder / "t/code.trace.safetensors", weight)
    return compare(*paths, "--trace", place, "--kl", folder=folder)


def test_bug_17_an_fp8_head_without_its_scales(tmp_path: Path) -> None:
    codes = matrix(8, 4).to(torch.float8_e4m3fn)
    scales = torch.arange(1, 9).view(8, 1) / 100
    path = tmp_path / "h.safetensors"
    save_file({"lm_head.weight": codes}, path)
    assert refused("inspect", path).startswith("SCALE_MISSING: lm_head holds packed codes without")
    save_file({"lm_head.weight": codes, "lm_head.weight_scale": scales}, path)
    norms = (codes.float() * scales).norm(dim=1)
    assert inspect(path)["row_norm_median"] == pytest.approx(float(norms.median()), rel=1e-6)


def test_bug_18_weights_two_hundred_times_too_large(tmp_path: Path) -> None:
    run = pair(tmp_path, 200 * matrix(V, H))
    assert values(run)["disagreement"] == 0 and values(run)["kl_nats"] > 1
    ((severity, sentence),) = told(run, "SCALE_SUSPECT")
    assert severity == "warning" and "row norms are 200 times the reference's" in sentence
    assert "changes no greedy token, but probabilities" in sentence


def test_bug_20_half_loaded_nvfp4_scales(tmp_path: Path) -> None:
    case = fp4_case(19, 80, "ct-nvfp4")
    scales = case.tensors["weight_scale"].view(torch.uint8).clone()
    scales[3, 1] = 0x7F  # NaN in E4M3
    case.tensors["weight_scale"] = scales.view(torch.float8_e4m3fn)
    message = refused("inspect", case.write(tmp_path))
    assert "NON_FINITE: 1 row of" in message and "ids 3 to 3" in message


def test_bug_21_the_ignore_list_is_not_honoured(tmp_path: Path) -> None:
    case = fp4_case(19, 80, "ct-nvfp4")
    assert case.quantization is not None
    case.quantization["ignore"] = ["lm_head"]
    message = refused("inspect", case.write(tmp_path / "packed"))
    assert message.startswith("DECLARED_VS_STORED") and "lm_head is not packed" in message
    settings = {"quant_method": "gptq", "bits": 4, "lm_head": True}
    plain = model(
        tmp_path / "plain", {"quantization_config": settings}, lm_head__weight=matrix(V, H)
    )
    message = refused("inspect", plain)
    assert message.startswith("DECLARED_VS_STORED") and "packed (gptq)" in message


def test_bug_25_a_hard_cut_that_costs_nothing() -> None:
    """3 flips of 10, nearly all where the reference is wrong too: D is large, harm is none.

    20 sequences of 50: in each 15 flips, of which 13 cost nothing, and one in either direction.
    """
    oracle, ref, cand, sequence = (np.zeros(1000, int) for _ in range(4))
    margin = np.full(1000, 2.0, np.float32)
    for start in range(0, 1000, 50):
        sequence[start:] += start > 0
        flips = slice(start, start + 15)
        ref[flips], cand[flips], margin[flips] = 1, 2, 0.01
        # One flip where only the reference is right, one where only the candidate is; which of the
        # two a sequence has more of alternates, so that there is a spread.
        more = start // 50 % 2
        ref[start : start + 1 + more] = 0
        cand[start + 5 : start + 7 - more] = 0
    table = frame(
        ref.tolist(), cand.tolist(), oracle.tolist(), sequence.tolist(), ref_margin=margin
    )  # fmt: skip
    estimates = estimate_all([table], Facts(), Resampling(resamples=400))
    found = {e.measure: e for e in estimates if e.corpus == "code"}
    assert found["disagreement"].value == pytest.approx(0.3)
    assert found["harm"].value == 0 and found["retention"].value == 1
    assert judge(estimates, same_weights=False, trimmed=False).kind == "fidelity"


def test_bug_27_nothing_was_quantized(tmp_path: Path) -> None:
    run = pair(tmp_path, matrix(V, H))
    assert told(run, "NOT_COMPRESSED") == [
        ("warning", "every weight equals the reference's: nothing was compressed")
    ]
    assert run["candidates"][0]["verdict"]["kind"] == "identical"
    groups = {"a": {"targets": ["Linear", "lm_head"], "weights": {"num_bits": 4}}}
    settings = {"quant_method": "compressed-tensors", "config_groups": groups}
    folder = model(tmp_path / "m", {"quantization_config": settings}, lm_head__weight=matrix(V, H))
    assert refused("inspect", folder).startswith("DECLARED_VS_STORED")


def test_bug_28_zero_rows_and_a_zero_head(tmp_path: Path) -> None:
    weight = matrix(V, H)
    weight[7] = 0
    ((severity, sentence),) = told(pair(tmp_path, weight), "DEAD_ROWS")
    assert (
        severity == "warning" and "1 row of zeros where the reference has none (ids 7)" in sentence
    )
    assert (
        "1 row of zeros (ids 7)" in told(inspect(tmp_path / "cand.safetensors"), "DEAD_ROWS")[0][1]
    )
    dead = write(tmp_path / "dead.safetensors", lm_head__weight=torch.zeros(V, H))
    assert refused("inspect", dead).startswith("DEAD_HEAD: every row of dead.safetensors is zero")


def test_bug_30_tied_embeddings(tmp_path: Path) -> None:
    weight, tied = matrix(V, H), {"tie_word_embeddings": True}
    embedding = {"model__embed_tokens__weight": weight}
    alone = inspect(model(tmp_path / "alone", tied, **embedding))
    assert alone["head"]["tied"] is True
    assert "the input embedding serves as the head" in told(alone, "NOTE")[0][1]
    moved = weight.clone()
    moved[3, 2] += 5.0
    other = model(tmp_path / "other", tied, lm_head__weight=moved * 1.5, **embedding)
    message = refused("inspect", other)
    assert message.startswith("TIED_BUT_DIFFERENT")
    gap = float((moved * 1.5 - weight).abs().max())
    assert f"they differ by up to {gap:.3g}" in message
    chosen = inspect(other, "--head-tensor", "lm_head.weight")
    assert chosen["head"]["tensors"] == ["lm_head.weight"]
    codes = (weight / weight.abs().amax(1, keepdim=True) * 127).round()
    scales = weight.abs().amax(1, keepdim=True) / 127
    one_side = model(
        tmp_path / "one", tied, lm_head__weight=codes.to(torch.int8),
        lm_head__weight_scale=scales, **embedding,
    )  # fmt: skip
    found = inspect(one_side)
    ((severity, sentence),) = told(found, "TIE_BROKEN")
    assert severity == "warning" and "quantization made them differ" in sentence
    assert found["head"]["encoding"].startswith("INT8")


def test_bug_31_the_head_is_in_another_shard(tmp_path: Path) -> None:
    """Opened by its first file, the embedding's, a split model still has its own head."""
    head, embedding = matrix(V, 32, 1).numpy(), matrix(V, 32, 2).numpy()
    for number, (name, rows) in enumerate((("token_embd", embedding), ("output", head))):
        path = tmp_path / f"m-0000{number + 1}-of-00002.gguf"
        gguf_file(
            path, {f"{name}.weight": rows},
            split__no=number, split__count=2, split__tensors__count=2,
        )  # fmt: skip
    for path in sorted(tmp_path.iterdir()):
        found = inspect(path)
        assert found["head"]["tied"] is False and found["head"]["tensors"] == ["output.weight"]
        assert len(found["files"]) == 2
    # The same with safetensors that came without their index.
    for number, (name, rows) in enumerate((("model.embed_tokens", embedding), ("lm_head", head))):
        path = tmp_path / f"s/model-0000{number + 1}-of-00002.safetensors"
        write(path, **{f"{name}.weight": torch.from_numpy(rows)})
    assert inspect(tmp_path / "s/model-00001-of-00002.safetensors")["head"]["tied"] is False
    assert inspect(tmp_path / "s")["head"]["tensors"] == ["lm_head.weight"]


def test_another_models_tensor_and_another_sign(tmp_path: Path) -> None:
    """Not an entry of its own: another model's rows under the right name."""
    ((severity, sentence),) = told(pair(tmp_path / "a", matrix(V, H, 9)), "OTHER_MODEL")
    assert severity == "warning" and "another model's tensor" in sentence
    assert told(pair(tmp_path / "b", -matrix(V, H)), "OTHER_MODEL")
    assert not told(pair(tmp_path / "c", matrix(V, H) + 0.5 * matrix(V, H, 4)), "OTHER_MODEL")


def test_a_few_rows_that_are_not_the_references(tmp_path: Path) -> None:
    """Not an entry of its own: one id of a map is wrong, or one row is damaged."""
    weight = matrix(V, H)
    swapped, halved, cut = weight.clone(), weight.clone(), weight * 1.01
    swapped[[3, 7]] = weight[[7, 3]]
    halved[5] *= 0.5
    ((severity, sentence),) = told(pair(tmp_path / "a", swapped), "ODD_ROWS")
    assert (
        severity == "warning"
        and f"of {V} rows all but 2 are" in sentence
        and "(ids 3, 7 are" in sentence
    )
    assert "(ids 5 are not)" in told(pair(tmp_path / "b", halved), "ODD_ROWS")[0][1]
    assert not told(pair(tmp_path / "c", cut), "ODD_ROWS")
    assert not told(pair(tmp_path / "d", weight.clone()), "ODD_ROWS")


def test_columns_that_hold_one_value(tmp_path: Path) -> None:
    flat = matrix(V, H)
    flat[:, 5] = 0.25
    ((severity, sentence),) = told(pair(tmp_path / "a", flat), "FLAT_COLUMNS")
    assert severity == "warning" and sentence.startswith("1 of 16 columns hold one value")
    dead = matrix(V, H)
    dead[:, [1, 2]] = 0
    assert told(pair(tmp_path / "b", dead), "PRUNED_COLUMNS")[0][1].startswith("2 of 16 columns")


def test_rows_of_random_numbers_are_told_from_trained_ones(tmp_path: Path) -> None:
    untrained = write(tmp_path / "u.safetensors", lm_head__weight=0.02 * matrix(512, 64))
    assert told(inspect(untrained), "UNTRAINED")[0][0] == "note"
    trained = Path(__file__).parents[2] / "audit/sample/model"
    assert not told(inspect(trained), "UNTRAINED")
    frequent = matrix(512, 64) * torch.linspace(0.5, 2, 512).unsqueeze(1)
    assert not told(
        inspect(write(tmp_path / "f.safetensors", lm_head__weight=frequent)), "UNTRAINED"
    )
    common = matrix(512, 64) + 0.5
    assert not told(inspect(write(tmp_path / "c.safetensors", lm_head__weight=common)), "UNTRAINED")


def test_names_that_disagree_and_heads_that_are_not_there(tmp_path: Path) -> None:
    """One mixer under two dialects; and what was looked for where no head is."""
    head = {"output.weight": matrix(V, 32).numpy()}
    parts = ("norm", "down", "up")
    only = {f"output_hc_{part}.weight": np.ones(32, np.float32) for part in parts}
    whole = {f"blk.2.nextn.hc_head_{part}.weight": np.ones(32, np.float32) for part in parts}
    seen = []
    for name, tensors in (("only", only), ("whole", whole)):
        found = inspect(gguf_file(tmp_path / f"{name}.gguf", {**head, **tensors}))
        (mixer,) = [d for d in found["dialects"] if d["role"] == "hyper_connection_mixer"]
        assert mixer["tensors"] == list(tensors)
        assert told(found, "HC_MIXER")[0][0] == "note"
        seen.append(mixer["dialect"])
        assert found["absent"][0] == {"head": "mtp", "looked_for": ["blk.N.nextn.eh_proj"]}
    assert seen[0] != seen[1]
    found = inspect(write(tmp_path / "h.safetensors", lm_head__weight=matrix(V, H)))
    assert {one["head"]: one["looked_for"] for one in found["absent"]} == {
        "mtp": ["mtp.fc", "layers.N.eh_proj", "mtp_layers.N.input_proj"],
        "eagle3": ["fc.weight", "midlayer.hidden_norm.weight", "layers.0.hidden_norm.weight"],
        "medusa": ["N.N.linear.weight", "blocks.N.layers.N.weight"],
    }
    none = write(tmp_path / "none.safetensors", midlayer__hidden_norm__weight=torch.ones(H))
    message = refused("inspect", none)
    for name in ("lm_head.weight", "head.weight", "embed_out.weight", "model.embed_tokens.weight"):
        assert name in message
    assert "of draft heads it holds midlayer.hidden_norm.weight (SafeAILab, SpecForge)" in message
