"""Opening a verifier: hashes, quiet streams, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.utils import logging as hf_logging

from audit.errors import (
    MissingExtraError,
    NotFoundError,
    UnreadableError,
    UnsupportedFormatError,
)
from audit.provenance import sha256_files, vocabulary_sha256
from audit.traces import model_files
from audit.traces import verifier as module
from audit.traces.verifier import load_tokenizer, load_verifier
from tests.heads.files import gguf_file


@pytest.fixture
def folder(llama_folder, tmp_path):
    return Path(shutil.copytree(llama_folder, tmp_path / "copy"))


def edit_config(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_a_folder_gives_name_hashes_and_vocabulary(llama, qwen3, llama_folder):
    assert llama.identity.name == "llama"
    assert llama.identity.model_sha256 == sha256_files([llama_folder / "model.safetensors"])
    assert llama.vocabulary == len(llama.tokenizer.get_vocab())
    assert llama.vocabulary == llama.model.lm_head.weight.shape[0] - 11
    # Both were trained on one text: one vocabulary, whatever the tokenizer does with it.
    assert qwen3.tokenizer_sha256 == llama.tokenizer_sha256
    assert not llama.model.training
    assert not any(parameter.requires_grad for parameter in llama.model.parameters())


def test_the_vocabulary_hash_ignores_order_and_sees_every_change():
    words = {"b": 1, "a": 0, "é": 2}
    assert vocabulary_sha256(words) == vocabulary_sha256(dict(sorted(words.items())))
    assert vocabulary_sha256(words) != vocabulary_sha256({"b": 0, "a": 1, "é": 2})


def test_other_files_in_the_folder_do_not_change_the_model_hash(folder, llama):
    save_file({"x": torch.zeros(1)}, folder / "code.trace.safetensors")
    assert load_verifier(folder).identity.model_sha256 == llama.identity.model_sha256


def test_loading_writes_nothing_and_leaves_the_settings_of_transformers(folder, capfd):
    before = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    load_verifier(folder)
    assert capfd.readouterr() == ("", "")
    assert (hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()) == before


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_dtype_is_the_one_asked_for(folder, dtype):
    assert load_verifier(folder, "cpu", dtype).model.dtype == dtype


def test_shards_are_hashed_and_a_missing_one_is_named(folder):
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    parts = {"a.safetensors": names[:5], "b.safetensors": names[5:]}
    for file, part in parts.items():
        save_file({n: tensors[n] for n in part}, folder / file, metadata={"format": "pt"})
    weight_map = {name: file for file, part in parts.items() for name in part}
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()
    assert load_verifier(folder).identity.model_sha256 == sha256_files(
        [folder / file for file in parts]
    )
    (folder / "b.safetensors").unlink()
    with pytest.raises(NotFoundError, match=r"lacks the shards b\.safetensors"):
        load_verifier(folder)


@pytest.mark.parametrize("model_type", ["mystery", "llama"])
def test_code_in_the_folder_is_never_run(folder, model_type):
    marker = folder / "ran"
    code = (
        f"from pathlib import Path\nPath({str(marker)!r}).touch()\nclass M: pass\nclass C: pass\n"
    )
    (folder / "code.py").write_text(code)
    auto_map = {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"}
    edit_config(folder, model_type=model_type, auto_map=auto_map)
    if model_type == "llama":  # transformers knows this one itself, and uses its own class
        assert type(load_verifier(folder).model).__module__.startswith("transformers.")
    else:
        with pytest.raises(UnsupportedFormatError, match="code beside it is never run"):
            load_verifier(folder)
    assert not marker.exists()


def test_a_model_that_is_no_language_model_is_refused(folder):
    edit_config(folder, model_type="vit")
    with pytest.raises(UnsupportedFormatError, match="no language model for the type 'vit'"):
        load_verifier(folder)


def test_pickled_weights_are_not_opened(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(NotFoundError, match="holds no weights in safetensors"):
        load_verifier(folder)


def test_missing_weights_are_not_filled_with_random_numbers(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UnreadableError, match=r"lacks 1 weights of its model: model\.layers\.1"):
        load_verifier(folder)


def test_cut_weights_are_refused(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UnreadableError, match="cannot open the model"):
        load_verifier(folder)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"intermediate_size": 48}, r"layers\.0\.mlp\.gate_proj\.weight .*: 64 x 32 .* 48 x 32 "),
        ({"hidden_size": 64}, r"embed_tokens\.weight .*: \d+ x 32 held, \d+ x 64 expected"),
        ({"vocab_size": 10**9}, r"embed_tokens\.weight .*: \d+ x 32 held, 1,000,000,000 x 32 "),
        ({"model_type": "gemma"}, r"layers\.0\.self_attn\.q_proj\.weight .* 1,024 x 32 expected"),
    ],
)
def test_weights_of_another_shape_are_named(folder, fields, words):
    """Sizes are those of SMALL in the fixtures; gemma's heads are 256 wide whatever the width."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | fields
    if "model_type" in fields:
        del config["head_dim"]
    path.write_text(json.dumps(config))
    with pytest.raises(UnreadableError, match=words):
        load_verifier(folder)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"layer_types": ["full_attention"] * 4}, r"\(2\) must be equal .* \(4\)"),
        ({"num_attention_heads": "x"}, "expected int, got str"),
        ({"num_attention_heads": 0}, "cannot open the model"),
        ({"rope_parameters": 7}, "rope_parameters"),
    ],
)
def test_a_configuration_that_lies_is_refused(folder, fields, words):
    edit_config(folder, **fields)
    if "layer_types" in fields:
        edit_config(folder, model_type="qwen3")
    with pytest.raises(UnreadableError, match=words) as caught:
        load_verifier(folder)
    assert "\n" not in caught.value.message


