"""An early exit equals the model's own last layers, from Hugging Face folders and from GGUF."""

from __future__ import annotations

import gguf
import pytest
import torch

from audit.blocks import load_block_head
from audit.errors import BadUsageError, MismatchError, NotFoundError, UnsupportedFormatError
from audit.files import open_container
from audit.heads.options import HeadOptions

from .tiny import H, capture, near, random_trace, save_folder, save_model, tiny_model

KINDS = {
    "llama": {},
    "qwen3": {},
    "gemma3_text": {"sliding_window": 4, "sliding_window_pattern": 2, "query_pre_attn_scalar": 8},
    "glm4_moe": {
        "n_routed_experts": 4, "moe_intermediate_size": 16, "num_experts_per_tok": 2,
        "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
    },
    "granite": {"embedding_multiplier": 3.0, "residual_multiplier": 0.5},
}  # fmt: skip


def run(folder, name: str, trace):
    return load_block_head(open_container(folder), name, HeadOptions()).block.run(trace)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("exit_name", ["exit:3", "exit:2:2-3", "exit:0:0-3"])
def test_exit_is_the_models_own_layers(tmp_path, kind, exit_name):
    model = tiny_model(kind, **KINDS[kind])
    layer = int(exit_name.split(":")[1])
    trace = capture(model, layers=[layer])
    folder = save_model(model, tmp_path)
    assert near(run(folder, exit_name, trace), trace.hidden)


def test_exit_may_skip_layers(tmp_path):
    """`exit:1` of four layers: the state entering layer 1, then layer 3 alone."""
    model = tiny_model("llama")
    trace = capture(model, lengths=[9], layers=[1])
    decoder = model.get_decoder()
    state = trace.states["layer_1"].unsqueeze(0)
    rotary = decoder.rotary_emb(state, torch.arange(9).unsqueeze(0))
    by_hand = decoder.layers[3](state, position_embeddings=rotary, attention_mask=None)
    expected = decoder.norm(by_hand)[0]
    assert near(run(save_model(model, tmp_path), "exit:1", trace), expected)


