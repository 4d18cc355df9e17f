"""What each engine gets, read by a reader written here after the engines' conventions."""

from __future__ import annotations

import json
from dataclasses import replace

import gguf
import numpy as np
import pytest
import torch
from gguf import GGUFReader
from safetensors import safe_open
from safetensors.torch import save_file

from audit.errors import AuditError, BadUsageError, UnreadableError
from audit.heads import load_head
from audit.lockstep import compare_heads
from audit.pair import PairOptions
from audit.trims import trimming
from audit.trims.asking import TrimRequest, run_trim
from audit.trims.card import write_card
from tests.audit_files import H, V, head_weight, make_trace, write_head
from tests.trims.making import MODEL, TRACES, card

RANKS = [300, 7, 399, 0, 128, 64, 5, 201]
"""Best first, and not ascending."""


@pytest.fixture
def ref(tmp_path):
    bias = torch.linspace(-1, 1, V)
    return write_head(tmp_path / "ref.safetensors", head_weight(), **{"lm_head.bias": bias})


def trimmed(ref, tmp_path, name, ids=RANKS, **more):
    request = TrimRequest(ref, card(tmp_path / "ranks.txt", ids), out=tmp_path / name, **more)
    return run_trim(request).written


def read_gguf(path):
    """Rows as floats, map, and its type, as an engine's loader sees them."""
    tensors = {t.name: t for t in GGUFReader(path).tensors}
    rows = gguf.quants.dequantize(
        tensors["output.weight"].data, tensors["output.weight"].tensor_type
    )
    if "output.scale" in tensors:
        rows = rows * tensors["output.scale"].data[0]
    return torch.tensor(rows), torch.tensor(tensors["d2t"].data), tensors


def test_llama_cpp_reads_absolute_ids_as_i64(ref, tmp_path):
    done = trimmed(ref, tmp_path, "h.gguf")
    rows, d2t, tensors = read_gguf(tmp_path / "h.gguf")
    assert tensors["d2t"].tensor_type == gguf.GGMLQuantizationType.I64
    assert list(tensors["output.weight"].shape) == [H, len(RANKS)]
    assert d2t.tolist() == sorted(RANKS)
    assert torch.equal(rows, head_weight()[d2t])
    assert torch.equal(torch.tensor(tensors["output.bias"].data), torch.linspace(-1, 1, V)[d2t])
    assert done.consumer == "llama.cpp" and done.row_ratio == V / len(RANKS)


def test_memra_reads_absolute_ids_as_i32_in_order_of_rank(ref, tmp_path):
    trimmed(ref, tmp_path, "h.gguf", consumer="memra")
    rows, d2t, tensors = read_gguf(tmp_path / "h.gguf")
    assert tensors["d2t"].tensor_type == gguf.GGMLQuantizationType.I32
    assert d2t.tolist() == RANKS
    assert torch.equal(rows, head_weight()[torch.tensor(RANKS)])
    assert torch.equal(torch.tensor(tensors["output.bias"].data), torch.linspace(-1, 1, V)[RANKS])


@pytest.mark.parametrize("consumer", ["vllm", "sglang"])
def test_vllm_and_sglang_read_sorted_offsets(ref, tmp_path, consumer):
    trimmed(ref, tmp_path, "h.safetensors", consumer=consumer)
    with safe_open(tmp_path / "h.safetensors", "pt") as stored:
        d2t, t2d = stored.get_tensor("d2t"), stored.get_tensor("t2d")
        rows = stored.get_tensor("lm_head.weight")
    assert d2t.dtype == torch.int64 and t2d.dtype == torch.bool and t2d.shape == (V,)
    ids = torch.arange(len(d2t)) + d2t
    assert ids.tolist() == sorted(RANKS) and torch.equal(t2d.nonzero().squeeze(1), ids)
    assert torch.equal(rows, head_weight()[ids])
    # As vLLM does it: logits scattered into -inf, then argmax over the target vocabulary.
    states = torch.randn(20, H, generator=torch.Generator().manual_seed(3))
    bias = torch.linspace(-1, 1, V)
    wide = torch.full((20, V), -torch.inf)
    wide[:, ids] = states @ rows.T + bias[ids]
    head = load_head(ref)
    kept = load_head(tmp_path / "h.safetensors", base=head)
    _, [answer] = compare_heads(head, [kept], states, torch.zeros(20, dtype=torch.int64))
    assert torch.equal(answer.proposal, wide.argmax(-1))


def test_sglangs_token_map_is_a_list_of_ids_in_order_of_rank(ref, tmp_path):
    done = trimmed(ref, tmp_path, "map.pt", consumer="sglang")
    ids = torch.load(tmp_path / "map.pt", weights_only=True)
    assert isinstance(ids, list) and ids == RANKS
    assert done.head_bytes == len(RANKS) * H * 4


