"""A model's own decoder, empty: transformers' layers for a configuration, without weights.

The decoder runs by its own `forward`, which makes masks and rotary angles; layers that a block
does not use are replaced by ones that pass the state on, so that every index keeps its meaning.
transformers is imported when first needed: reading a plain LM head never loads it.
"""

from __future__ import annotations

import copy
import importlib
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from audit.blocks.limits import check_rotary, check_width
from audit.errors import AuditError, UnreadableError, UnsupportedFormatError
from audit.files.depth import check_depth

_BUILD_ERRORS = (
    *(ValueError, TypeError, AttributeError, LookupError),
    *(RuntimeError, ImportError, ArithmeticError, AssertionError),
)
"""What transformers was seen to raise for a configuration that it can not build."""
_NOT_OURS = frozenset({"transformers_version", "architectures", "dtype", "torch_dtype", "auto_map"})


def text_config(fields: Mapping[str, Any], where: Path, held: int = 0) -> Any:
    """The language model's configuration object of transformers.

    Args:
        held: number of layers that the files at hand hold; 0 where they hold none.

    Raises:
        UnsupportedFormatError: transformers knows no such architecture.
        UnreadableError: its values can not be used.
    """
    from transformers import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    check_depth(fields, held, where)
    check_rotary(fields, where)
    kind = fields.get("model_type")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        raise _unknown(kind, where)
    plain = {key: value for key, value in fields.items() if key != "quantization_config"}
    config = _guarded(lambda: CONFIG_MAPPING[kind].from_dict(copy.deepcopy(plain)), kind, where)
    config = config.get_text_config(decoder=True)
    if config.model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise _unknown(config.model_type, where)
    check_width(getattr(config, "hidden_size", None), where)
    if getattr(config, "use_bidirectional_attention", None):
        raise _alone(config.model_type, where, "their attention also looks ahead")
    return config


def check_runs(module: nn.Module, states: int, embeddings: int | None, where: Path) -> None:
    """Run two rows of zeros; some models' layers need more than a state (Gemma 4's embeddings).

    Raises:
        UnsupportedFormatError: the layers can not be run from states alone.
    """
    following = None if embeddings is None else torch.zeros(1, 2, embeddings)
    try:
        with torch.no_grad(), _quiet():
            module(torch.zeros(1, 2, states), following)
    except _BUILD_ERRORS as error:
        raise _alone("this model", where, str(error).partition("\n")[0]) from error


def config_record(config: Any) -> dict[str, Any]:
    """What of a configuration decides the numbers, as JSON values, for the head's hash."""
    kept = {
        key: _as_json(value)
        for key, value in config.to_diff_dict().items()
        if not key.startswith("_") and key not in _NOT_OURS
    }
    return {**kept, "model_type": config.model_type}


