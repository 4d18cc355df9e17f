"""Where a head lies: names, prefixes, shards, tying, factors, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from audit.errors import AuditError, MismatchError, NotFoundError, UnsupportedFormatError
from audit.heads import HeadOptions, load_head
from audit.heads.head import Head
from audit.heads.names import LM_HEAD
from tests.heads.files import H, V, gguf_file, model_folder, safetensors, weights


def matrix(head: Head) -> torch.Tensor:
    return head.rows.tile(0, head.rows.count)


@pytest.mark.parametrize("name", LM_HEAD["safetensors"])
def test_every_known_name_is_found(tmp_path: Path, name: str) -> None:
    path = safetensors(tmp_path / "h.safetensors", **{name: weights()})
    head = load_head(path)
    assert head.record.tensors == (name,) and head.record.tied is False
    assert torch.equal(matrix(head), weights())


def test_multimodal_prefix_is_dropped(tmp_path: Path) -> None:
    path = safetensors(tmp_path / "h.safetensors", language_model__lm_head__weight=weights())
    assert load_head(path).record.tensors == ("language_model.lm_head.weight",)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_dense_types(tmp_path: Path, dtype: torch.dtype) -> None:
    path = safetensors(tmp_path / "h.safetensors", lm_head__weight=weights().to(dtype))
    head = load_head(path)
    assert torch.equal(matrix(head), weights().to(dtype).float())
    assert head.record.bits_per_weight == 8 * dtype.itemsize
    assert torch.equal(head.rows.gather(torch.tensor([3, 0])), matrix(head)[[3, 0]])


def test_tied_head_is_the_embedding(tmp_path: Path) -> None:
    folder = model_folder(
        tmp_path / "m", {"tie_word_embeddings": True}, model__embed_tokens__weight=weights()
    )
    head = load_head(folder)
    assert head.record.tied is True
    assert head.record.tensors == ("model.embed_tokens.weight",)
    assert any("tied" in note for note in head.record.notes)


def test_tied_flag_in_the_text_config(tmp_path: Path) -> None:
    config = {"text_config": {"tie_word_embeddings": True, "model_type": "x"}}
    folder = model_folder(
        tmp_path / "m", config, model__language_model__embed_tokens__weight=weights()
    )
    assert load_head(folder).record.tied is True


def test_untied_without_a_head_is_absent_not_tied(tmp_path: Path) -> None:
    folder = model_folder(
        tmp_path / "m", {"tie_word_embeddings": False}, model__embed_tokens__weight=weights()
    )
    with pytest.raises(NotFoundError, match=r"HEAD_ABSENT.*says it is not tied"):
        load_head(folder)


def test_tied_flag_over_two_different_tensors(tmp_path: Path) -> None:
    other = weights()
    other[3, 4] += 0.5
    folder = model_folder(
        tmp_path / "m",
        {"tie_word_embeddings": True},
        model__embed_tokens__weight=weights(),
        lm_head__weight=other,
    )
    with pytest.raises(MismatchError, match=r"TIED_BUT_DIFFERENT.*up to 0\.5") as caught:
        load_head(folder)
    assert "--head-tensor lm_head.weight" in caught.value.hint
    head = load_head(folder, HeadOptions(tensor="lm_head.weight"))
    assert torch.equal(matrix(head), other)


def test_tied_flag_over_two_equal_tensors_is_fine(tmp_path: Path) -> None:
    folder = model_folder(
        tmp_path / "m",
        {"tie_word_embeddings": True},
        model__embed_tokens__weight=weights(),
        lm_head__weight=weights(),
    )
    assert load_head(folder).record.tied is True


def test_sharded_index_decides_after_all_shards(tmp_path: Path) -> None:
    safetensors(
        tmp_path / "model-00001-of-00002.safetensors", model__embed_tokens__weight=weights()
    )
    safetensors(tmp_path / "model-00002-of-00002.safetensors", lm_head__weight=weights(seed=1))
    index = {
        "weight_map": {
            "model.embed_tokens.weight": "model-00001-of-00002.safetensors",
            "lm_head.weight": "model-00002-of-00002.safetensors",
        }
    }
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    for path in (
        tmp_path,
        tmp_path / "model.safetensors.index.json",
        tmp_path / "model-00001-of-00002.safetensors",
    ):
        head = load_head(path)
        assert head.record.tied is False and torch.equal(matrix(head), weights(seed=1))


def test_split_gguf_head_in_the_second_shard(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=1)
    writer.add_tensor("token_embd.weight", weights().numpy())
    writer.add_tensor("output.weight", weights(seed=1).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    shards = sorted(tmp_path.glob("*.gguf"))
    assert len(shards) == 2
    for path in (*shards, tmp_path):
        head = load_head(path)
        assert head.record.tensors == ("output.weight",) and head.record.tied is False
        assert torch.equal(matrix(head), weights(seed=1))


def test_gguf_scale_sidecar_is_applied(tmp_path: Path) -> None:
    scale = np.array([0.25], dtype=np.float32)
    path = gguf_file(tmp_path / "h.gguf", {"output.weight": weights(), "output.scale": scale})
    assert torch.equal(matrix(load_head(path)), weights() * 0.25)
    bad = gguf_file(tmp_path / "b.gguf", {"output.weight": weights(), "output.scale": -scale})
    with pytest.raises(AuditError, match=r"output\.scale must be one positive number"):
        load_head(bad)


def test_bias_is_read_and_must_fit(tmp_path: Path) -> None:
    bias = torch.arange(V).float()
    path = safetensors(tmp_path / "h.safetensors", lm_head__weight=weights(), lm_head__bias=bias)
    head = load_head(path)
    assert head.bias is not None and torch.equal(head.bias, bias) and head.record.bias
    short = safetensors(
        tmp_path / "s.safetensors", lm_head__weight=weights(), lm_head__bias=bias[:-1]
    )
    with pytest.raises(MismatchError, match=r"lm_head\.bias has 15 values where 16"):
        load_head(short)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("lm_head.ALinear.weight", "lm_head.BLinear.weight"),
        ("lm_head.U", "lm_head.V"),
        ("anything", "else"),
    ],
)
def test_low_rank_by_name_or_shape(tmp_path: Path, left: str, right: str) -> None:
    a, b = weights(V, 4, seed=1), weights(4, H, seed=2)
    head = load_head(safetensors(tmp_path / "h.safetensors", **{left: a, right: b}))
    states = weights(5, H, seed=3)
    logits = head.project_in(states) @ matrix(head).T
    torch.testing.assert_close(logits, states @ (a @ b).T)
    assert head.hidden_size == H and head.record.tensors == (left, right)


def test_low_rank_named_by_the_user(tmp_path: Path) -> None:
    tensors = {"p": weights(V, 4), "q": weights(4, H), "r": weights(3, 3)}
    path = safetensors(tmp_path / "h.safetensors", **tensors)
    with pytest.raises(NotFoundError, match=r"HEAD_ABSENT"):
        load_head(path)
    assert load_head(path, HeadOptions(factors=("p", "q"))).hidden_size == H
    with pytest.raises(MismatchError, match=r"as many columns as the second has rows"):
        load_head(path, HeadOptions(factors=("p", "r")))


def test_absent_head_says_where_it_looked(tmp_path: Path) -> None:
    path = safetensors(tmp_path / "h.safetensors", transformer__h__w=weights())
    with pytest.raises(NotFoundError, match=r"looked for lm_head\.weight") as caught:
        load_head(path)
    assert "transformer.h.w" in caught.value.hint and "--head-tensor" in caught.value.hint


def test_unknown_tensor_name_names_near_ones(tmp_path: Path) -> None:
    path = safetensors(tmp_path / "h.safetensors", my_head__weight=weights())
    with pytest.raises(NotFoundError, match=r"no tensor 'my_haed\.weight'") as caught:
        load_head(path, HeadOptions(tensor="my_haed.weight"))
    assert "my_head.weight" in caught.value.hint


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.uint8, torch.int8])
def test_codes_without_scales_are_never_read_as_numbers(tmp_path: Path, dtype: torch.dtype) -> None:
    path = safetensors(tmp_path / "h.safetensors", lm_head__weight=torch.ones(V, H).to(dtype))
    with pytest.raises(UnsupportedFormatError, match=r"SCALE_MISSING"):
        load_head(path)


def test_scales_without_a_use_are_refused_by_name(tmp_path: Path) -> None:
    path = safetensors(
        tmp_path / "h.safetensors",
        lm_head__weight=torch.ones(V, H).bfloat16(),
        lm_head__weight_scale=torch.ones(V, 1),
    )
    with pytest.raises(UnsupportedFormatError, match=r"SCALE_UNUSED: lm_head\.weight_scale"):
        load_head(path)


def test_a_vector_is_no_head(tmp_path: Path) -> None:
    path = safetensors(tmp_path / "h.safetensors", lm_head__weight=torch.ones(5))
    with pytest.raises(MismatchError, match=r"shape \[5\]"):
        load_head(path)


def test_the_hash_is_of_the_head_and_not_of_the_file(tmp_path: Path) -> None:
    alone = safetensors(tmp_path / "a.safetensors", lm_head__weight=weights().bfloat16())
    beside = safetensors(
        tmp_path / "b.safetensors", lm_head__weight=weights().bfloat16(), other=torch.ones(3)
    )
    changed = weights().bfloat16()
    changed[0, 0] += 1
    other = safetensors(tmp_path / "c.safetensors", lm_head__weight=changed)
    hashes = [load_head(path).record.sha256 for path in (alone, beside, other)]
    assert hashes[0] == hashes[1] != hashes[2]
