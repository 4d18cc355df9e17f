"""What an EAGLE-3 draft's configuration says: its decoder layer, its norms, the layers it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from audit.blocks.assembly import Origin
from audit.blocks.block import Block
from audit.errors import NotFoundError, UnreadableError
from audit.files import Container

_DRAFT_KEYS = frozenset({"model_type", "architectures", "auto_map", "layer_types"})


@dataclass(frozen=True, slots=True)
class Draft:
    """What the draft's configuration says beside its layer."""

    layer: dict[str, Any]
    """Fields of the decoder layer's configuration."""
    norm_before_residual: bool
    norm_before_fc: bool
    fc_norms: bool
    aux_layers: tuple[int, ...] | None
    target_hidden_size: int | None
    source: str
    """Where `aux_layers` comes from."""


def draft_config(container: Container, base: Block | None) -> Mapping[str, Any]:
    """The configuration beside the draft, or a cut's reference's.

    Raises:
        NotFoundError: there is neither.
    """
    config = container.config or (base.container.config if base else None)
    if config is not None:
        return config
    raise NotFoundError(
        "an EAGLE-3 head needs its config.json",
        hint="put the config.json it was published with beside it",
        where=container.path,
    )


def read_draft(origin: Origin, known: Mapping[str, str]) -> Draft:
    """The draft's own words, in SafeAILab's and SpecForge's flat or speculators' nested form.

    Raises:
        NotFoundError: there is no configuration, or no width in it.
    """
    config = draft_config(origin.container, origin.base)
    nested = config.get("transformer_layer_config")
    fields = dict(nested) if isinstance(nested, Mapping) else dict(config)
    kind = fields.get("model_type")
    layer = {key: value for key, value in fields.items() if key not in _DRAFT_KEYS}
    # SpecForge and SafeAILab write the draft's own class there; its layer is Llama's.
    layer |= {"model_type": "qwen3" if kind == "qwen3" else "llama", "num_hidden_layers": 1}
    size = layer.get("hidden_size")
    if not isinstance(size, int) or size < 1:
        raise NotFoundError(
            "the configuration of this EAGLE-3 head states no usable hidden_size",
            hint="put the config.json it was published with beside it",
            where=origin.container.path,
        )
    stated = config.get("target_hidden_size")
    target = stated if isinstance(stated, int) and stated > 0 else _of_target(origin, "hidden_size")
    aux, source = _aux_layers(origin, config)
    return Draft(
        layer,
        bool(config.get("norm_before_residual")),
        "input_norm.weight" in known,
        "fc_norm.0.weight" in known,
        aux,
        target,
        source,
    )


def _aux_layers(origin: Origin, config: Mapping[str, Any]) -> tuple[tuple[int, ...] | None, str]:
    """Layers whose entering states are read: said by the user, the draft, or its target's depth."""
    if origin.options.aux_layers:
        return origin.options.aux_layers, "--aux-layers"
    nested = config.get("eagle_config")
    for place in (config, nested if isinstance(nested, Mapping) else {}):
        stated = place.get("eagle_aux_hidden_state_layer_ids")
        if stated:
            return _stated_layers(stated, origin.container), "the draft's configuration"
    depth = _of_target(origin, "num_hidden_layers")
    usual = (2, depth // 2, depth - 3) if depth else ()
    # In a shallow target these are not three, and not in order: nobody can have meant them.
    if len(set(usual)) == 3 and list(usual) == sorted(usual):
        return usual, f"the usual three of a target of {depth} layers"
    return None, "not stated, so the trace's further states in ascending order"


def _stated_layers(stated: Any, container: Container) -> tuple[int, ...]:
    """speculators may append the verifier's last state, which the draft does not read."""
    layers = tuple(stated[:3]) if isinstance(stated, list) else ()
    whole = all(isinstance(layer, int) and layer >= 0 for layer in layers)
    if layers and whole and len(set(layers)) == len(layers):
        return layers
    raise UnreadableError(
        f"eagle_aux_hidden_state_layer_ids is {stated!s:.60}: it must be different layers",
        hint="say which layers the head reads: --aux-layers 2,12,21",
        where=container.path,
    )


def _of_target(origin: Origin, key: str) -> int | None:
    """A number of the target's configuration, where the user named a target that has one."""
    target = origin.options.verifier
    config = (target.config or {}) if target else {}
    text = config.get("text_config")
    value = (text if isinstance(text, Mapping) else config).get(key)
    return value if isinstance(value, int) and value > 0 else None