def _as_json(value: Any) -> Any:
    """Values with infinities, as some published configurations have, in words."""
    if isinstance(value, Mapping):
        return {key: _as_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def empty_decoder(config: Any, where: Path) -> nn.Module:
    """The decoder (embedding, layers, norm) with parameters on the meta device and real buffers.

    Raises:
        UnsupportedFormatError: it can not be built, or is not made of `layers` and a `norm`.
    """
    from transformers import AutoModelForCausalLM

    # It has no type stubs.
    init_empty_weights = importlib.import_module("accelerate").init_empty_weights
    config = copy.deepcopy(config)
    # One way to compute on every machine: these pick kernels by what is installed.
    config._experts_implementation = "eager"

    def build() -> nn.Module:
        with init_empty_weights(include_buffers=False):
            model = AutoModelForCausalLM.from_config(
                config, dtype=torch.float32, attn_implementation="sdpa"
            )
        decoder: nn.Module = model.get_decoder()
        return decoder

    decoder: nn.Module = _guarded(build, config.model_type, where)
    _check_angles(decoder, where)
    layers, norm = getattr(decoder, "layers", None), getattr(decoder, "norm", None)
    if isinstance(layers, nn.ModuleList) and isinstance(norm, nn.Module):
        return decoder.eval().requires_grad_(False)
    raise UnsupportedFormatError(
        f"the decoder of {config.model_type} is not made of `layers` and a `norm`",
        hint="run this head in the engine that serves it and give a proposals file",
        where=where,
    )


def _check_angles(decoder: nn.Module, where: Path) -> None:
    """Refuse a decoder that would rotate nothing, or by angles that are no numbers."""
    for name, value in decoder.named_buffers():
        if name.endswith("inv_freq") and not (len(value) and bool(torch.isfinite(value).all())):
            raise UnreadableError(
                "the rotary settings of the configuration leave nothing to rotate by",
                hint="check head_dim and rope_parameters in the configuration beside the head",
                where=where,
            )


def embedding_scale(decoder: nn.Module) -> float:
    """The factor by which this model multiplies its embeddings (Gemma), else 1."""
    return float(getattr(decoder.get_submodule("embed_tokens"), "scalar_embed_scale", 1.0))


def norm_like(norm: nn.Module, width: int) -> nn.Module:
    """An empty norm of the same kind and epsilon, of another width."""
    kind: Any = type(norm)
    # transformers' norms call it the one or the other.
    eps = getattr(norm, "variance_epsilon", getattr(norm, "eps", 1e-6))
    with torch.device("meta"):
        made: nn.Module = kind(width, eps=eps)
    return made


def empty_linear(inputs: int, outputs: int, bias: bool = False) -> nn.Linear:
    """A linear layer without weights."""
    return nn.Linear(inputs, outputs, bias=bias, device="meta")


class Decoder(nn.Module):
    """Some layers of a decoder and its final norm, from the state entering the first of them."""

    def __init__(self, model: nn.Module, kept: Iterable[int], offset: int = 0) -> None:
        super().__init__()
        self.model, self.offset = model, offset
        self.kept = tuple(kept)
        layers = model.layers
        assert isinstance(layers, nn.ModuleList)
        for index, layer in enumerate(layers):
            if index not in self.kept:
                layers[index] = _PassOn(getattr(layer, "attention_type", None))
        model.embed_tokens = nn.Identity()
        self._entering: Tensor | None = None
        layers[self.kept[0]].register_forward_pre_hook(self._enter, with_kwargs=True)

    def forward(self, states: Tensor) -> Tensor:
        """States [B, T, w] entering the first kept layer -> [B, T, hidden] after the final norm."""
        positions = torch.arange(states.shape[1], device=states.device) + self.offset
        # Without an offset the model's own default gives the same ids, and a cheaper mask.
        given = {"position_ids": positions.unsqueeze(0)} if self.offset else {}
        self._entering = states
        try:
            with _quiet():
                output = self.model(inputs_embeds=states, use_cache=False, **given)
        finally:
            self._entering = None
        left: Tensor = output.last_hidden_state
        return left

    def _enter(
        self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give the first layer exactly the states: some models scale what they take as input."""
        if args:
            return (self._entering, *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": self._entering}


class _PassOn(nn.Module):
    """Stands where a layer is not run."""

    def __init__(self, attention_type: Any) -> None:
        super().__init__()
        self.attention_type = attention_type

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return hidden_states


def _quiet() -> AbstractContextManager[None]:
    """transformers writes notes on missing kernels to the terminal."""
    from audit.traces.quiet import quiet

    return quiet()


def _guarded(build: Callable[[], Any], kind: Any, where: Path) -> Any:
    """Run `build`; a failure of transformers becomes an error that names the configuration."""
    from huggingface_hub.errors import StrictDataclassError

    try:
        with _quiet():
            return build()
    except AuditError:
        raise
    except (*_BUILD_ERRORS, StrictDataclassError) as error:
        lines = str(error).strip().splitlines()
        raise UnreadableError(
            f"transformers can not build the layers of {kind!r} from this configuration: "
            f"{lines[-1].strip() if lines else type(error).__name__}",
            hint="check the configuration beside the head",
            where=where,
        ) from error


def _alone(kind: str, where: Path, why: str) -> UnsupportedFormatError:
    return UnsupportedFormatError(
        f"the layers of {kind} can not be run from recorded states: {why}",
        hint="run this head in its engine and give a proposals file",
        where=where,
    )


def _unknown(kind: Any, where: Path) -> UnsupportedFormatError:
    return UnsupportedFormatError(
        f"transformers knows no language model of type {kind!r}, so its layers can not be run",
        hint="upgrade transformers if it knows this model by now; else run the head in its engine "
        "and give a proposals file",
        where=where,
    )
