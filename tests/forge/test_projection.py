"""A head, a cut, a file, our own loader: the proposals are those of the cut weights themselves."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import gguf
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from audit.errors import BadUsageError, UnsupportedFormatError
from audit.files import decode_rows, open_container
from audit.forge import forge_projection, parse_cut, quantize_rows, second_moment_of, suffix_for
from audit.forge import tiles as tiles_module
from audit.forge.fp8 import quantize_fp8
from audit.forge.lowrank import low_rank, rank_for
from audit.forge.noise import add_noise
from audit.heads import FinalNorm, HeadOptions, PostHead, load_candidate, load_head
from audit.heads.adapters import KeepColumns
from audit.lockstep import compare_heads
from tests.heads_in_memory import head_of

V, H, N = 300, 64, 500
OPTIONS = HeadOptions()


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


WEIGHT = torch.randn(V, H, generator=rng(0)) * 0.3
STATES = torch.randn(N, H, generator=rng(1)) * torch.linspace(0.2, 3, H)
ORACLE = torch.randint(0, V, (N,), generator=rng(2))
MOMENT = second_moment_of(STATES)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(tiles_module, "TILE_WEIGHTS", 7 * H)


def proposals(head, ref=None):
    _, [answers] = compare_heads(ref or head, [head], STATES, ORACLE)
    return answers.proposal


def direct(text: str) -> torch.Tensor:
    """The cut weights [V, H] by the shortest way, for the BF16 or F32 that is written."""
    cut = parse_cut(text)
    if cut.kind == "quantize":
        return decode_rows(quantize_rows(WEIGHT, cut.encoding), cut.encoding, H)
    if cut.kind == "fp8":
        return quantize_fp8(WEIGHT).values()
    if cut.kind == "noise":
        return add_noise(WEIGHT, cut.strength, "lm_head", 4)
    rank = rank_for(cut.keep, V, H, "parameters")
    left, right = low_rank(WEIGHT, rank, MOMENT if cut.calibrated else None).factors()
    return left @ right


@pytest.mark.parametrize(
    "text",
    ["q4_0", "q8_0", "nvfp4", "mxfp4", "bf16", "f16", "f32", "fp8", "noise:0.15", "lowrank:0.5",
     "lowrank:0.5:calibrated"],
)  # fmt: skip
@pytest.mark.parametrize("suffix", [".gguf", ".safetensors"])
def test_loaded_proposals_are_those_of_the_cut_weights(text, suffix, tmp_path):
    cut = parse_cut(text)
    bias = torch.randn(V, generator=rng(3)) * 0.1
    ref = head_of(WEIGHT, bias=bias, post=PostHead(0.5, 30.0), valid=V - 4)
    out = tmp_path / f"cand{suffix}"
    if suffix == ".gguf" and cut.kind in ("fp8", "lowrank"):
        with pytest.raises(BadUsageError, match=f"can not be kept in a \\{suffix} file") as error:
            forge_projection(ref, cut, out, second_moment=MOMENT)
        assert error.value.hint == f"name it cand{suffix_for(cut)}" and not out.exists()
        return
    assert forge_projection(ref, cut, out, second_moment=MOMENT, seed=4) == out
    cand = load_candidate(out, OPTIONS, ref)
    assert cand.post == ref.post and torch.equal(cand.bias, bias)
    same = head_of(direct(text), bias=bias, post=ref.post, valid=ref.valid)
    got, want = proposals(cand, ref), proposals(same, ref)
    assert torch.equal(got, want)
    # half the rank of random weights is gone
    least = 0.15 if text.startswith("lowrank") else 0.75
    assert least < float((got == proposals(ref)).float().mean()) <= 1.0


def test_float_type_follows_the_reference(tmp_path):
    for encoding, want in (("F32", "F32"), ("BF16", "BF16"), ("Q8_0", "BF16")):
        ref = head_of(WEIGHT)
        ref = replace(ref, record=ref.record.model_copy(update={"encoding": encoding}))
        for text in ("noise:0.1", "fp8", "lowrank:0.5"):
            out = forge_projection(ref, parse_cut(text), tmp_path / "x.safetensors")
            kinds = {entry.encoding for entry in open_container(out).entries.values()}
            assert kinds == {want}


def test_fp8_packed_is_the_compressed_tensors_layout(tmp_path):
    ref = head_of(WEIGHT)
    out = forge_projection(ref, parse_cut("fp8"), tmp_path / "x.safetensors", packed=True)
    with safe_open(out, "pt") as file:
        codes, scales = (file.get_tensor(f"lm_head.weight{end}") for end in ("", "_scale"))
    assert codes.dtype == torch.float8_e4m3fn and scales.shape == (V, 1)
    torch.testing.assert_close(codes.float() * scales, WEIGHT, atol=0.1, rtol=0)
    plain = forge_projection(ref, parse_cut("fp8"), tmp_path / "y.safetensors")
    made = json.loads(open_container(plain).metadata["forge"])
    [note] = made["notes"]
    assert note.startswith("simulated: FP8 (E4M3)") and "as the F32 values" in note
    assert made["simulated"] and made["head"] == "lm"


def test_a_block_type_in_safetensors_is_simulated_and_said_so(tmp_path):
    """The very values of the GGUF file, in floats."""
    ref = head_of(WEIGHT)
    for text in ("q4_0", "nvfp4"):
        files = [tmp_path / f"{text}{suffix}" for suffix in (".gguf", ".safetensors")]
        real, floats = (forge_projection(ref, parse_cut(text), out) for out in files)
        heads = [load_candidate(out, OPTIONS, ref) for out in (real, floats)]
        tiles = [head.rows.tile(0, V) for head in heads]
        assert torch.equal(*tiles) and heads[1].record.encoding == "F32"
        assert heads[1].unread == ()
        made = [json.loads(open_container(out).metadata["forge"]) for out in (real, floats)]
        assert [about["simulated"] for about in made] == [False, True]
        assert made[1]["notes"][0].startswith(f"simulated: {text.upper()} lies in this file")


@pytest.mark.parametrize("suffix", [".gguf", ".safetensors"])
@pytest.mark.parametrize("count", [60, 17])
def test_a_trimmed_head_is_an_exact_subset(suffix, count, tmp_path):
    order = torch.randperm(V, generator=rng(5))
    card = tmp_path / "ranks.txt"
    card.write_text("\n".join(str(int(i)) for i in order[:60]))
    ref = head_of(WEIGHT, bias=torch.randn(V, generator=rng(3)))
    out = forge_projection(ref, parse_cut(f"trim:{card}:{count}"), tmp_path / f"t{suffix}")
    cand = load_candidate(out, OPTIONS, ref)
    ids = order[:count].sort().values
    assert torch.equal(cand.ids, ids) and cand.vocabulary == V
    assert torch.equal(cand.rows.tile(0, count), WEIGHT[ids])
    best = (STATES @ WEIGHT[ids].T + ref.bias[ids]).argmax(-1)
    assert torch.equal(proposals(cand, ref), ids[best])
    own = load_head(out)  # by itself it still knows its map and its vocabulary
    assert torch.equal(own.ids, ids) and own.vocabulary == V
    container = open_container(out)
    if suffix == ".gguf":
        assert container.entries["d2t"].encoding == "I64"
        assert torch.equal(container.values("d2t"), ids)
    else:
        assert torch.equal(container.values("d2t"), ids - torch.arange(count))
        assert torch.equal(container.values("t2d").nonzero().squeeze(1), ids)


def gguf_reference(path, kind):
    writer = gguf.GGUFWriter(path, "gemma3")
    writer.add_float32("gemma3.final_logit_softcapping", 20.0)
    writer.add_float32("gemma3.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_array(
        "tokenizer.ggml.tokens", [f"t{i}" for i in range(V - 2)] + ["[PAD0]", "[PAD1]"]
    )
    raw = quantize_rows(WEIGHT, kind).numpy()
    writer.add_tensor("output.weight", raw, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.add_tensor("output_norm.weight", np.linspace(0.5, 2, H, dtype=np.float32))
    if kind == "NVFP4":
        writer.add_tensor("output.scale", np.array([0.25], np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return load_head(path)


@pytest.mark.parametrize("kind", ["Q8_0", "NVFP4", "F16"])
def test_trimming_a_gguf_copies_its_bytes_and_its_rules(kind, tmp_path):
    ref = gguf_reference(tmp_path / "ref.gguf", kind)
    card = tmp_path / "ranks.txt"
    card.write_text("9 2 250 77")
    out = forge_projection(ref, parse_cut(f"trim:{card}"), tmp_path / "t.gguf")
    cand = load_candidate(out, OPTIONS, ref)
    assert cand.record.encoding == kind and cand.valid == V - 2
    assert cand.post == ref.post and cand.norm.eps == ref.norm.eps
    assert torch.equal(cand.norm.gain, ref.norm.gain)
    index = torch.tensor([2, 9, 77, 250])
    assert torch.equal(cand.rows.tile(0, 4), ref.rows.gather(index))
    raw = open_container(tmp_path / "ref.gguf").rows_of("output.weight")
    assert torch.equal(open_container(out).rows_of("output.weight"), raw[index])
    floats = forge_projection(ref, parse_cut(f"trim:{card}"), tmp_path / "t.safetensors")
    exact = load_candidate(floats, OPTIONS, ref)
    assert torch.equal(exact.rows.tile(0, 4), cand.rows.tile(0, 4))


def test_quantizing_a_gguf_keeps_its_architecture(tmp_path):
    ref = gguf_reference(tmp_path / "ref.gguf", "Q8_0")
    out = forge_projection(ref, parse_cut("q4_0"), tmp_path / "q.gguf")
    metadata = open_container(out).metadata
    assert (
        metadata["general.architecture"] == "gemma3" and len(metadata["tokenizer.ggml.tokens"]) == V
    )
    cand = load_candidate(out, OPTIONS, ref)
    assert cand.post == ref.post and cand.valid == V - 2
    again = forge_projection(cand, parse_cut("nvfp4"), tmp_path / "r.gguf")  # a cut of a cut
    assert json.loads(open_container(again).metadata["forge"])["cut"] == "nvfp4"


def test_a_trimmed_reference_passes_its_map_on(tmp_path):
    ids = torch.arange(0, V, 3)
    ref = head_of(
        WEIGHT[ids],
        "reference",
        ids=ids,
        vocabulary=V,
        bias=torch.randn(len(ids), generator=rng(3)),
    )
    for text, name in (("q8_0", "a.gguf"), ("lowrank:0.5", "a.safetensors")):
        cand = load_candidate(forge_projection(ref, parse_cut(text), tmp_path / name), OPTIONS, ref)
        assert torch.equal(cand.ids, ids) and torch.equal(cand.bias, ref.bias)
    card = tmp_path / "ranks.txt"
    card.write_text("3 6 7")
    with pytest.raises(
        BadUsageError, match=r"1 ids of ranks\.txt have no row in reference, the first is 7"
    ):
        forge_projection(ref, parse_cut(f"trim:{card}"), tmp_path / "b.gguf")


def test_rules_and_norm_travel_in_gguf(tmp_path):
    norm = FinalNorm(torch.linspace(1, 2, H), 1e-6, torch.ones(H))
    ref = replace(head_of(WEIGHT, post=PostHead(0.25, 15.0)), norm=norm)
    cand = load_head(forge_projection(ref, parse_cut("q8_0"), tmp_path / "x.gguf"))
    assert cand.post == ref.post and torch.equal(cand.norm.gain, norm.gain)
    assert torch.equal(cand.norm.bias, norm.bias) and cand.norm.eps == pytest.approx(1e-6)


def test_nvfp4_of_tiny_weights_carries_its_scale(tmp_path):
    ref = head_of(WEIGHT * 1e-5)
    out = forge_projection(ref, parse_cut("nvfp4"), tmp_path / "x.gguf")
    cand = load_candidate(out, OPTIONS, ref)
    assert "output.scale" in open_container(out).entries
    error = (cand.rows.tile(0, V) - WEIGHT * 1e-5).norm() / (WEIGHT * 1e-5).norm()
    assert float(error) < 0.12


def test_calibrated_low_rank_does_better_on_its_states(tmp_path):
    ref = head_of(WEIGHT)
    errors = {}
    for text in ("lowrank:0.3", "lowrank:0.3:calibrated"):
        out = tmp_path / "x.safetensors"
        forge_projection(ref, parse_cut(text), out, second_moment=MOMENT)
        cand = load_candidate(out, OPTIONS, ref)
        logits = cand.project_in(STATES) @ cand.rows.tile(0, V).T
        errors[text] = float((logits - STATES @ WEIGHT.T).norm())
    assert errors["lowrank:0.3:calibrated"] < errors["lowrank:0.3"]


def test_same_cut_same_bytes_and_the_seed_matters(tmp_path):
    ref = head_of(WEIGHT)

    def digest(text, seed, name):
        out = forge_projection(
            ref, parse_cut(text), tmp_path / name, second_moment=MOMENT, seed=seed
        )
        return hashlib.sha256(out.read_bytes()).hexdigest()

    for text, name in (("q4_0", "a.gguf"), ("noise:0.2", "a.safetensors"),
                       ("lowrank:0.5:calibrated", "a.safetensors")):  # fmt: skip
        assert digest(text, 1, name) == digest(text, 1, f"again-{name}")
    assert digest("noise:0.2", 1, "a.safetensors") != digest("noise:0.2", 2, "a.safetensors")


def test_real_safetensors_reference(tmp_path):
    save_file({"lm_head.weight": WEIGHT.bfloat16()}, tmp_path / "ref.safetensors")
    ref = load_head(tmp_path / "ref.safetensors")
    card = tmp_path / "ranks.txt"
    card.write_text("1 2 3")
    out = forge_projection(ref, parse_cut(f"trim:{card}:2"), tmp_path / "t.safetensors")
    assert open_container(out).entries["lm_head.weight"].encoding == "BF16"
    made = json.loads(open_container(out).metadata["forge"])
    assert made["reference"] == "ref.safetensors" and made["reference_sha256"] == ref.record.sha256
    assert made["cut"] == "2 rows by ranks.txt" and str(tmp_path) not in json.dumps(made)


def test_refusals(tmp_path):
    ref = head_of(WEIGHT)
    with pytest.raises(BadUsageError, match="a projection has none") as error:
        forge_projection(ref, parse_cut("prune:0.5"), tmp_path / "x.safetensors")
    assert error.value.hint.startswith("prune the draft block")
    with pytest.raises(BadUsageError, match="needs the second moment of the states"):
        forge_projection(ref, parse_cut("lowrank:0.5:calibrated"), tmp_path / "x.safetensors")
    with pytest.raises(BadUsageError, match=r"not to x\.pt") as error:
        forge_projection(ref, parse_cut("q4_0"), tmp_path / "x.pt")
    assert error.value.hint == "name it x.gguf"
    narrow = replace(ref, adapt=KeepColumns(torch.arange(H)))
    with pytest.raises(UnsupportedFormatError, match="is itself a cut"):
        forge_projection(narrow, parse_cut("q4_0"), tmp_path / "x.gguf")
    assert list(tmp_path.iterdir()) == []
