"""Sums over a model's tensors, and what its configuration says of experts and KV caches.

A verify step reads every weight of the target's language model once. Tensors of drafts, of vision
and, where the head is not tied to it, the embedding are no part of that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from audit.blocks import layer_count
from audit.cost.machine import KvLayer, Work
from audit.cost.records import VerifierCost
from audit.files import Container
from audit.files.encodings import INTEGERS
from audit.heads import names
from audit.heads.packed import packed_matrix
from audit.heads.stored import stored_tensors
from audit.traces.quiet import quiet

_EXPERT = re.compile(r"\.experts\.|_exps\.")
_DRAFT = re.compile(r"(?:^|\.)(?:mtp|nextn|medusa)")
_VISION = re.compile(r"(?:^|\.)(?:visual|vision_tower|vision_model|multi_modal_projector)\.")
_NUMBERED = re.compile(r"(?:layers|blk)\.(\d+)\.")
_KIND_KEYS = {"model_type", "layer_types"}
_CACHED_BYTES = 2
"""Of one cached number, 16 bit."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sums over some tensors, routed experts apart."""

    bytes_: int = 0
    parameters: int = 0
    expert_bytes: int = 0
    expert_parameters: int = 0


def sizes_of(container: Container, wanted: Iterable[str]) -> Sizes:
    """Stored bytes, scales included, and weights of some tensors, each counted once.

    Raises:
        AuditError: a packed matrix whose parts do not fit.
    """
    sums, seen = {True: [0, 0], False: [0, 0]}, set[str]()
    for name in wanted:
        if name in seen:
            continue
        packed = packed_matrix(container, name)
        parts = stored_tensors(container, name)
        expert = bool(_EXPERT.search(name))
        sums[expert][0] += sum(len(raw) for part, (_, raw) in parts.items() if part not in seen)
        entry = container.entries[name]
        if packed:
            sums[expert][1] += packed.rows.count * packed.rows.columns
        elif entry.encoding not in INTEGERS:
            sums[expert][1] += prod(entry.shape)
        seen |= parts.keys()
    return Sizes(*sums[False], *sums[True])


def verifier_work(
    container: Container, fields: Mapping[str, Any], context: int
) -> tuple[VerifierCost, Work]:
    """One step of the target model in `container`, and its cache for one user at a context.

    Args:
        fields: its configuration as Hugging Face writes it; empty where none is known.
    """
    sizes, kv = sizes_of(container, _language_model(container)), kv_layers(fields)
    cost = VerifierCost(
        name=container.path.name,
        weight_bytes=sizes.bytes_,
        expert_bytes=sizes.expert_bytes,
        kv_bytes_per_token=sum(one.bytes_per_token for one in kv),
        kv_bytes=sum(one.bytes_at(context) for one in kv),
    )
    work = Work(
        weight_bytes=sizes.bytes_,
        parameters=sizes.parameters,
        expert_bytes=sizes.expert_bytes,
        expert_parameters=sizes.expert_parameters,
        expert_share=expert_share(fields),
        kv=kv,
        longest=_whole(fields, "max_position_embeddings") or None,
    )
    return cost, work


def text_fields(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """A configuration with its language model's own fields on top."""
    config = config or {}
    text = config.get("text_config")
    return {**config, **(text if isinstance(text, Mapping) else {})}


def expert_share(fields: Mapping[str, Any]) -> float:
    """Share of the experts that one token is routed to; 1 where there are none."""
    keys = ("num_experts", "n_routed_experts", "num_local_experts")
    experts, used = max(_whole(fields, key) for key in keys), _whole(fields, "num_experts_per_tok")
    return used / experts if 0 < used <= experts else 1.0


def kv_layers(fields: Mapping[str, Any]) -> tuple[KvLayer, ...]:
    """The KV caches that a configuration describes, one per layer, in 16 bit.

    Layers without one (linear attention, state space) are left out.
    """
    layers, kinds = _whole(fields, "num_hidden_layers"), layer_kinds(fields)
    each, window = _CACHED_BYTES * _cached(fields), _whole(fields, "sliding_window") or None
    if not each:
        return ()
    if kinds is None:
        limited = window if fields.get("use_sliding_window", True) else None
        return (KvLayer(each, limited),) * layers
    windows = {"full_attention": None, "sliding_attention": window, "chunked_attention": window}
    return tuple(KvLayer(each, windows[kind]) for kind in kinds[:layers] if kind in windows)


def layer_kinds(fields: Mapping[str, Any]) -> list[Any] | None:
    """What each layer attends to; None where the configuration and its model type do not say.

    A window is often that of some layers only, and which ones is left to the model type: every
    sixth layer of Gemma 3 sees the whole text. transformers knows, so it is asked.
    """
    given = fields.get("layer_types")
    if isinstance(given, list):
        return given
    if not _whole(fields, "sliding_window"):
        return None
    from transformers import AutoConfig

    others = {key: value for key, value in fields.items() if key not in _KIND_KEYS}
    try:
        with quiet():
            config = AutoConfig.for_model(str(fields.get("model_type")), **others)
    except Exception:
        # The fields are a stranger's, and transformers raises what it likes about them.
        return None
    kinds = getattr(config.get_text_config(), "layer_types", None)
    return list(kinds) if kinds else None


def _cached(fields: Mapping[str, Any]) -> int:
    """Cached numbers per token and layer: keys and values, or the latent of MLA."""
    if latent := _whole(fields, "kv_lora_rank"):
        return latent + _whole(fields, "qk_rope_head_dim")
    heads = _whole(fields, "num_attention_heads")
    width = _whole(fields, "head_dim") or (_whole(fields, "hidden_size") // heads if heads else 0)
    return 2 * width * (_whole(fields, "num_key_value_heads") or heads)


def _whole(fields: Mapping[str, Any], key: str) -> int:
    value = fields.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _language_model(container: Container) -> Iterator[str]:
    """Names of the tensors that a step of the target reads whole."""
    depth = layer_count(container)
    heads, embeddings = names.LM_HEAD[container.format], names.EMBEDDING[container.format]
    plain = {name: names.plain(name) for name in container.entries}
    own_head = any(name in heads for name in plain.values())
    for name, short in plain.items():
        number = _NUMBERED.search(name)
        draft = _DRAFT.search(short) or (number and depth and int(number[1]) >= depth)
        unread = short in embeddings and own_head
        if not (draft or unread or _VISION.search(name)):
            yield name