def test_a_folder_without_tokenizer_is_refused(folder, monkeypatch):
    for file in folder.glob("tokenizer*"):
        file.unlink()
    monkeypatch.setattr(module, "_load_model", lambda *args: pytest.fail("it was loaded"))
    with pytest.raises(NotFoundError, match="no tokenizer in") as caught:
        load_verifier(folder)
    assert "tokenizer.json" in caught.value.hint
    with pytest.raises(NotFoundError, match="no tokenizer in"):
        load_tokenizer(folder)


@pytest.mark.parametrize("key", ["num_hidden_layers", "vision_config", "n_layer"])
def test_more_layers_than_the_files_hold_are_never_built(folder, key, monkeypatch):
    monkeypatch.setattr(module, "_load_model", lambda *args: pytest.fail("it was built"))
    config = json.loads((folder / "config.json").read_text())
    config[key] = {"num_hidden_layers": 10**9} if key == "vision_config" else 10**9
    (folder / "config.json").write_text(json.dumps(config))
    for load in (load_verifier, load_tokenizer):
        with pytest.raises(UnreadableError, match=r"asks for 1e\+09 layers, the files hold \d"):
            load(folder)


def test_a_gguf_that_says_it_is_deeper_than_it_is(tmp_path, monkeypatch):
    pytest.importorskip("accelerate")
    monkeypatch.setattr(module, "_load_model", lambda *args: pytest.fail("it was built"))
    path = gguf_file(
        tmp_path / "m.gguf", {"blk.1.attn_norm.weight": torch.ones(32)}, llama__block_count=10**9
    )
    with pytest.raises(UnreadableError, match=r"asks for 1e\+09 layers, the files hold 2"):
        load_verifier(path)


def test_a_tokenizer_of_special_tokens_alone_is_none(folder, monkeypatch):
    """What transformers makes up for some models where the files are missing."""

    class Bare:
        all_special_tokens = ("<|endoftext|>",)

        def get_vocab(self):
            return {"<|endoftext|>": 0}

    monkeypatch.setattr(module.AutoTokenizer, "from_pretrained", lambda **kwargs: Bare())
    with pytest.raises(NotFoundError, match="no tokenizer in"):
        load_tokenizer(folder)


def test_broken_configs_and_missing_models(folder, tmp_path):
    with pytest.raises(NotFoundError, match="no model at"):
        load_verifier(tmp_path / "none")
    with pytest.raises(NotFoundError, match=r"no config\.json in"):
        load_verifier(tmp_path)
    for text in ("{", "[]"):
        (folder / "config.json").write_text(text)
        with pytest.raises(UnreadableError, match="JSON"):
            load_verifier(folder)


def test_files_that_are_no_model_and_split_gguf(llama_folder, tmp_path):
    with pytest.raises(UnsupportedFormatError, match="neither a model folder nor a GGUF"):
        load_verifier(llama_folder / "model.safetensors")
    part = tmp_path / "m-00001-of-00003.gguf"
    part.write_bytes(b"GGUF")
    with pytest.raises(UnsupportedFormatError, match="one part of a split GGUF"):
        load_verifier(part)


def test_gguf_needs_accelerate(tmp_path, monkeypatch):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF")
    monkeypatch.setattr(model_files.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="accelerate") as caught:
        load_verifier(path)
    assert caught.value.hint == "pip install accelerate"


def test_a_damaged_gguf_is_refused(tmp_path):
    pytest.importorskip("accelerate")
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(UnreadableError, match="cannot open the model"):
        load_verifier(path)