@pytest.mark.parametrize("name", ["q8_0", "q4_0", "nvfp4"])
@pytest.mark.parametrize("consumer", ["llama.cpp", "memra"])
def test_rows_are_quantized_after_they_are_chosen(tmp_path, name, consumer):
    weight = torch.randn(V, 64, generator=torch.Generator().manual_seed(2))
    ref = write_head(tmp_path / "ref.safetensors", weight)
    done = trimmed(ref, tmp_path, "h.gguf", encoding=name.upper(), consumer=consumer)
    rows, d2t, tensors = read_gguf(tmp_path / "h.gguf")
    assert tensors["output.weight"].tensor_type.name == name.upper()
    exact = weight[d2t.long()]
    error = float((rows - exact).norm() / exact.norm())
    assert 0 < error < {"q8_0": 0.01, "q4_0": 0.12, "nvfp4": 0.12}[name]
    assert done.relative_error == pytest.approx(error, rel=1e-4)
    size = {"q8_0": 34 / 32, "q4_0": 18 / 32, "nvfp4": 36 / 64}[name]
    assert done.head_bytes == len(RANKS) * 64 * size
    if name != "nvfp4":
        kind = gguf.GGMLQuantizationType[name.upper()]
        expected = gguf.quants.dequantize(gguf.quants.quantize(exact.numpy(), kind), kind)
        assert np.array_equal(rows.numpy(), expected)


def test_metadata_of_the_source_is_kept(tmp_path):
    ref = tmp_path / "ref.safetensors"
    save_file({"lm_head.weight": head_weight()}, ref, metadata={"licence": "mine", "format": "pt"})
    trimmed(ref, tmp_path, "h.safetensors")
    with safe_open(tmp_path / "h.safetensors", "pt") as stored:
        found = stored.metadata()
    assert found["licence"] == "mine" and found["format"] == "pt"
    assert json.loads(found["forge"])["family"] == "vocabulary"


def test_gguf_key_values_of_the_source_are_kept(golden_qwen35, tmp_path):
    source = golden_qwen35 / "full-bf16.gguf"
    trimmed(source, tmp_path, "h.gguf", ids=[5, 1, 9, 3])
    theirs, ours = (GGUFReader(path).fields for path in (source, tmp_path / "h.gguf"))
    for key in ("general.architecture", "tokenizer.ggml.tokens", "qwen35.embedding_length"):
        assert ours[key].contents() == theirs[key].contents()


def test_a_draft_heads_block_goes_along(tmp_path):
    """The sample's MTP head: block byte for byte, projection trimmed, same proposals."""
    request = TrimRequest(
        MODEL, card(tmp_path / "r.txt", range(100, 400)), out=tmp_path / "m.safetensors",
        traces=(TRACES / "python-code.trace.safetensors",),
    )  # fmt: skip
    result = run_trim(replace(request, pair=PairOptions(head="mtp")))
    assert result.written is not None and result.written.rows == 300
    [proof] = result.written.proven
    assert proof.differing == proof.near_ties and proof.positions > 1000
    with (
        safe_open(tmp_path / "m.safetensors", "pt") as cut,
        safe_open(MODEL / "model.safetensors", "pt") as whole,
    ):
        names = [name for name in whole.keys() if name.startswith("mtp.")]  # noqa: SIM118
        assert names
        for name in names:
            assert torch.equal(cut.get_tensor(name), whole.get_tensor(name))
        assert (torch.arange(300) + cut.get_tensor("d2t")).tolist() == list(range(100, 400))


def test_what_does_not_read_back_is_not_kept(ref, tmp_path, monkeypatch):
    true = trimming.forge_head

    def damaged(head, cut, out):
        made = true(head, cut, out)
        raw = bytearray(out.read_bytes())
        raw[-5] ^= 0x40
        out.write_bytes(raw)
        return made

    monkeypatch.setattr(trimming, "forge_head", damaged)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UnreadableError):
        trimmed(ref, tmp_path, "h.safetensors")
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "ranks.txt"])


