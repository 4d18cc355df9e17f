"""Under which names the parts of heads lie in files, dialect by dialect: one table, data only.

The same part has as many names as there are programs that save it. Names are spelled without
`language_model.`, draft heads' also without `model.`; `{n}` stands for a number. The order within
a role is precedence. What is found by these names is said by `dialects`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Format = Literal["gguf", "safetensors"]
FORMATS: tuple[Format, ...] = ("gguf", "safetensors")


@dataclass(frozen=True, slots=True)
class Alias:
    """One name of one part."""

    role: str
    format: Format
    dialect: str
    """Whose spelling it is."""
    name: str
    """A tensor's name; of a norm its stem, for a LayerNorm has a bias beside its weight."""


_HF, _GGUF = "Hugging Face", "llama.cpp"
_QWEN, _DEEPSEEK = "Qwen (mtp.fc)", "DeepSeek (layers.N)"
_MTP_LAYERS, _DEEPSEEK4 = "mtp_layers", "DeepSeek-V4 (mtp.N)"
_SAFE_AI, _SPECULATORS = "SafeAILab, SpecForge", "speculators, ModelOpt"

_TABLE: dict[str, dict[tuple[Format, str], tuple[str, ...]]] = {
    "lm_head": {
        ("gguf", _GGUF): ("output.weight",),
        ("safetensors", _HF): ("lm_head.weight", "model.lm_head.weight"),
        ("safetensors", "Llama, Mistral, InternLM2"): ("output.weight",),
        ("safetensors", "GPT-NeoX"): ("embed_out.weight",),
        ("safetensors", "ChatGLM"): ("transformer.output_layer.weight",),
        ("safetensors", "Phi-2"): ("lm_head.linear.weight",),
        ("safetensors", "DeepSeek-V4, RWKV"): ("head.weight",),
        ("safetensors", "LLaDA"): ("model.transformer.ff_out.weight",),
        ("safetensors", "other"): ("word_embeddings_for_head.weight",),
        ("safetensors", "PEFT"): ("base_model.model.lm_head.weight",),
    },
    "embedding": {
        ("gguf", _GGUF): ("token_embd.weight",),
        ("safetensors", _HF): ("model.embed_tokens.weight", "embed_tokens.weight"),
        ("safetensors", "multimodal"): ("model.llm.embed_tokens.weight",),
        ("safetensors", "Llama, Mistral, InternLM2"): (
            "model.tok_embeddings.weight", "tok_embeddings.weight",
        ),
        ("safetensors", "GPT-2"): ("transformer.wte.weight",),
        ("safetensors", "GPT-NeoX"): ("gpt_neox.embed_in.weight",),
        ("safetensors", "Mamba"): ("backbone.embeddings.weight",),
        ("safetensors", "DeepSeek-V4, RWKV"): ("embed.weight",),
    },
    "final_norm": {
        ("gguf", _GGUF): ("output_norm",),
        ("safetensors", _HF): ("model.norm", "norm"),
        ("safetensors", "GPT-2"): ("transformer.ln_f",),
        ("safetensors", "GPT-NeoX"): ("gpt_neox.final_layernorm", "gpt_neox.final_layer_norm"),
        ("safetensors", "Mamba"): ("backbone.norm_f",),
        ("safetensors", "Phi-2"): ("model.final_layernorm",),
    },
    "mtp_projection": {
        ("gguf", _GGUF): ("blk.{n}.nextn.eh_proj",),
        ("safetensors", _QWEN): ("mtp.fc",),
        ("safetensors", _DEEPSEEK): ("layers.{n}.eh_proj",),
        ("safetensors", _MTP_LAYERS): ("mtp_layers.{n}.input_proj",),
    },
    "mtp_embedding_norm": {
        ("gguf", _GGUF): ("blk.{n}.nextn.enorm",),
        ("safetensors", _QWEN): ("mtp.pre_fc_norm_embedding",),
        ("safetensors", _DEEPSEEK): ("layers.{n}.enorm",),
        ("safetensors", _MTP_LAYERS): ("mtp_layers.{n}.token_layernorm",),
    },
    "mtp_state_norm": {
        ("gguf", _GGUF): ("blk.{n}.nextn.hnorm",),
        ("safetensors", _QWEN): ("mtp.pre_fc_norm_hidden",),
        ("safetensors", _DEEPSEEK): ("layers.{n}.hnorm",),
        ("safetensors", _MTP_LAYERS): ("mtp_layers.{n}.hidden_layernorm",),
    },
    "mtp_final_norm": {
        ("gguf", _GGUF): ("blk.{n}.nextn.shared_head_norm",),
        ("safetensors", _QWEN): ("mtp.norm",),
        # HY-V3 calls it final_layernorm, where others have shared_head.norm.
        ("safetensors", _DEEPSEEK): ("layers.{n}.final_layernorm", "layers.{n}.shared_head.norm"),
        ("safetensors", _MTP_LAYERS): ("mtp_layers.{n}.final_layernorm",),
    },
    "mtp_embedding": {
        ("gguf", _GGUF): ("blk.{n}.nextn.embed_tokens",),
        ("safetensors", _QWEN): ("mtp.embed_tokens",),
        ("safetensors", _DEEPSEEK): ("layers.{n}.embed_tokens",),
        ("safetensors", _MTP_LAYERS): ("mtp_layers.{n}.embed_tokens",),
    },
    "mtp_head": {
        ("gguf", _GGUF): ("blk.{n}.nextn.shared_head_head",),
        ("safetensors", _QWEN): ("mtp.shared_head.head",),
        ("safetensors", _DEEPSEEK): ("layers.{n}.shared_head.head",),
        ("safetensors", _MTP_LAYERS): ("mtp_layers.{n}.lm_head",),
    },
    "mtp_not_run": {
        # Two projections instead of one, a LongCat or ERNIE layout: known, and not built here.
        ("gguf", _GGUF): ("blk.{n}.nextn.e_proj", "blk.{n}.nextn.h_proj"),
        ("safetensors", _DEEPSEEK4): ("mtp.{n}.e_proj", "mtp.{n}.h_proj"),
        ("safetensors", "LongCat, MiMo-V2, Nemotron-H"): ("mtp.layers.{n}.eh_proj",),
        ("safetensors", "ERNIE-4.5"): ("mtp_linear_proj.{n}",),
    },
    "hyper_connection_mixer": {
        # Full models keep the draft's mixer under its block; files of the draft head alone give it
        # the names of the trunk's.
        ("gguf", "llama.cpp, inside a full model"): tuple(
            f"blk.{{n}}.nextn.hc_head_{part}.weight"
            for part in ("fn", "base", "scale", "norm", "down", "up")
        ),
        ("gguf", "llama.cpp, the trunk's or of a head-only file"): tuple(
            f"output_hc_{part}.weight" for part in ("fn", "base", "scale", "norm", "down", "up")
        ),
        ("safetensors", _DEEPSEEK4): tuple(
            f"{stem}hc_head_{part}" for stem in ("mtp.{n}.", "") for part in ("fn", "base", "scale")
        ),
        ("safetensors", "Qwen 3.8"): tuple(
            f"hyper_connection_mixer.{part}.weight"
            for part in ("hc_norm", "input_mix_weight_down", "input_mix_weight_up")
        ),
    },
    "eagle3_fusion": {
        ("gguf", _GGUF): ("fc.weight",),
        ("safetensors", "EAGLE-3"): ("fc.weight",),
    },
    "eagle3_state_norm": {
        ("gguf", _GGUF): ("blk.0.attn_norm_2.weight",),
        ("safetensors", _SAFE_AI): ("midlayer.hidden_norm.weight",),
        ("safetensors", _SPECULATORS): ("layers.0.hidden_norm.weight",),
    },
    "medusa_layer": {
        ("safetensors", "FasterDecoding"): ("{n}.{n}.linear.weight",),
        ("safetensors", "vLLM"): ("blocks.{n}.layers.{n}.weight",),
    },
}  # fmt: skip

