"""Names of an LM head's parts by format, from the table in `aliases`, and what has one name only.

Names are looked up after `language_model.` has been dropped, as older multimodal checkpoints put
that in front. Order is precedence.
"""

from __future__ import annotations

from audit.heads.aliases import FORMATS, names_of

LM_HEAD: dict[str, tuple[str, ...]] = {form: names_of("lm_head", form) for form in FORMATS}
"""The head's own projection, [vocabulary, hidden]."""

EMBEDDING: dict[str, tuple[str, ...]] = {form: names_of("embedding", form) for form in FORMATS}
"""The input embedding, which serves as the head when the two are tied."""

FINAL_NORM: dict[str, tuple[str, ...]] = {form: names_of("final_norm", form) for form in FORMATS}
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
