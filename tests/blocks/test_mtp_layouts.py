"""MTP heads of other layouts, against transformers' own `MtpModel`."""

from __future__ import annotations

import gguf
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.modeling_layers import MtpModel

from audit.blocks import BlockOptions, heads_in, load_block_head
from audit.blocks.preflight import check_container
from audit.errors import BadUsageError, MismatchError, NotFoundError, UnsupportedFormatError
from audit.files import open_container
from audit.heads.options import HeadOptions

from .tiny import (
    H,
    V,
    capture,
    make_trace,
    near,
    random_trace,
    save_folder,
    save_model,
    shake,
    tiny_model,
)

MOE = {
    "n_routed_experts": 4, "moe_intermediate_size": 16, "num_experts_per_tok": 2,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1,
}  # fmt: skip
KINDS = {
    "deepseek_v3": MOE
    | {
        "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
        "v_head_dim": 8, "num_key_value_heads": 4,
    },
    "glm4_moe": MOE | {"n_group": 1},
}  # fmt: skip


def appended(mtp, layers: int) -> dict[str, torch.Tensor]:
    """The MTP layer as DeepSeek publishes it: after the last layer, each expert on its own."""
    stem, tensors = f"model.layers.{layers}.", {}
    for name, value in mtp.layers[0].state_dict().items():
        name = name.removeprefix("mtp_block.").replace("post_norm.", "shared_head.norm.", 1)
        if name.endswith("experts.gate_up_proj"):
            for expert, both in enumerate(value):
                gate, up = both.chunk(2)
                tensors[f"{stem}mlp.experts.{expert}.gate_proj.weight"] = gate
                tensors[f"{stem}mlp.experts.{expert}.up_proj.weight"] = up
        elif name.endswith("experts.down_proj"):
            for expert, down in enumerate(value):
                tensors[f"{stem}mlp.experts.{expert}.down_proj.weight"] = down
        else:
            tensors[stem + name] = value
    return tensors


def oracle(mtp, trace) -> torch.Tensor:
    """transformers' own layer, each sequence alone; rows without a next token stay zero."""
    out = torch.zeros(trace.positions, H)
    for number in range(trace.sequences):
        rows = (trace.sequence == number).nonzero().flatten()
        if len(rows) < 2:
            continue
        here, after = rows[:-1], rows[1:]
        out[here] = mtp.forward_layer(
            0,
            trace.hidden[here].unsqueeze(0),
            trace.position[after].unsqueeze(0),
            None,
            input_ids=trace.token[after].unsqueeze(0),
        )[0]
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_appended_layer_is_transformers_mtp_model(tmp_path, kind):
    model = tiny_model(kind, **KINDS[kind])
    mtp = MtpModel(model, 1).eval()
    shake(mtp.layers)
    for module in mtp.layers.modules():
        if "e_score_correction_bias" in module._buffers:
            module.e_score_correction_bias.copy_(torch.randn(4))
    more = {name.replace(".", "__"): value for name, value in appended(mtp, 4).items()}
    folder = save_model(model, tmp_path, **more)
    trace = capture(model)
    with torch.no_grad():
        expected = oracle(mtp, trace)
    container = open_container(folder)
    assert heads_in(container) == ["lm", "mtp", "exit:2"]
    head = load_block_head(container, "mtp", HeadOptions())
    assert near(head.block.run(trace), expected)
    parts = [key for key in head.block.tensors if ".experts." in key]
    assert len(parts) == 3 * 4
    assert "MTP_PRESENT_UNDECLARED" not in [code for code, _, _ in check_container(container)]


QWEN_MOE = {
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 24, "tie_word_embeddings": False,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "rope_parameters": {
        "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "rope_type": "default"
    },
}  # fmt: skip