ALIASES: tuple[Alias, ...] = tuple(
    Alias(role, form, dialect, name)
    for role, spellings in _TABLE.items()
    for (form, dialect), listed in spellings.items()
    for name in listed
)

HEADS: dict[str, tuple[str, ...]] = {
    "lm": ("lm_head",),
    "mtp": ("mtp_projection",),
    "eagle3": ("eagle3_fusion", "eagle3_state_norm"),
    "medusa": ("medusa_layer",),
}
"""Kind of head -> roles by which it is recognised; each must be there under one of its names."""


def names_of(role: str, form: Format) -> tuple[str, ...]:
    """All names of a role in a format, in the order of precedence."""
    return tuple(a.name for a in ALIASES if a.role == role and a.format == form)


def spelled(role: str, dialect: str) -> tuple[str, ...]:
    """The names of a role in one dialect; empty where it has none."""
    return tuple(a.name for a in ALIASES if a.role == role and a.dialect == dialect)


def looked_for(head: str, form: Format) -> tuple[str, ...]:
    """Every name by which a kind of head would have been recognised."""
    return tuple(_all(head, form))


def _all(head: str, form: Format) -> Iterator[str]:
    for role in HEADS[head]:
        for name in names_of(role, form):
            yield name.replace("{n}", "N")