def test_interrupted_nothing_is_left_and_an_old_file_stays(ref, tmp_path, monkeypatch):
    (tmp_path / "h.gguf").write_bytes(b"old")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(trimming, "check_rows", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trimmed(ref, tmp_path, "h.gguf", force=True)
    assert (tmp_path / "h.gguf").read_bytes() == b"old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["h.gguf", "ranks.txt", "ref.safetensors"]


def test_proposals_within_the_vocabulary_are_the_references(ref, tmp_path):
    trace = make_trace(tmp_path / "t.trace.safetensors", head_weight())
    ref = write_head(tmp_path / "ref.safetensors", head_weight())
    ids = torch.randperm(V, generator=torch.Generator().manual_seed(1))[:150]
    for name in ("h.gguf", "h.safetensors"):
        done = trimmed(ref, tmp_path, name, ids=ids.tolist(), traces=(trace,))
        assert [(one.positions, one.differing) for one in done.proven] == [(160, 0)]


@pytest.mark.parametrize(
    ("words", "ids", "more"),
    [
        ("outside 0..399", [1, V], {}),
        ("outside 0..399", [1, -2], {}),
        ("8 distinct ids, 9 were asked for", RANKS, {"rows": 9}),
        ("trim nothing", range(V), {}),
        ("not from h.gguf", RANKS, {"consumer": "vllm"}),
        ("not from h.gguf", RANKS, {"consumer": "sglang"}),
        ("whose blocks hold", RANKS, {"encoding": "Q4_0"}),
    ],
)
def test_bad_input_is_refused_and_leaves_nothing(ref, tmp_path, words, ids, more):
    with pytest.raises(AuditError, match=words) as refused:
        trimmed(ref, tmp_path, "h.gguf", ids=ids, **more)
    assert refused.value.hint
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ranks.txt", "ref.safetensors"]


@pytest.mark.parametrize("place", ["ref.safetensors/h.gguf", "folder"])
def test_unwritable_places_are_refused(ref, tmp_path, place):
    (tmp_path / "folder.gguf").mkdir()
    place = "folder.gguf" if place == "folder" else place
    with pytest.raises(BadUsageError, match="can not be written"):
        trimmed(ref, tmp_path, place)


def test_files_that_are_read_are_never_overwritten(ref, tmp_path):
    before = ref.read_bytes()
    trace = make_trace(tmp_path / "t.trace.safetensors", head_weight())
    for name in ("ref.safetensors", "t.trace.safetensors"):
        with pytest.raises(BadUsageError, match="what the cut is made from"):
            trimmed(ref, tmp_path, name, traces=(trace,) if name.startswith("t.") else ())
    assert ref.read_bytes() == before


def test_what_is_there_is_replaced_only_where_the_audit_made_it(ref, tmp_path):
    for name, other in (("h.gguf", b"GGUF precious"), ("map.pt", b"precious")):
        place = tmp_path / name
        place.write_bytes(other)
        with pytest.raises(BadUsageError, match="the audit did not make it") as refused:
            trimmed(ref, tmp_path, name)
        assert "--force" in refused.value.hint and place.read_bytes() == other
        assert trimmed(ref, tmp_path, name, force=True).rows == len(RANKS)
    again = trimmed(ref, tmp_path, "h.gguf", ids=RANKS[:3])
    assert again.rows == 3 and len(read_gguf(tmp_path / "h.gguf")[1]) == 3


def test_repeats_are_dropped_and_said(ref, tmp_path):
    path = card(tmp_path / "ranks.txt", [*RANKS, 7, 7])
    result = run_trim(TrimRequest(ref, path, out=tmp_path / "h.gguf"))
    assert result.rows == 8 and "2 repeated entries" in result.notes[0]


def test_a_card_of_another_vocabulary_is_refused(ref, tmp_path):
    write_card(
        tmp_path / "r.txt", [1, 2],
        {
            "vocabulary": 50, "seen": 2, "seen_kept": 2, "forced": {}, "padded": [],
            "counts": [1, 1], "corpora": [], "flavour": None, "model": "other",
            "model_sha256": None, "tokenizer_sha256": None,
        },
    )  # fmt: skip
    with pytest.raises(AuditError, match="vocabulary of 50 ids"):
        run_trim(TrimRequest(ref, tmp_path / "r.txt", out=tmp_path / "h.gguf"))


def test_a_shorter_cut_keeps_what_must_be_kept(ref, tmp_path):
    write_card(
        tmp_path / "r.txt", [9, 8, 7, 6, 0, 1],
        {
            "vocabulary": V, "seen": 4, "seen_kept": 4, "forced": {"stop": [0], "byte": [1]},
            "padded": [], "counts": [4, 3, 2, 1, 0, 0], "corpora": [], "flavour": None,
            "model": "tiny", "model_sha256": None, "tokenizer_sha256": None,
        },
    )  # fmt: skip
    run_trim(
        TrimRequest(ref, tmp_path / "r.txt", rows=4, out=tmp_path / "h.gguf", consumer="memra")
    )
    assert read_gguf(tmp_path / "h.gguf")[1].tolist() == [9, 8, 0, 1]
    with pytest.raises(BadUsageError, match="no room for the 2"):
        run_trim(TrimRequest(ref, tmp_path / "r.txt", rows=1, out=tmp_path / "h.gguf"))