def qwen_named(mtp, split: bool) -> dict[str, torch.Tensor]:
    """The same MTP layer under Qwen's names, experts one by one (published) or fused (re-saved)."""
    renames = {
        "enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden", "eh_proj": "fc",
        "post_norm": "norm",
    }  # fmt: skip
    tensors = {}
    for name, value in appended(mtp, 0).items():
        name = name.removeprefix("model.layers.0.").replace("shared_head.norm", "post_norm")
        part = name.split(".")[0]
        stem = f"mtp.{renames[part]}" if part in renames else f"mtp.layers.0.{part}"
        tensors[stem + name.removeprefix(part)] = value
    if split:
        return tensors
    whole = {key: value for key, value in tensors.items() if ".experts." not in key}
    block = mtp.layers[0].mtp_block.mlp.experts
    stem = "mtp.layers.0.mlp.experts."
    return whole | {f"{stem}gate_up_proj": block.gate_up_proj, f"{stem}down_proj": block.down_proj}


def moe_model(kind: str):
    """A Qwen model with experts and transformers' MTP layer for it, both random."""
    model = tiny_model(kind, **QWEN_MOE)
    model.config.num_mtp_layers, model.config.mtp_layer_types = 1, ["full_attention"]
    mtp = MtpModel(model, 1).eval()
    shake(mtp.layers)
    return model, mtp


@pytest.mark.parametrize("kind", ["qwen3_next", "qwen3_5_moe_text"])
@pytest.mark.parametrize("split", [True, False])
def test_qwen_layout_with_experts(tmp_path, kind, split):
    model, mtp = moe_model(kind)
    tensors = dict(model.state_dict()) | qwen_named(mtp, split)
    folder = save_folder(tmp_path, model.config.to_dict(), tensors)
    trace = random_trace()
    with torch.no_grad():
        expected = oracle(mtp, trace)
    assert near(load(folder).block.run(trace), expected)


@pytest.mark.parametrize("arch", ["qwen35moe", "qwen3next"])
def test_experts_of_a_gguf(tmp_path, arch):
    """An MTP-only file with stacked experts, named by gguf's own table."""
    kind = {"qwen35moe": "qwen3_5_moe_text", "qwen3next": "qwen3_next"}[arch]
    model, mtp = moe_model(kind)
    path = tmp_path / "mtp.gguf"
    write_mtp_gguf(path, arch, model, mtp)
    trace = random_trace()
    with torch.no_grad():
        expected = oracle(mtp, trace)
    assert heads_in(open_container(path)) == ["lm", "mtp"]
    assert near(load(path).block.run(trace), expected)


