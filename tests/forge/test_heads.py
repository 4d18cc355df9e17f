"""A draft head, a cut, a file: loaded again it proposes what the head in memory proposes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from audit.blocks import BlockHead, BlockOptions
from audit.errors import BadUsageError
from audit.files import open_container
from audit.forge import (
    block_moments,
    cut_block,
    cut_head,
    forge_head,
    parse_cut,
    second_moment_of,
)
from audit.heads import HeadOptions
from audit.measure import states_for
from audit.pair import HeadChoice, load_cand, load_ref, parse_head_name, same_block
from audit.traces import lookahead_rows
from tests.blocks.tiny import make_trace

from .real_heads import SAMPLE, proposals, sample_trace

HEADS = ("mtp", "exit:2")
CUTS = (
    "q8_0", "q4_0", "mxfp4", "nvfp4", "f16", "fp8", "prune:0.5", "prune:0.25:activation",
    "lowrank:0.5", "lowrank:0.25:calibrated", "noise:0.15",
)  # fmt: skip
NO_BLOCK_OPTIONS = BlockOptions()


def choice(name: str) -> HeadChoice:
    return HeadChoice(parse_head_name(name))


def load(path: Path, name: str, ref=None):
    if ref is None:
        return load_ref(path, choice(name), HeadOptions(), NO_BLOCK_OPTIONS)
    return load_cand(path, choice(name), HeadOptions(), NO_BLOCK_OPTIONS, ref)


def calibrated(ref, trace) -> dict:
    rows, _ = lookahead_rows(trace, ref.lookahead)
    moment = second_moment_of(states_for(ref, trace, rows))
    return {"second_moment": moment, "moments": block_moments(ref.block, [trace])}


@pytest.fixture(scope="module")
def trace():
    return sample_trace()


@pytest.fixture(scope="module")
def refs(trace):
    """Each head of the sample with its calibration."""
    heads = {name: load(SAMPLE, name) for name in HEADS}
    return {name: (head, calibrated(head, trace)) for name, head in heads.items()}


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("text", CUTS)
def test_the_file_is_the_head_in_memory(name, text, refs, trace, tmp_path):
    ref, known = refs[name]
    cut, out = parse_cut(text), tmp_path / "cand.safetensors"
    cand = cut_head(ref, cut, **known, seed=3)
    made = forge_head(ref, cut, out, **known, seed=3)
    read = load(out, name, ref)
    got = proposals(read, trace)
    assert torch.equal(got, proposals(cand, trace))
    assert torch.equal(read.block.run(trace), cand.block.run(trace))
    assert not torch.equal(got, proposals(ref, trace)) or text in ("q8_0", "f16", "fp8")
    assert isinstance(cand, BlockHead) and not same_block(cand, ref) and not same_block(read, ref)
    assert cand.record.name == str(cut) and cand.record.kind == name
    assert len({cand.record.sha256, ref.record.sha256}) == 2
    assert cand.record.stored_bytes == made.bytes_after <= ref.record.stored_bytes
    about = json.loads(open_container(out).metadata["forge"])
    quantized = text in ("q8_0", "q4_0", "mxfp4", "nvfp4")
    assert (
        about["simulated"] == (quantized or text == "fp8")
        and about["cut"] == str(cut)
        and about["head"] == name
    )
    if not quantized:
        assert read.block.sha256 == cand.block.sha256
    assert all(0 <= error < 1 for error in made.errors.values())
    assert set(made.errors) == (
        {"block"} if cut.kind in ("prune", "lowrank") else {"block", "projection"}
    )


@pytest.mark.parametrize("text", ["q4_0", "lowrank:0.5:calibrated", "noise:0.2"])
def test_only_the_projection(text, refs, trace, tmp_path):
    ref, known = refs["mtp"]
    cut, out = parse_cut(text), tmp_path / "cand.safetensors"
    cand = cut_head(ref, cut, only="projection", **known)
    made = forge_head(ref, cut, out, only="projection", **known)
    read = load(out, "mtp", ref)
    assert cand.block is ref.block and same_block(cand, ref) and same_block(read, ref)
    assert torch.equal(proposals(read, trace), proposals(cand, trace))
    assert set(made.errors) == {"projection"}
    if text == "q4_0":  # alone it also goes into the other format, in the type itself
        bare = tmp_path / "rows.gguf"
        made = forge_head(ref, cut, bare, only="projection")
        assert torch.equal(proposals(load(bare, "mtp", ref), trace), proposals(cand, trace))
        assert made.bytes_after == cand.projection.stored_bytes


def test_only_the_block(refs, trace, tmp_path):
    ref, _ = refs["mtp"]
    cand = cut_head(ref, parse_cut("q4_0"), only="block")
    forge_head(ref, parse_cut("q4_0"), tmp_path / "c.safetensors", only="block")
    read = load(tmp_path / "c.safetensors", "mtp", ref)
    assert cand.projection == ref.projection == read.projection and not same_block(cand, ref)
    assert torch.equal(proposals(read, trace), proposals(cand, trace))


def test_a_config_beside_the_file_changes_nothing(refs, trace, tmp_path):
    """The configuration says tied, and that there is an MTP layer."""
    ref, _ = refs["mtp"]
    (tmp_path / "config.json").write_bytes((SAMPLE / "config.json").read_bytes())
    for text, only in (("q4_0", None), ("prune:0.5", None), ("q4_0", "projection")):
        out = tmp_path / "cand.safetensors"
        forge_head(ref, parse_cut(text), out, only=only)
        cand = cut_head(ref, parse_cut(text), only=only)
        assert torch.equal(proposals(load(out, "mtp", ref), trace), proposals(cand, trace))


def test_trim_leaves_the_block(refs, trace, tmp_path):
    ref, _ = refs["mtp"]
    card = tmp_path / "ranks.txt"
    card.write_text("\n".join(map(str, range(0, 8192, 3))))
    cut, out = parse_cut(f"trim:{card}:1000"), tmp_path / "cand.safetensors"
    cand = cut_head(ref, cut)
    made = forge_head(ref, cut, out)
    read = load(out, "mtp", ref)
    assert cand.rows.count == read.rows.count == 1000 and cand.vocabulary == ref.vocabulary
    assert cand.block is ref.block and made.errors == {}
    assert torch.equal(proposals(read, trace, ref), proposals(cand, trace, ref))


def test_bare_lm_heads_in_memory(trace, tmp_path):
    ref = load(SAMPLE, "lm")
    for text, name in (
        ("q4_0", "c.gguf"),
        ("lowrank:0.5", "c.safetensors"),
        ("fp8", "d.safetensors"),
        ("q4_0", "e.safetensors"),
    ):
        cut = parse_cut(text)
        cand, made = cut_head(ref, cut), forge_head(ref, cut, tmp_path / name)
        read = load(tmp_path / name, "lm", ref)
        assert torch.equal(proposals(read, trace), proposals(cand, trace))
        assert cand.record.stored_bytes == made.bytes_after
        simulated = any(note.startswith("simulated") for note in made.notes)
        assert simulated == (name in ("d.safetensors", "e.safetensors"))
        assert simulated or made.bytes_after == read.record.stored_bytes
        if name != "e.safetensors":
            assert cand.record.sha256 == read.record.sha256 != ref.record.sha256
        rows, columns = ref.rows.count, ref.rows.columns
        if text != "lowrank:0.5":  # 4.5 bits a weight; a byte a weight and 4 for each row
            want = {"q4_0": rows * columns * 18 // 32, "fp8": rows * (columns + 4)}[text]
            assert made.bytes_after == want
        assert not isinstance(cand, BlockHead) and cand.record.name == str(cut)


def test_the_reference_is_left_alone(refs, trace):
    ref, _ = refs["exit:2"]
    before = ref.block.run(trace)
    block, made = cut_block(ref.block, parse_cut("prune:0.5"))
    assert torch.equal(ref.block.run(trace), before) and not torch.equal(block.run(trace), before)
    assert set(made) == {f"model.layers.3.mlp.{p}_proj.weight" for p in ("gate", "up", "down")}


def test_moments_are_those_of_the_rows(refs, trace):
    """Down's by hand from gate's: padding and batches must not count."""
    ref, known = refs["mtp"]
    inputs = []
    mlp = ref.block.modules.get_submodule("decoder.model.layers.0.mlp")
    handle = mlp.register_forward_pre_hook(lambda module, given: inputs.append(given[0]))
    ref.block.run(trace, batch=1)
    handle.remove()
    entering = torch.cat([states.flatten(0, 1) for states in inputs])
    assert len(entering) == len(lookahead_rows(trace, 2)[0])
    inner = mlp.act_fn(mlp.gate_proj(entering)) * mlp.up_proj(entering)
    found = known["moments"]
    stem = "mtp.layers.0.mlp"
    torch.testing.assert_close(found[f"{stem}.gate_proj.weight"], second_moment_of(entering))
    torch.testing.assert_close(found[f"{stem}.down_proj.weight"], second_moment_of(inner))
    power = block_moments(ref.block, [trace], diagonal=True)[f"{stem}.down_proj.weight"]
    torch.testing.assert_close(power, found[f"{stem}.down_proj.weight"].diagonal())


@pytest.mark.parametrize(
    ("text", "name", "only", "words"),
    [
        ("prune:0.5:activation", "c.safetensors", None, "no trace was given"),
        ("lowrank:0.5:calibrated", "c.safetensors", "projection", "no trace was given"),
        ("prune:0.5", "c.safetensors", "projection", "a projection has none"),
        ("q4_0", "c.gguf", None, "not translated into .gguf"),
        ("q4_0", "c.bin", None, "not to c.bin"),
        ("trim:ranks.txt", "c.safetensors", "block", "rows of a projection"),
    ],
)
def test_what_can_not_be_done(text, name, only, words, refs, tmp_path):
    with pytest.raises(BadUsageError, match=words) as error:
        forge_head(refs["mtp"][0], parse_cut(text), tmp_path / name, only=only)
    assert error.value.hint and not list(tmp_path.iterdir())


def test_the_reference_is_never_overwritten(refs, tmp_path):
    ref = refs["mtp"][0]
    with pytest.raises(BadUsageError, match="is the reference itself"):
        forge_head(ref, parse_cut("q8_0"), SAMPLE / "model.safetensors")


def random_trace(width: int, vocabulary: int):
    generator = torch.Generator().manual_seed(5)
    hidden = torch.randn(60, width, generator=generator)
    tokens = torch.randint(0, vocabulary, (60,), generator=generator)
    return make_trace(hidden, [25, 35], tokens, {2: hidden * 0.3})


@pytest.mark.parametrize(("name", "file"), [("mtp", "mtp-bf16.gguf"), ("exit:2", "full-bf16.gguf")])
@pytest.mark.parametrize("text", CUTS)
def test_gguf_keeps_names_keys_and_proposals(name, file, text, golden_qwen35, tmp_path):
    ref, trace = load(golden_qwen35 / file, name), random_trace(256, 1024)
    known, cut, out = calibrated(ref, trace), parse_cut(text), tmp_path / "cand.gguf"
    cand = cut_head(ref, cut, **known, seed=3)
    forge_head(ref, cut, out, **known, seed=3)
    read = load(out, name, ref)
    assert torch.equal(proposals(read, trace), proposals(cand, trace))
    assert read.block.sha256 == cand.block.sha256 != ref.block.sha256 or text == "f16"
    # FP8 lies there as BF16; the candidate's size is that of FP8 itself.
    assert text == "fp8" or read.record.stored_bytes == cand.record.stored_bytes
    assert cand.record.stored_bytes <= ref.record.stored_bytes
    source, made = open_container(golden_qwen35 / file), open_container(out)
    assert set(made.entries) - set(source.entries) <= {"blk.4.nextn.eh_proj.scale"}
    arch = made.metadata["general.architecture"]
    assert arch == "qwen35" and made.metadata["qwen35.block_count"] == 5
    width = made.entries[f"blk.{4 if name == 'mtp' else 3}.ffn_gate.weight"].shape[0]
    assert made.metadata["qwen35.feed_forward_length"] == width
    if name == "mtp":  # all that llama.cpp's own file of an MTP head holds
        assert set(made.entries) == set(source.entries)
        alone = load(out, name)
        assert torch.equal(proposals(alone, trace), proposals(cand, trace))


def test_an_hf_reference_and_a_gguf_one_get_the_same_noise(golden_qwen35):
    trace = random_trace(256, 1024)
    heads = [load(golden_qwen35 / file, "mtp") for file in ("hf", "mtp-bf16.gguf")]
    cut = parse_cut("noise:0.3")
    first, second = (cut_head(head, cut, seed=1) for head in heads)
    assert torch.equal(proposals(first, trace), proposals(second, trace))
    other = cut_head(heads[0], cut, seed=2)
    assert not torch.equal(proposals(first, trace), proposals(other, trace))


def test_a_quantized_reference_can_be_cut_again(golden_qwen35, tmp_path):
    ref, trace = load(golden_qwen35 / "mtp-Q4_K_M.gguf", "mtp"), random_trace(256, 1024)
    for text in ("prune:0.5", "noise:0.1", "q8_0"):
        cut = parse_cut(text)
        forge_head(ref, cut, tmp_path / "c.gguf")
        read, cand = load(tmp_path / "c.gguf", "mtp", ref), cut_head(ref, cut)
        assert torch.equal(proposals(read, trace), proposals(cand, trace))


def test_large_weights_bring_their_nvfp4_scale_along(golden_qwen35, tmp_path):
    """The block's matrices are tiny, so that every one needs a `.scale` beside it."""
    from audit.forge.writers import copied, stored, write_gguf

    source = open_container(golden_qwen35 / "mtp-bf16.gguf")
    tiny = [
        stored(name, source.values(name) * 1e-3) if "blk.4.ffn" in name else copied(source, name)
        for name in source.entries
    ]
    write_gguf(tmp_path / "ref.gguf", tiny, source=source)
    ref, trace = load(tmp_path / "ref.gguf", "mtp"), random_trace(256, 1024)
    forge_head(ref, parse_cut("nvfp4"), tmp_path / "c.gguf")
    assert "blk.4.ffn_gate.scale" in open_container(tmp_path / "c.gguf").entries
    read, cand = load(tmp_path / "c.gguf", "mtp", ref), cut_head(ref, parse_cut("nvfp4"))
    assert torch.equal(read.block.run(trace), cand.block.run(trace))
    assert read.block.sha256 == cand.block.sha256
