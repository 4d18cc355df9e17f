"""Configurations from strangers: refused by name, never a hang, never a traceback."""

from __future__ import annotations

import json

import pytest
import torch

from audit.blocks import BlockOptions, load_block_head
from audit.blocks.architecture import config_record, text_config
from audit.errors import AuditError, BadUsageError, MismatchError, UnreadableError
from audit.files import open_container
from audit.heads.options import HeadOptions

from .test_eagle3 import (
    LAYERS,
    draft_tensors,
    midlayer_folder,
    speculators_folder,
)
from .test_exits import write_gguf
from .test_mtp_layouts import moe_model, qwen, write_mtp_gguf
from .tiny import H, random_trace, save_folder, save_model, tiny_model

ODD = (["a"], {"a": 1}, "x", -1, 0, 1.5, 10**9, 10**20, 1e308, None, True, float("nan"))


def load(path, name: str, block: BlockOptions | None = None, base=None):
    return load_block_head(open_container(path), name, HeadOptions(), base, block or BlockOptions())


def config_of(folder) -> dict:
    return json.loads((folder / "config.json").read_text())


def write_config(folder, config) -> None:
    (folder / "config.json").write_text(json.dumps(config))


def odd_loads(folder, names, keys):
    """Load with each key at each odd value; AuditError is the only thing that may be raised."""
    config, refused = config_of(folder), 0
    for key in keys:
        place = config["rope_parameters"] if key in config.get("rope_parameters", {}) else config
        before = place[key]
        for value in ODD:
            place[key] = value
            write_config(folder, config)
            for name in names:
                try:
                    load(folder, name)
                except AuditError as error:
                    assert error.message and error.exit_code == 2
                    refused += 1
        place[key] = before
    write_config(folder, config)
    return refused


def test_odd_values_of_a_models_configuration(tmp_path):
    folder, _ = qwen(tmp_path)
    keys = (
        "model_type", "hidden_size", "intermediate_size", "num_attention_heads", "head_dim",
        "num_key_value_heads", "rms_norm_eps", "layer_types", "rope_theta", "rope_type",
        "partial_rotary_factor", "rope_parameters", "max_position_embeddings", "attention_dropout",
        "hidden_act", "mtp_num_hidden_layers", "vocab_size", "tie_word_embeddings",
    )  # fmt: skip
    refused = odd_loads(folder, ("mtp", "exit:2"), keys)
    assert refused > 2 * len(keys)
    assert load(folder, "mtp").block is not None  # the configuration as it was


def test_odd_values_of_a_drafts_configuration(tmp_path):
    w = draft_tensors()
    flat = midlayer_folder(tmp_path / "m", w, eagle_aux_hidden_state_layer_ids=[1, 2, 3],
                           target_hidden_size=H, norm_before_residual=False)  # fmt: skip
    keys = (
        "hidden_size", "head_dim", "num_attention_heads", "eagle_aux_hidden_state_layer_ids",
        "target_hidden_size", "norm_before_residual", "rope_theta", "vocab_size", "model_type",
    )  # fmt: skip
    assert odd_loads(flat, ("eagle3",), keys) > len(keys)


def deep(folder, layers):
    config = config_of(folder)
    config.pop("layer_types", None)
    write_config(folder, config | {"num_hidden_layers": layers})
    return folder


def test_more_layers_than_the_files_hold(tmp_path):
    model = save_model(tiny_model("llama"), tmp_path / "llama")
    mtp, _ = qwen(tmp_path / "qwen")
    for layers in (257, 10**9, 10**20, 1e300):
        for folder, name in ((model, "exit:2"), (mtp, "mtp"), (mtp, "exit:2")):
            with pytest.raises(UnreadableError, match=r"asks for .* layers, the files hold 4"):
                load(deep(folder, layers), name)
    assert load(deep(model, 4), "exit:2").block and load(deep(mtp, 4), "mtp").block


def test_an_mtp_file_alone_may_belong_to_a_deep_model(tmp_path):
    whole, tensors = qwen(tmp_path / "whole")
    alone = {n: v for n, v in tensors.items() if n.startswith("mtp.")}
    folder = save_folder(tmp_path / "alone", config_of(whole), alone)
    shared = {"lm_head.weight": tensors["lm_head.weight"],
              "model.embed_tokens.weight": tensors["model.embed_tokens.weight"]}  # fmt: skip
    verifier = open_container(save_folder(tmp_path / "target", {"model_type": "llama"}, shared))
    assert load(deep(folder, 61), "mtp", BlockOptions(verifier=verifier)).block
    with pytest.raises(UnreadableError, match=r"asks for 1e\+09 layers, the files hold 0"):
        load(deep(folder, 10**9), "mtp", BlockOptions(verifier=verifier))


def test_more_layers_than_a_gguf_holds(tmp_path):
    model, mtp = moe_model("qwen3_5_moe_text")
    path = tmp_path / "mtp.gguf"
    write_mtp_gguf(path, "qwen35moe", model, mtp)
    raw = path.read_bytes()
    key = b"qwen35moe.block_count"
    at = raw.index(key) + len(key) + 4  # after the type of the value
    assert int.from_bytes(raw[at : at + 4], "little") == 5
    path.write_bytes(raw[:at] + (10**9).to_bytes(4, "little") + raw[at + 4 :])
    with pytest.raises(UnreadableError, match=r"asks for 1e\+09 layers, the files hold 5"):
        load(path, "mtp")
    llama = write_gguf(tmp_path / "l.gguf", tiny_model("llama"), "llama", {"block_count": 4096})
    with pytest.raises(UnreadableError, match="asks for 4096 layers, the files hold 4"):
        load(llama, "exit:2")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("partial_rotary_factor", 0), ("partial_rotary_factor", -0.5),
        ("partial_rotary_factor", 1.5), ("partial_rotary_factor", float("nan")),
        ("rope_theta", 0), ("rope_theta", -1.0), ("rope_theta", float("inf")),
        ("rope_theta", 10**400), ("factor", 0),
    ],
)  # fmt: skip
def test_rotary_settings_that_mean_nothing_are_named(tmp_path, key, value):
    folder, _ = qwen(tmp_path)
    config = config_of(folder)
    config["rope_parameters"][key] = value
    write_config(folder, config)
    for name in ("mtp", "exit:2"):
        with pytest.raises(UnreadableError, match=rf"rope_parameters\.{key} is .*; it must be"):
            load(folder, name)