def permute(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """What llama.cpp's converter does to q and k of its `llama` architecture."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, weight.shape[1])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def write_gguf(path, model, arch: str, keys: dict[str, object]):
    """The model as llama.cpp would convert it."""
    config = model.config
    writer = gguf.GGUFWriter(path, arch)
    numbers = {
        "embedding_length": config.hidden_size, "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size, "context_length": 128,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": config.head_dim, **keys,
    }  # fmt: skip
    for key, value in numbers.items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"{arch}.{key}", value)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", config.rms_norm_eps)
    kind = {"llama": gguf.MODEL_ARCH.LLAMA, "gemma3": gguf.MODEL_ARCH.GEMMA3}[arch]
    mapping = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    for name, value in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if arch == "llama" and ".q_proj." in name:
            value = permute(value, config.num_attention_heads)
        if arch == "llama" and ".k_proj." in name:
            value = permute(value, config.num_key_value_heads)
        if arch == "gemma3" and name.endswith("norm.weight"):
            value = value + 1.0
        writer.add_tensor(mapping.get_name(name, (".weight",)), value.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_llama_gguf_undoes_the_interleaving(tmp_path):
    model = tiny_model("llama")
    path = write_gguf(tmp_path / "m.gguf", model, "llama", {"rope.freq_base": 10000.0})
    trace = capture(model, layers=[2])
    assert near(run(path, "exit:2:2-3", trace), trace.hidden)


def test_gemma3_gguf_undoes_the_added_one(tmp_path):
    # llama.cpp has the pattern of six built in: layer 5 sees everything.
    changes = {"sliding_window": 4, "num_hidden_layers": 7, "query_pre_attn_scalar": 8}
    model = tiny_model("gemma3_text", **changes)
    keys = {"attention.sliding_window": 4, "rope.freq_base": 1000000.0}
    path = write_gguf(tmp_path / "m.gguf", model, "gemma3", keys)
    trace = capture(model, layers=[4])
    assert near(run(path, "exit:4:4-6", trace), trace.hidden)


def test_pruned_and_low_rank_mlps_run(tmp_path):
    """What `forge` makes: fewer channels, or a matrix as two factors."""
    model = tiny_model("llama")
    trace = capture(model, layers=[3])
    tensors = dict(model.state_dict())
    stem = "model.layers.3.mlp."
    kept = torch.arange(0, 64, 2)
    pruned = tensors | {
        f"{stem}gate_proj.weight": tensors[f"{stem}gate_proj.weight"][kept],
        f"{stem}up_proj.weight": tensors[f"{stem}up_proj.weight"][kept],
        f"{stem}down_proj.weight": tensors[f"{stem}down_proj.weight"][:, kept],
    }
    folder = save_folder(tmp_path / "pruned", model.config.to_dict(), pruned)
    head = load_block_head(open_container(folder), "exit:3", HeadOptions())
    assert any("32 wide, the configuration says 64" in note for note in head.record.notes)
    masked = {key: value.clone() for key, value in tensors.items()}
    masked[f"{stem}down_proj.weight"][:, torch.arange(1, 64, 2)] = 0
    same = save_folder(tmp_path / "masked", model.config.to_dict(), masked)
    assert near(head.block.run(trace), run(same, "exit:3", trace))

    left, right = torch.randn(H, 5), torch.randn(5, 64)
    factored = {key: value for key, value in tensors.items() if key != f"{stem}down_proj.weight"}
    factored |= {f"{stem}down_proj.ALinear.weight": left, f"{stem}down_proj.BLinear.weight": right}
    whole = tensors | {f"{stem}down_proj.weight": left @ right}
    one = save_folder(tmp_path / "factored", model.config.to_dict(), factored)
    other = save_folder(tmp_path / "whole", model.config.to_dict(), whole)
    assert near(run(one, "exit:3", trace), run(other, "exit:3", trace), 1e-4)


def test_missing_state_names_the_flag(tmp_path):
    folder = save_model(tiny_model("llama"), tmp_path)
    with pytest.raises(MismatchError) as caught:
        run(folder, "exit:2", random_trace(layers=[1]))
    assert "layer_2" in caught.value.message
    assert "--layer 2" in caught.value.hint


def test_layers_that_do_not_exist(tmp_path):
    folder = save_model(tiny_model("llama"), tmp_path)
    for name in ("exit:4", "exit:1:3-2", "exit:0:0-4"):
        with pytest.raises(BadUsageError, match="model of 4 layers"):
            run(folder, name, random_trace())


def test_shapes_that_do_not_fit(tmp_path):
    model = tiny_model("llama")
    wrong = {"model.layers.3.self_attn.q_proj.weight": torch.randn(H, H + 8)}
    folder = save_folder(tmp_path, model.config.to_dict(), dict(model.state_dict()) | wrong)
    with pytest.raises(MismatchError, match=r"BLOCK_SHAPE.*layers.3.self_attn.q_proj"):
        run(folder, "exit:3", random_trace())


def test_an_mlp_with_two_widths(tmp_path):
    model = tiny_model("llama")
    wrong = {"model.layers.3.mlp.down_proj.weight": torch.randn(H, 40)}
    folder = save_folder(tmp_path, model.config.to_dict(), dict(model.state_dict()) | wrong)
    with pytest.raises(MismatchError, match=r"BLOCK_SHAPE.*does not have one width"):
        run(folder, "exit:3", random_trace())


def test_a_missing_weight_is_never_filled_in(tmp_path):
    model = tiny_model("llama")
    tensors = dict(model.state_dict())
    del tensors["model.layers.3.self_attn.v_proj.weight"]
    folder = save_folder(tmp_path, model.config.to_dict(), tensors)
    with pytest.raises(NotFoundError, match=r"BLOCK_INCOMPLETE.*layers.3.self_attn.v_proj"):
        run(folder, "exit:3", random_trace())


def test_unknown_architectures(tmp_path):
    model = tiny_model("llama")
    config = model.config.to_dict() | {"model_type": "marvin"}
    folder = save_folder(tmp_path / "hf", config, dict(model.state_dict()))
    with pytest.raises(UnsupportedFormatError, match="no language model of type 'marvin'"):
        run(folder, "exit:3", random_trace())
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "rwkv7")
    writer.add_tensor("blk.0.ffn_up.weight", torch.randn(4, 32).numpy())
    writer.add_tensor("output.weight", torch.randn(4, 32).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedFormatError, match="rwkv7"):
        run(tmp_path / "m.gguf", "exit:0", random_trace())


def test_scales_beside_a_weight_are_refused(tmp_path):
    """kekzl/imp PR#1428: a quantized block read as bfloat16 has every draft rejected."""
    stray = {"model__layers__3__mlp__up_proj__weight_scale": torch.ones(64)}
    folder = save_model(tiny_model("llama"), tmp_path, **stray)
    with pytest.raises(UnsupportedFormatError, match=r"SCALE_UNUSED.*up_proj.weight_scale"):
        run(folder, "exit:3", random_trace())


def test_no_configuration(tmp_path):
    folder = save_model(tiny_model("llama"), tmp_path)
    (folder / "config.json").unlink()
    with pytest.raises(NotFoundError, match="needs the configuration"):
        run(folder / "model.safetensors", "exit:3", random_trace())


@pytest.mark.real
def test_gemma_exit_is_gemma(gemma_gguf):
    """From the real GGUF: the state entering layer 14 through layers 14 to 17."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        gemma_gguf.parent, gguf_file=gemma_gguf.name, dtype=torch.float32
    ).eval()
    with torch.no_grad():
        trace = capture(model, lengths=(40, 9), layers=[14])
    assert near(run(gemma_gguf, "exit:14:14-17", trace), trace.hidden, 1e-4)
