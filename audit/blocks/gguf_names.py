"""GGUF tensor names for Hugging Face names, and how a converter's changes are undone.

Norms of (1 + w) models hold 1 + w; `llama` interleaves the rows of q and k for its rotary kernel;
Qwen3.5's linear attention has its value heads reordered and -exp(A_log) for A_log. Those of qwen35
were checked tensor by tensor against `golden/qwen35-mtp`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from audit.blocks.gguf_config import Arch, read_arch
from audit.blocks.sources import Source, Stored
from audit.files import Container
from audit.heads.aliases import spelled

_MTP_ROLES = (
    "mtp_projection", "mtp_embedding_norm", "mtp_state_norm", "mtp_final_norm", "mtp_embedding",
)  # fmt: skip
_MTP = {spelled(role, "Qwen (mtp.fc)")[0]: spelled(role, "llama.cpp")[0] for role in _MTP_ROLES}
"""Hugging Face stem -> GGUF stem, the block's number left open."""


def gguf_source(container: Container, config: Mapping[str, Any]) -> Source:
    """Where a GGUF keeps the weights of Hugging Face names, and how they are converted back."""
    arch, _ = read_arch(container)
    layers = int(config["num_hidden_layers"])

    def find(name: str) -> Stored | None:
        stored = _stored_name(container, arch, name, layers)
        return Stored(stored, _back(arch, name, config)) if stored else None

    return Source(container, find)


def _stored_name(container: Container, arch: Arch, name: str, layers: int) -> str | None:
    """The GGUF tensor of a Hugging Face name, if the file holds it."""
    for candidate in _candidates(arch, name, layers):
        if candidate in container.entries:
            return candidate
    return None


def _candidates(arch: Arch, name: str, layers: int) -> list[str]:
    name = re.sub(r"^mtp\.layers\.(\d+)\.", lambda m: f"layers.{layers + int(m[1])}.", name)
    stem, _, leaf = name.rpartition(".")
    if stem in _MTP:
        own = f"{_MTP[stem]}.{leaf}".replace("{n}", str(layers))
        return [own, f"output_norm.{leaf}"] if stem == "mtp.norm" else [own]
    whole = {"norm": "output_norm", "embed_tokens": "token_embd"}.get(stem)
    if whole:
        return [f"{whole}.{leaf}"]
    found = re.match(r"layers\.(\d+)\.(.+)$", name)
    if found is None:
        return []
    block, rest = found.groups()
    special = {"linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias"}
    if rest in special:
        return [f"blk.{block}.{special[rest]}"]
    known = [part for part in arch.layer if rest.startswith(f"{part}.")]
    return [f"blk.{block}.{arch.layer[part]}.{rest.removeprefix(part + '.')}" for part in known]


def _back(arch: Arch, name: str, config: Mapping[str, Any]) -> Callable[[Tensor], Tensor]:
    """What undoes the converter's change of this weight."""
    linear = name.rpartition("linear_attn.")[2] if "linear_attn." in name else None
    if arch.permuted and re.search(r"self_attn\.[qk]_proj\.", name):
        key = "num_attention_heads" if ".q_proj." in name else "num_key_value_heads"
        return lambda values: _half_split(values, int(config[key]))
    if linear is not None:
        return lambda values: _linear_back(linear, values, config)
    stem = name.removesuffix(".weight")
    if stem.endswith("shared_expert_gate"):
        return lambda values: values.reshape(1, -1)
    if arch.plus_one and (stem.endswith("norm") or "_norm_" in stem):
        return lambda values: values - 1.0
    return lambda values: values


def _half_split(values: Tensor, heads: int) -> Tensor:
    """Rows of q or k from pairs side by side to two halves per head, as transformers rotates."""
    pairs = values.reshape(heads, values.shape[0] // heads // 2, 2, *values.shape[1:])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def _linear_back(part: str, values: Tensor, config: Mapping[str, Any]) -> Tensor:
    """Qwen3.5 linear attention: value heads back beside the key head they share, A_log back."""
    keys, heads = int(config["linear_num_key_heads"]), int(config["linear_num_value_heads"])

    def ordered(rows: Tensor) -> Tensor:
        tiled = rows.reshape(heads // keys, keys, -1, *rows.shape[1:])
        return tiled.transpose(0, 1).reshape(rows.shape)

    if part == "norm.weight":
        return values
    if part == "A_log":
        return ordered(torch.log(-values.flatten()))
    if part == "out_proj.weight":
        return ordered(values.T.contiguous()).T.contiguous()
    if part in ("in_proj_qkv.weight", "conv1d.weight"):
        fixed = 2 * keys * int(config["linear_key_head_dim"])
        joined = torch.cat([values[:fixed], ordered(values[fixed:])])
        return joined.unsqueeze(1) if part == "conv1d.weight" else joined
    return ordered(values.flatten() if part == "dt_bias" else values)