def write_mtp_gguf(path, arch: str, model, mtp) -> None:
    config, keys = model.config, gguf.MODEL_ARCH
    numbers = {
        "embedding_length": H, "block_count": 5, "nextn_predict_layers": 1, "context_length": 128,
        "attention.head_count": 4, "attention.head_count_kv": 2, "attention.key_length": 8,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps, "rope.dimension_count": 4,
        "rope.freq_base": 10000.0, "expert_count": 4, "expert_used_count": 2,
        "expert_feed_forward_length": 16, "expert_shared_feed_forward_length": 24,
        "ssm.time_step_rank": 4, "ssm.inner_size": 32, "ssm.state_size": 8, "ssm.group_count": 2,
        "ssm.conv_kernel": 4,
    }  # fmt: skip
    writer = gguf.GGUFWriter(path, arch)
    for key, value in numbers.items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"{arch}.{key}", value)
    kind = {"qwen35moe": keys.QWEN35MOE, "qwen3next": keys.QWEN3NEXT}[arch]
    mapping = gguf.get_tensor_name_map(kind, 5)
    extra = {
        "eh_proj": "eh_proj", "enorm": "enorm", "hnorm": "hnorm", "post_norm": "shared_head_norm",
    }  # fmt: skip
    tensors = {
        "output.weight": model.lm_head.weight,
        "token_embd.weight": model.model.embed_tokens.weight,
    }
    for name, value in mtp.layers[0].state_dict().items():
        name = name.removeprefix("mtp_block.")
        if "norm" in name:
            value = value + 1.0
        part = name.split(".")[0]
        if part in extra:
            tensors[f"blk.4.nextn.{extra[part]}.weight"] = value
        elif name.endswith("experts.gate_up_proj"):
            gate, up = value.chunk(2, dim=1)
            tensors |= {"blk.4.ffn_gate_exps.weight": gate, "blk.4.ffn_up_exps.weight": up}
        elif name.endswith("experts.down_proj"):
            tensors["blk.4.ffn_down_exps.weight"] = value
        else:
            found = mapping.get_name(f"model.layers.4.{name}", (".weight",))
            tensors[found] = value.flatten() if "inp_shexp" in found else value
    for name, value in tensors.items():
        writer.add_tensor(name, value.detach().contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def qwen(tmp_path, declared: int | None = 1, **changes):
    """A folder with an untrained MTP head; returns it and its tensors."""
    torch.manual_seed(3)
    model = tiny_model(
        "qwen3_5_text", layer_types=["full_attention"] * 4, tie_word_embeddings=False,
        rope_parameters={
            "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "rope_type": "default"
        },
    )  # fmt: skip
    tensors = dict(model.state_dict())
    for name, value in model.get_decoder().layers[3].state_dict().items():
        tensors[f"mtp.layers.0.{name}"] = torch.randn_like(value) * 0.2
    tensors["mtp.fc.weight"] = torch.randn(H, 2 * H) * 0.2
    for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        tensors[f"mtp.{name}.weight"] = torch.randn(H) * 0.2
    config = model.config.to_dict()
    if declared is not None:
        config["mtp_num_hidden_layers"] = declared
    for name, value in changes.items():
        name = name.replace("__", ".")
        if value is None:
            del tensors[name]
        else:
            tensors[name] = value
    return save_folder(tmp_path, config, tensors), tensors


def load(folder, block: BlockOptions | None = None, base=None):
    return load_block_head(
        open_container(folder), "mtp", HeadOptions(), base, block or BlockOptions()
    )


def test_concat_order_can_be_given(tmp_path):
    folder, tensors = qwen(tmp_path / "a")
    swapped = torch.cat(tensors["mtp.fc.weight"].chunk(2, dim=1)[::-1], dim=1)
    other, _ = qwen(tmp_path / "b", mtp__fc__weight=swapped)
    trace = random_trace()
    ref = load(folder)
    again = load(other, BlockOptions(concat="hidden_first"))
    assert near(ref.block.run(trace), again.block.run(trace))
    assert not near(ref.block.run(trace), load(other).block.run(trace), 1e-2)
    assert again.record.sha256 != load(other).record.sha256


def test_position_offset_changes_nothing_but_the_hash(tmp_path):
    """Rotary attention sees only differences of positions."""
    folder, _ = qwen(tmp_path)
    trace = random_trace()
    ref, moved = load(folder), load(folder, BlockOptions(position_offset=5))
    assert near(ref.block.run(trace), moved.block.run(trace), 1e-4)
    assert ref.record.sha256 != moved.record.sha256


def test_states_before_the_norm_are_normed(tmp_path):
    folder, _ = qwen(tmp_path)
    head = load(folder)
    raw = random_trace()
    early = make_trace(raw.hidden, (7, 3, 11, 1, 6), raw.token, stage="pre_norm")
    late = make_trace(head.norm(raw.hidden), (7, 3, 11, 1, 6), raw.token)
    assert near(head.block.run(early), head.block.run(late))


def test_a_norm_is_never_undone(tmp_path):
    folder, _ = qwen(tmp_path)
    head = load(folder, BlockOptions(stage="pre_norm"))
    with pytest.raises(MismatchError, match="can not be undone") as caught:
        head.block.run(random_trace())
    assert "pre_norm" in caught.value.hint


def test_states_before_a_norm_that_is_not_there(tmp_path):
    folder, _ = qwen(tmp_path, model__norm__weight=None)
    raw = random_trace()
    early = make_trace(raw.hidden, (7, 3, 11, 1, 6), raw.token, stage="pre_norm")
    with pytest.raises(MismatchError, match="no norm was found"):
        load(folder).block.run(early)


def test_multimodal_saves_are_the_same_head(tmp_path):
    """Published Qwen3.5 folders nest the text configuration and prefix the trunk's names."""
    folder, tensors = qwen(tmp_path / "a")
    config = dict(open_container(folder).config)
    nested = {"model_type": "qwen3_5", "text_config": config, "tie_word_embeddings": False}
    renamed = {key.replace("model.", "model.language_model.", 1): v for key, v in tensors.items()}
    other = save_folder(tmp_path / "b", nested, renamed)
    trace = random_trace(layers=[2])
    assert torch.equal(load(other).block.run(trace), load(folder).block.run(trace))
    runs = [
        load_block_head(open_container(path), "exit:2", HeadOptions()).block.run(trace)
        for path in (folder, other)
    ]
    assert torch.equal(*runs)


def test_embedding_of_another_width(tmp_path):
    folder, _ = qwen(tmp_path, model__embed_tokens__weight=torch.randn(V, H + 8))
    with pytest.raises(MismatchError, match=r"BLOCK_SHAPE.*embedding is 40 wide"):
        load(folder)


def test_projection_of_another_width(tmp_path):
    folder, _ = qwen(tmp_path, lm_head__weight=torch.randn(V, 40), model__norm__weight=None)
    with pytest.raises(MismatchError, match=r"BLOCK_SHAPE.*projection"):
        load(folder)


def test_declared_and_absent(tmp_path):
    model = tiny_model("llama")
    config = model.config.to_dict() | {"num_nextn_predict_layers": 1}
    folder = save_folder(tmp_path, config, dict(model.state_dict()))
    with pytest.raises(NotFoundError, match="MTP_DECLARED_ABSENT"):
        load(folder)
    with pytest.raises(NotFoundError, match=r"HEAD_ABSENT"):
        load(save_model(model, tmp_path / "plain"))


def test_present_and_undeclared(tmp_path):
    folder, _ = qwen(tmp_path, declared=None)
    codes = [code for code, _, _ in check_container(open_container(folder))]
    assert "MTP_PRESENT_UNDECLARED" in codes
    # A bare block has no configuration that could fail to declare it.
    (folder / "config.json").unlink()
    codes = [code for code, _, _ in check_container(open_container(folder))]
    assert "MTP_PRESENT_UNDECLARED" not in codes


def test_a_whole_model_without_its_head_is_no_draft(tmp_path):
    folder, _ = qwen(tmp_path, lm_head__weight=None)
    with pytest.raises(NotFoundError, match=r"this model lacks lm_head\.weight though .* not tied"):
        load(folder)
    bare = {name: value for name, value in load_file(folder / "model.safetensors").items()
            if name.startswith("mtp.")}  # fmt: skip
    (folder / "model.safetensors").unlink()
    save_file(bare, folder / "model.safetensors")
    with pytest.raises(NotFoundError, match="this draft holds no head of its own"):
        load(folder)


def test_trace_of_single_rows_has_no_next_tokens(tmp_path):
    folder, _ = qwen(tmp_path)
    with pytest.raises(MismatchError, match="also reads the next token"):
        load(folder).block.run(random_trace(lengths=(1, 1, 1)))


def test_trace_of_another_model(tmp_path):
    folder, _ = qwen(tmp_path)
    head = load(folder)
    with pytest.raises(MismatchError, match="48 wide, the block reads 32"):
        head.block.run(random_trace(width=48))
    raw = random_trace()
    with pytest.raises(MismatchError, match=f"token {V + 2}"):
        head.block.run(make_trace(raw.hidden, (7, 3, 11, 1, 6), raw.token + 3))


def test_a_head_of_its_own_is_preferred(tmp_path):
    own = torch.randn(V, H)
    folder, _ = qwen(tmp_path, mtp__shared_head__head__weight=own)
    head = load(folder)
    assert torch.equal(head.rows.tile(0, V), own)
    assert any("the draft's own head" in note for note in head.record.notes)


def test_halves_of_a_candidate_come_from_the_reference(tmp_path):
    folder, tensors = qwen(tmp_path / "ref")
    ref = load(folder)
    rows = {"lm_head.weight": tensors["lm_head.weight"] + 0.1}
    only_rows = tmp_path / "rows"
    save_folder(only_rows, {}, rows)
    (only_rows / "config.json").unlink()
    projection = load(only_rows, base=ref)
    assert projection.block is ref.block
    assert not torch.equal(projection.rows.tile(0, V), ref.rows.tile(0, V))

    block = {key: value for key, value in tensors.items() if key.startswith("mtp.")}
    only_block = tmp_path / "block"
    save_folder(only_block, {}, block)
    (only_block / "config.json").unlink()
    cand = load(only_block, base=ref)
    assert cand.rows is ref.rows
    assert cand.block.sha256 == ref.block.sha256
    assert cand.record.sha256 == ref.record.sha256
    trace = random_trace()
    assert torch.equal(cand.block.run(trace), ref.block.run(trace))


def test_ambiguous_names_need_the_order(tmp_path):
    folder, tensors = qwen(tmp_path / "a")
    renamed = {
        key.replace("mtp.layers.0.", "mtp_layers.0.")
        .replace("mtp.fc", "mtp_layers.0.input_proj")
        .replace("mtp.pre_fc_norm_embedding", "mtp_layers.0.token_layernorm")
        .replace("mtp.pre_fc_norm_hidden", "mtp_layers.0.hidden_layernorm")
        .replace("mtp.norm", "mtp_layers.0.final_layernorm"): value
        for key, value in tensors.items()
    }
    config = open_container(folder).config
    other = save_folder(tmp_path / "b", dict(config), renamed)
    with pytest.raises(BadUsageError, match="which half"):
        load(other)
    trace = random_trace()
    given = load(other, BlockOptions(concat="embedding_first"))
    assert torch.equal(given.block.run(trace), load(folder).block.run(trace))


def test_packed_blocks_are_named(tmp_path):
    folder, _ = qwen(
        tmp_path,
        mtp__layers__0__mlp__up_proj__weight=None,
        mtp__layers__0__mlp__up_proj__qweight=torch.zeros(4, 8, dtype=torch.int32),
    )
    with pytest.raises(UnsupportedFormatError, match=r"SCALE_MISSING.*up_proj.scales"):
        load(folder)


def test_weights_must_be_finite(tmp_path):
    bad = torch.ones(H)
    bad[3] = float("nan")
    folder, _ = qwen(tmp_path, mtp__norm__weight=bad)
    with pytest.raises(Exception, match=r"NON_FINITE.*mtp\.norm"):
        load(folder)


def test_a_file_of_the_head_alone_takes_the_rest_from_its_target(tmp_path):
    """`mtp.safetensors` as some publish it: embedding, norm and head are the verifier's."""
    folder, tensors = qwen(tmp_path / "whole")
    alone = {key: value for key, value in tensors.items() if key.startswith("mtp.")}
    config = dict(open_container(folder).config)
    draft = save_folder(tmp_path / "alone", config, alone)
    whole = open_container(folder)
    assert heads_in(open_container(draft)) == ["mtp"]
    with pytest.raises(NotFoundError, match="DRAFT_HEAD_ABSENT"):
        load(draft)
    head, ref = load(draft, BlockOptions(verifier=whole)), load(folder)
    trace = random_trace()
    assert torch.equal(head.block.run(trace), ref.block.run(trace))
    assert head.record.sha256 == ref.record.sha256
    assert head.norm is not None