def test_a_share_too_small_to_rotate_anything(tmp_path):
    folder, _ = qwen(tmp_path)
    config = config_of(folder)
    config["rope_parameters"]["partial_rotary_factor"] = 0.1  # of 8
    write_config(folder, config)
    with pytest.raises(UnreadableError, match="nothing to rotate by"):
        load(folder, "mtp")


def test_infinities_that_models_are_published_with_are_hashed_in_words(tmp_path):
    """As `time_step_limit: [0.0, Infinity]`; JSON has no such number."""
    fields = tiny_model("llama").config.to_dict() | {"time_step_limit": [0.0, float("inf")]}
    record = config_record(text_config(fields, tmp_path))
    assert record["time_step_limit"] == [0.0, "inf"]
    json.dumps(record, allow_nan=False)


@pytest.mark.parametrize("offset", [128, 1_000_000, 10**20, -1])
def test_a_position_beyond_the_models(tmp_path, offset):
    folder, _ = qwen(tmp_path / "qwen")
    draft = speculators_folder(tmp_path / "draft", draft_tensors())
    nested = config_of(draft)
    nested["transformer_layer_config"]["max_position_embeddings"] = 128
    write_config(draft, nested)
    for place, name in ((folder, "mtp"), (draft, "eagle3")):
        with pytest.raises(BadUsageError, match=rf"--position-offset {offset} is outside the 128"):
            load(place, name, BlockOptions(position_offset=offset))
        assert load(place, name, BlockOptions(position_offset=127)).block


def test_the_usual_layers_of_a_shallow_target_are_not_guessed(tmp_path):
    """2, n / 2 and n - 3 of a model of n layers: three, and in order, from seven layers on."""
    own = {key: value for key, value in draft_tensors().items() if key != "embed_tokens.weight"}
    folder = midlayer_folder(tmp_path / "draft", own)
    for depth, layers in (
        (3, None),
        (4, None),
        (5, None),
        (6, None),
        (7, (2, 3, 4)),
        (8, (2, 4, 5)),
    ):
        target = save_model(tiny_model("llama", num_hidden_layers=depth), tmp_path / f"t{depth}")
        head = load(folder, "eagle3", BlockOptions(verifier=open_container(target)))
        assert head.block.reads.layers == layers
    assert "given" not in " ".join(head.record.notes)


def test_another_number_of_layers_is_said_so(tmp_path):
    """Not that the head or the trace were of another model."""
    w = draft_tensors()
    stated = speculators_folder(tmp_path / "stated", w)
    words = r"fc\.weight reads 3 states of width 32, and 2 layers are named"
    with pytest.raises(MismatchError, match=words) as caught:
        load(stated, "eagle3", BlockOptions(aux_layers=(1, 2)))
    assert "--aux-layers" in caught.value.hint
    silent = load(midlayer_folder(tmp_path / "m", w), "eagle3", BlockOptions(aux_layers=(1, 2)))
    with pytest.raises(MismatchError, match=words):
        silent.block.run(random_trace(layers=LAYERS))
    target = open_container(save_model(tiny_model("llama"), tmp_path / "target"))
    with pytest.raises(MismatchError, match=words):
        load(tmp_path / "m", "eagle3", BlockOptions(aux_layers=(1, 2), verifier=target))


@pytest.mark.parametrize("stated", [[1, 1, 2], "1,2,3", [1, "2", 3], [-1, 2, 3], {"a": 1}, 5])
def test_stated_layers_that_can_not_be_meant(tmp_path, stated):
    folder = midlayer_folder(tmp_path, draft_tensors(), eagle_aux_hidden_state_layer_ids=stated)
    with pytest.raises(UnreadableError, match=r"eagle_aux_hidden_state_layer_ids is .* different"):
        load(folder, "eagle3")


def test_an_mlp_that_was_cut_to_nothing(tmp_path):
    folder, tensors = qwen(tmp_path / "ref")
    ref = load(folder, "mtp")
    stem = "mtp.layers.0.mlp."
    block = {n: v for n, v in tensors.items() if n.startswith("mtp.")}
    none = block | {
        f"{stem}gate_proj.weight": torch.zeros(0, H), f"{stem}up_proj.weight": torch.zeros(0, H),
        f"{stem}down_proj.weight": torch.zeros(H, 0),
    }  # fmt: skip
    rank_0 = {n: v for n, v in block.items() if n != f"{stem}up_proj.weight"} | {
        f"{stem}up_proj.ALinear.weight": torch.zeros(64, 0),
        f"{stem}up_proj.BLinear.weight": torch.zeros(0, H),
    }
    for number, weights in enumerate((none, rank_0)):
        place = save_folder(tmp_path / str(number), {}, weights)
        (place / "config.json").unlink()
        with pytest.raises(MismatchError, match=r"BLOCK_SHAPE.*nothing in it"):
            load(place, "mtp", base=ref)
