"""Under which names heads, embeddings and norms lie in files. Data only.

Names are looked up after `language_model.` has been dropped, as older multimodal checkpoints put
that in front. Order is precedence.
"""

from __future__ import annotations

LM_HEAD = {
    "gguf": ("output.weight",),
    "safetensors": (
        "lm_head.weight",
        "model.lm_head.weight",
        "output.weight",
        "embed_out.weight",
        "transformer.output_layer.weight",
        "lm_head.linear.weight",
        "head.weight",
        "model.transformer.ff_out.weight",
        "word_embeddings_for_head.weight",
        "base_model.model.lm_head.weight",
    ),
}
"""The head's own projection, [vocabulary, hidden]."""

EMBEDDING = {
    "gguf": ("token_embd.weight",),
    "safetensors": (
        "model.embed_tokens.weight",
        "embed_tokens.weight",
        "model.llm.embed_tokens.weight",
        "model.tok_embeddings.weight",
        "tok_embeddings.weight",
        "transformer.wte.weight",
        "gpt_neox.embed_in.weight",
        "backbone.embeddings.weight",
        "embed.weight",
    ),
}
"""The input embedding, which serves as the head when the two are tied."""

FINAL_NORM = {
    "gguf": ("output_norm",),
    "safetensors": (
        "model.norm",
        "norm",
        "transformer.ln_f",
        "gpt_neox.final_layernorm",
        "gpt_neox.final_layer_norm",
        "backbone.norm_f",
        "model.final_layernorm",
    ),
}
"""Stem of the final norm: `.weight`, and `.bias` when it is a LayerNorm."""

MAPS = ("d2t", "draft_id_to_target_id", "token_map", "hot_token_id", "t2d")
"""Tensors that map draft rows to target ids."""

FACTOR_PAIRS = (
    # (output side [vocabulary, rank], input side [rank, hidden]); in ASVD A is the output side.
    ("lm_head.ALinear.weight", "lm_head.BLinear.weight"),
    ("lm_head.U", "lm_head.V"),
    ("lm_head.A", "lm_head.B"),
    ("lm_head.u_proj.weight", "lm_head.v_proj.weight"),
)
"""Factorised heads that say which factor is which."""

LORA = ("lm_head.lora_B.weight", "lm_head.lora_A.weight")
"""PEFT adapter on the head: (output side [vocabulary, rank], input side [rank, hidden])."""

LORA_PREFIXES = ("base_model.model.", "base_model.", "")
LORA_INFIXES = ("", ".default")
"""`lora_A.weight` on disk, `lora_A.default.weight` in a state dict saved by hand."""

ONE_PLUS_NORMS = frozenset(
    {
        "gemma", "gemma2", "gemma3", "gemma3_text", "recurrent_gemma", "t5gemma", "t5gemma2",
        "vaultgemma", "qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text",
        "qwen4_exp", "minimax_m3_vl", "step3p7", "muse_glimmer", "muse_spark",
    }
)  # fmt: skip
"""Model types that store w and apply (1 + w); their GGUF files hold 1 + w already."""


def plain(name: str) -> str:
    """A tensor's name without the multimodal prefix."""
    return name.replace("language_model.", "")
