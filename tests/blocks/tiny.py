"""Tiny random models and drafts as files, and traces of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from audit.records import ExtraState, TraceInfo
from audit.traces import Trace

V, H = 48, 32
COMMON = {
    "vocab_size": V, "hidden_size": H, "intermediate_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": None,
    "bos_token_id": None, "eos_token_id": None, "max_position_embeddings": 128,
}  # fmt: skip
LENGTHS = (7, 3, 11, 1, 6)


def tiny_model(kind: str, seed: int = 0, **changes: object):
    """A random transformers model whose norms are not the identity."""
    torch.manual_seed(seed)
    config = CONFIG_MAPPING[kind](**(COMMON | changes))
    model = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    shake(model)
    return model


def shake(module: torch.nn.Module) -> None:
    """Weights large enough that every part of a layer matters."""
    for name, value in module.named_parameters():
        value.data = torch.randn(value.shape) * (0.3 if "norm" in name else value.shape[-1] ** -0.5)
        if "norm" in name:
            value.data += 1.0


def save_folder(folder: Path, config: dict[str, object], tensors: dict[str, Tensor]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    unshared = {name: value.detach().clone().contiguous() for name, value in tensors.items()}
    path = folder / "model.safetensors"
    save_file(unshared, path)
    if path.read_bytes()[:1] == b"\x80":
        # A header of that length looks like a pickle to `audit.files.paths`; make it another one.
        save_file(unshared, path, metadata={"length": "another"})
    (folder / "config.json").write_text(json.dumps(config, default=str))
    return folder


def save_model(model, folder: Path, **more: Tensor) -> Path:
    tensors = dict(model.state_dict())
    if model.config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    named = {name.replace("__", "."): value for name, value in more.items()}
    return save_folder(folder, model.config.to_dict(), tensors | named)


def make_trace(
    hidden: Tensor,
    lengths: Sequence[int],
    token: Tensor,
    states: dict[int, Tensor] | None = None,
    stage: str = "post_norm",
) -> Trace:
    counts = torch.tensor(list(lengths))
    info = TraceInfo.model_validate(
        {
            "model": "tiny", "model_sha256": None, "tokenizer_sha256": None, "vocabulary": None,
            "corpus": "code", "register": "in_distribution", "language": None, "stage": stage,
            "oracle": "verifier_greedy", "captured_by": "test",
            "states": tuple(
                ExtraState(tensor=f"layer_{layer}", layer=layer) for layer in states or {}
            ),
        }
    )  # fmt: skip
    return Trace(
        info,
        hidden,
        token,
        token.roll(-1),
        torch.arange(len(counts)).repeat_interleave(counts),
        torch.cat([torch.arange(int(count)) for count in counts]),
        {f"layer_{layer}": state for layer, state in (states or {}).items()},
    )


def random_trace(
    lengths: Sequence[int] = LENGTHS, layers: Sequence[int] = (), width: int = H, seed: int = 1
) -> Trace:
    rng = torch.Generator().manual_seed(seed)
    rows = sum(lengths)
    token = torch.randint(0, V, (rows,), generator=rng)
    states = {layer: torch.randn(rows, width, generator=rng) for layer in layers}
    return make_trace(torch.randn(rows, width, generator=rng), lengths, token, states)


def capture(model, lengths: Sequence[int] = LENGTHS, layers: Sequence[int] = ()) -> Trace:
    """The model's own states, each sequence run alone."""
    rng = torch.Generator().manual_seed(5)
    token, hidden, states = [], [], {layer: [] for layer in layers}
    for length in lengths:
        ids = torch.randint(0, V, (1, length), generator=rng)
        output = model.get_decoder()(input_ids=ids, output_hidden_states=True, use_cache=False)
        token.append(ids[0])
        hidden.append(output.last_hidden_state[0])
        for layer in layers:
            states[layer].append(output.hidden_states[layer][0])
    joined = {layer: torch.cat(parts) for layer, parts in states.items()}
    return make_trace(torch.cat(hidden), lengths, torch.cat(token), joined)


def near(left: Tensor, right: Tensor, tolerance: float = 2e-5) -> bool:
    return bool((left - right).abs().max() <= tolerance * max(1.0, float(right.abs().max())))
