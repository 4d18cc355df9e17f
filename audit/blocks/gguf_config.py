"""GGUF key-values as the configuration that transformers uses: a table per architecture.

Where the tensors lie is in `gguf_names`. An architecture that is not in the table is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from audit.errors import UnreadableError, UnsupportedFormatError
from audit.files import Container
from audit.files.depth import check_depth, layers_held

_LAYER = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip
_GEMMA3 = {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip
_QWEN35 = {
    "post_attention_layernorm": "post_attention_norm", "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta", "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out",
}  # fmt: skip

_EXPERTS = {
    "mlp.gate": "ffn_gate_inp", "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps", "mlp.experts.down_proj": "ffn_down_exps",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Arch:
    """How one GGUF architecture maps to transformers."""

    model_type: str
    layer: Mapping[str, str]
    plus_one: bool = False
    """Norms hold 1 + w, all but Qwen3.5's `linear_attn.norm`."""
    permuted: bool = False
    more: Callable[[Mapping[str, Any], dict[str, Any]], dict[str, Any]] = field(
        default=lambda keys, fields: {}
    )
    """Fields beyond the common ones, from the key-values without their prefix."""


def _gemma3(keys: Mapping[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    layers = fields["num_hidden_layers"]
    heads, hidden = fields["num_attention_heads"], fields["hidden_size"]
    local = {"rope_type": "default", "rope_theta": float(keys.get("rope.freq_base_swa", 1e4))}
    head_dim = int(keys.get("attention.key_length", 256))
    return {
        "head_dim": head_dim,
        "sliding_window": int(_needed(keys, "attention.sliding_window")),
        # Only the 27B (62 layers) scales by its width per head; llama.cpp tells it the same way.
        "query_pre_attn_scalar": hidden // heads if layers == 62 else head_dim,
        "rope_parameters": {
            "full_attention": fields.pop("rope_parameters"),
            "sliding_attention": local,
        },
    }


def _qwen35(keys: Mapping[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    layers = fields["num_hidden_layers"]
    value_heads = int(_needed(keys, "ssm.time_step_rank"))
    recurrent = keys.get("attention.recurrent_layers")
    every = int(keys.get("full_attention_interval", 4))
    flags = recurrent or [bool((index + 1) % every) for index in range(layers)]
    share = int(_needed(keys, "rope.dimension_count")) / fields["head_dim"]
    return {
        "rope_parameters": {**fields["rope_parameters"], "partial_rotary_factor": share},
        "linear_conv_kernel_dim": int(_needed(keys, "ssm.conv_kernel")),
        "linear_key_head_dim": int(_needed(keys, "ssm.state_size")),
        "linear_value_head_dim": int(_needed(keys, "ssm.inner_size")) // value_heads,
        "linear_num_key_heads": int(_needed(keys, "ssm.group_count")),
        "linear_num_value_heads": value_heads,
        "layer_types": ["linear_attention" if f else "full_attention" for f in flags[:layers]],
        "mtp_num_hidden_layers": int(keys.get("nextn_predict_layers", 0)),
    }


def _experts(keys: Mapping[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "num_experts": int(_needed(keys, "expert_count")),
        "num_experts_per_tok": int(_needed(keys, "expert_used_count")),
        "moe_intermediate_size": int(_needed(keys, "expert_feed_forward_length")),
        "shared_expert_intermediate_size": int(keys.get("expert_shared_feed_forward_length", 0)),
        # llama.cpp renormalises the chosen experts' weights for all of these.
        "norm_topk_prob": True,
    }


def _qwen35_experts(keys: Mapping[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    return _qwen35(keys, fields) | _experts(keys, fields)


ARCHITECTURES = {
    "llama": Arch("llama", _LAYER, permuted=True),
    "qwen2": Arch("qwen2", _LAYER),
    "qwen3": Arch("qwen3", _LAYER),
    "gemma3": Arch("gemma3_text", _LAYER | _GEMMA3, plus_one=True, more=_gemma3),
    "qwen35": Arch("qwen3_5_text", _LAYER | _QWEN35, plus_one=True, more=_qwen35),
    "qwen35moe": Arch(
        "qwen3_5_moe_text", _LAYER | _QWEN35 | _EXPERTS, plus_one=True, more=_qwen35_experts
    ),
    # Its linear layers are laid out otherwise and are not in the table: MTP heads only.
    "qwen3next": Arch(
        "qwen3_next",
        _LAYER | _EXPERTS | {"post_attention_layernorm": "post_attention_norm"},
        plus_one=True,
        more=_qwen35_experts,
    ),
    "qwen3moe": Arch("qwen3_moe", _LAYER | _EXPERTS, more=_experts),
}


def gguf_config(container: Container) -> dict[str, Any]:
    """The fields of a Hugging Face configuration, from GGUF key-values.

    Raises:
        UnsupportedFormatError: an architecture or a rotary scaling that is not in the table.
        UnreadableError: a key is missing or is no number.
    """
    arch, keys = read_arch(container)
    try:
        return _fields(container, arch, keys)
    except (TypeError, ValueError, LookupError, ArithmeticError) as error:
        raise UnreadableError(
            f"the key-values of this GGUF do not describe a {arch.model_type} model: {error}",
            hint="convert the model again",
            where=container.path,
        ) from error


def read_arch(container: Container) -> tuple[Arch, dict[str, Any]]:
    """The table's entry for this GGUF, and its key-values without their prefix."""
    name = str(container.metadata.get("general.architecture") or "")
    if name in ARCHITECTURES:
        prefix = f"{name}."
        items = container.metadata.items()
        return ARCHITECTURES[name], {
            key.removeprefix(prefix): value for key, value in items if key.startswith(prefix)
        }
    raise UnsupportedFormatError(
        f"draft blocks of the GGUF architecture {name or 'without a name'!r} can not be run; "
        f"known are {', '.join(ARCHITECTURES)}",
        hint="give the Hugging Face folder of the same model",
        where=container.path,
    )


def _fields(container: Container, arch: Arch, keys: Mapping[str, Any]) -> dict[str, Any]:
    check_depth(keys, layers_held(container), container.path)
    hidden = int(_needed(keys, "embedding_length"))
    heads = int(_needed(keys, "attention.head_count"))
    embedding = container.entries.get("token_embd.weight")
    fields: dict[str, Any] = {
        "model_type": arch.model_type,
        "hidden_size": hidden,
        "intermediate_size": int(
            keys.get("feed_forward_length") or _needed(keys, "expert_feed_forward_length")
        ),
        "num_hidden_layers": int(_needed(keys, "block_count"))
        - int(keys.get("nextn_predict_layers", 0)),
        "num_attention_heads": heads,
        "num_key_value_heads": int(keys.get("attention.head_count_kv", heads)),
        "head_dim": int(keys.get("attention.key_length", hidden // heads)),
        "rms_norm_eps": float(_needed(keys, "attention.layer_norm_rms_epsilon")),
        "max_position_embeddings": int(keys.get("context_length", 4096)),
        "rope_parameters": _rope(container, keys),
        "vocab_size": embedding.shape[0] if embedding else int(keys.get("vocab_size", 1)),
        "pad_token_id": None,
    }
    return fields | arch.more(keys, fields)


def _rope(container: Container, keys: Mapping[str, Any]) -> dict[str, Any]:
    base = {"rope_theta": float(keys.get("rope.freq_base", 1e4)), "rope_type": "default"}
    scaling = keys.get("rope.scaling.type")
    if scaling in (None, "none") and "rope_freqs.weight" not in container.entries:
        return base
    if scaling == "linear":
        return {
            **base,
            "rope_type": "linear",
            "factor": float(_needed(keys, "rope.scaling.factor")),
        }
    raise UnsupportedFormatError(
        f"the rotary scaling {scaling or 'in rope_freqs'!r} of this GGUF is not read",
        hint="give the Hugging Face folder of the same model",
        where=container.path,
    )


def _needed(keys: Mapping[str, Any], key: str) -> Any:
    if key not in keys:
        raise KeyError(f"there is no {key}")
    return keys[key]
