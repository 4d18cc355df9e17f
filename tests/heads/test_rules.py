"""What configurations say: softcap, scales in both directions, norms, padding."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from audit.errors import UnreadableError
from audit.heads import HeadOptions, load_candidate, load_head
from audit.heads.head import FinalNorm, Head, PostHead
from audit.heads.rules import rules_of_config, rules_of_gguf
from tests.heads.files import H, V, gguf_file, model_folder, safetensors, weights

NOWHERE = Path("no-such-folder")


@pytest.mark.parametrize(
    ("config", "scale", "softcap"),
    [
        ({"model_type": "gemma2", "final_logit_softcapping": 30.0}, 1.0, 30.0),
        ({"model_type": "recurrent_gemma", "logits_soft_cap": 20}, 1.0, 20.0),
        ({"model_type": "cohere", "logit_scale": 0.0625}, 0.0625, None),
        ({"model_type": "granite", "logits_scaling": 8.0}, 0.125, None),
        ({"model_type": "hyperclovax", "logits_scaling": 8.0}, 8.0, None),
        ({"model_type": "falcon_h1", "lm_head_multiplier": 0.5}, 0.5, None),
        ({"model_type": "minicpm", "dim_model_base": 256, "hidden_size": 2304}, 256 / 2304, None),
        ({"text_config": {"model_type": "gemma3_text", "final_logit_softcapping": 9}}, 1.0, 9.0),
        ({"model_type": "llama", "final_logit_softcapping": None}, 1.0, None),
    ],
)
def test_post_head_rules_of_config(
    config: dict[str, object], scale: float, softcap: float | None
) -> None:
    post = rules_of_config(config, NOWHERE).post
    assert post.scale == pytest.approx(scale) and post.softcap == softcap


@pytest.mark.parametrize(
    ("arch", "scale"),
    [("command-r", 4.0), ("cohere2", 4.0), ("granite", 0.25), ("granitemoe", 0.25),
     ("minicpm", 0.25), ("falcon-h1", 1.0)],
)  # fmt: skip
def test_one_gguf_key_two_meanings(arch: str, scale: float) -> None:
    metadata = {"general.architecture": arch, f"{arch}.logit_scale": 4.0}
    assert rules_of_gguf(metadata).post.scale == scale


def test_a_scale_that_is_not_positive_is_refused() -> None:
    with pytest.raises(UnreadableError, match="logit_scale is -1"):
        rules_of_config({"logit_scale": -1.0}, NOWHERE)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -30.0, "30", True, [1], 10**400])
@pytest.mark.parametrize("key", ["final_logit_softcapping", "logit_scale"])
def test_what_is_no_positive_finite_number_is_refused(key: str, value: object) -> None:
    with pytest.raises(UnreadableError, match="must be a positive finite number"):
        rules_of_config({"model_type": "gemma2", key: value}, NOWHERE)
    with pytest.raises(UnreadableError, match="must be a positive finite number"):
        rules_of_gguf({"general.architecture": "gemma2", f"gemma2.{key}": value})


def test_a_key_that_is_not_understood_is_named() -> None:
    rules = rules_of_config({"model_type": "new", "my_logit_scaling": 3.0}, NOWHERE)
    (note,) = rules.notes
    assert note.startswith("KEY_NOT_UNDERSTOOD: my_logit_scaling in the configuration")


def test_post_head_keeps_the_order_of_logits() -> None:
    logits = torch.linspace(-200, 200, 1001)
    post = PostHead(scale=0.1, softcap=30.0)
    assert (post(logits).diff() >= 0).all()
    torch.testing.assert_close(post(logits), 30 * torch.tanh(logits * 0.1 / 30))
    assert PostHead().is_identity and not post.is_identity


def test_hf_norm_of_one_plus_models_and_the_gguf_of_the_same(tmp_path: Path) -> None:
    stored = torch.linspace(-0.5, 0.5, H)
    base = {"rms_norm_eps": 1e-6, "tie_word_embeddings": False}
    tensors = {"lm_head__weight": weights(), "model__norm__weight": stored}
    plus = load_head(model_folder(tmp_path / "a", base | {"model_type": "qwen3_5"}, **tensors))
    plain = load_head(model_folder(tmp_path / "b", base | {"model_type": "llama"}, **tensors))
    ready = load_head(
        gguf_file(
            tmp_path / "c.gguf",
            {"output.weight": weights(), "output_norm.weight": stored + 1},
            arch="qwen35",
            qwen35__attention__layer_norm_rms_epsilon=1e-6,
        )
    )
    assert plus.norm and plain.norm and ready.norm
    torch.testing.assert_close(plus.norm.gain, stored + 1)
    torch.testing.assert_close(plain.norm.gain, stored)
    torch.testing.assert_close(ready.norm.gain, plus.norm.gain)


def test_norms_are_those_of_the_textbook() -> None:
    states, gain = weights(3, H), torch.linspace(0.5, 1.5, H)
    rms = states / (states.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * gain
    torch.testing.assert_close(FinalNorm(gain, 1e-5)(states), rms)
    bias = torch.linspace(-1, 1, H)
    centred = states - states.mean(-1, keepdim=True)
    layer = centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * gain + bias
    torch.testing.assert_close(FinalNorm(gain, 1e-5, bias)(states), layer)


def test_tokenizer_beside_the_head_tells_padding(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "m", {"tie_word_embeddings": False}, lm_head__weight=weights())
    tokenizer = {
        "model": {"vocab": {f"w{i}": i for i in range(10)}},
        "added_tokens": [{"id": 12, "content": "<eos>", "special": True}],
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert load_head(folder).valid == 13
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(UnreadableError, match=r"tokenizer\.json is not a tokenizer"):
        load_head(folder)


def test_gguf_pad_tokens_are_padding(tmp_path: Path) -> None:
    metadata = {
        "general.architecture": "llama",
        "tokenizer.ggml.tokens": ["a", "[PAD1]", "b", "[PAD3]", "[PAD4]"],
        "tokenizer.ggml.token_type": [1, 5, 1, 5, 5],
    }
    assert rules_of_gguf(metadata).valid == 3


def test_a_bare_candidate_takes_the_references_rules(tmp_path: Path) -> None:
    config = {"model_type": "gemma2", "final_logit_softcapping": 30.0, "rms_norm_eps": 1e-6}
    ref = load_head(
        model_folder(
            tmp_path / "m", config, lm_head__weight=weights(), model__norm__weight=torch.ones(H)
        )
    )
    bare = safetensors(tmp_path / "c.safetensors", lm_head__weight=weights(seed=2))
    cand = load_candidate(bare, HeadOptions(), ref)
    assert isinstance(cand, Head)
    assert cand.post == ref.post == PostHead(softcap=30.0) and cand.norm is ref.norm
    assert any("the reference's post-head rule" in note for note in cand.record.notes)


def test_padding_rows_of_one_side_only_align(tmp_path: Path) -> None:
    config: dict[str, object] = {"tie_word_embeddings": False}
    folders = []
    for name, rows in (("ref", V), ("cand", V - 3)):
        folder = model_folder(tmp_path / name, config, lm_head__weight=weights(rows))
        vocab = {f"w{i}": i for i in range(12)}
        (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}}))
        folders.append(folder)
    ref = load_head(folders[0])
    cand = load_candidate(folders[1], HeadOptions(), ref)
    assert isinstance(cand, Head) and cand.is_full and cand.valid == ref.valid == 12
