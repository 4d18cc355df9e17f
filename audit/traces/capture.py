"""Run the verifier over documents and record a trace.

Documents are cut into windows, each a sequence of its own, so that a position never depends on
another document. Windows run in batches of like length; states go straight into the trace, and
the oracle is taken from them afterwards in tiles (`oracle`), so that memory is bounded by the
states, one batch and one tile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from audit import __version__
from audit.corpora import Document
from audit.errors import BadUsageError
from audit.provenance import canonical_json, versions
from audit.records import ExtraState, Register, TraceInfo
from audit.traces.checks import check_finite
from audit.traces.oracle import check_against_model, greedy_tokens
from audit.traces.trace import Trace
from audit.traces.verifier import Verifier
from audit.traces.windows import Plan, cut_windows, plan_batches

Progress = Callable[[int, int], None]
"""Called with (done, total), in positions; running the model counts half, its oracle half."""


def capture(
    verifier: Verifier,
    documents: Sequence[Document],
    *,
    corpus: str,
    register: Register,
    language: str | None,
    context: int = 512,
    max_positions: int | None = None,
    layers: Sequence[int] = (),
    batch: int = 8,
    progress: Progress | None = None,
) -> Trace:
    """Record the verifier's states and greedy tokens over `documents`.

    Args:
        context: longest window in tokens, the tokenizer's own prefix (such as BOS) included.
        max_positions: stop after exactly this many rows, shortening the last sequence.
        layers: also record the state entering these layers, as `layer_16` and so on.
        batch: windows that run together; only the last bits of a state may depend on it.

    Returns:
        A trace in no file yet, with hidden states [N, d] in the model's dtype.

    Raises:
        BadUsageError: an argument is out of range.
        UnreadableError: the documents hold no tokens, or a state is not finite (NON_FINITE).
        MismatchError: the tokenizer makes ids that the model has no embedding for.
        UnsupportedFormatError: the model changes its logits after its head in an unknown way.
    """
    _check_arguments(verifier, context, max_positions, layers, batch)
    plan = plan_batches(cut_windows(verifier, documents, context, max_positions), batch)
    report = progress or (lambda done, total: None)
    head = verifier.model.get_output_embeddings()
    with torch.no_grad():
        check_against_model(verifier.model, plan.windows[0], verifier.vocabulary)
        hidden, states = _run(verifier.model, plan, sorted(set(layers)), report)
        for name, tensor in {"hidden": hidden, **states}.items():
            check_finite(tensor, name, where=corpus)
        oracle = greedy_tokens(
            hidden,
            head,
            verifier.vocabulary,
            progress=lambda done: report((plan.rows + done) // 2, plan.rows),
        )
    info = TraceInfo(
        model=verifier.name,
        model_sha256=verifier.model_sha256,
        tokenizer_sha256=verifier.tokenizer_sha256,
        vocabulary=verifier.vocabulary,
        corpus=corpus,
        register=register,
        language=language,
        stage="post_norm",
        oracle="verifier_greedy",
        states=tuple(ExtraState(tensor=_name(k), layer=k) for k in sorted(set(layers))),
        captured_by=f"head-audit {__version__}",
        settings={
            **_settings(verifier.model, documents),
            "batch": batch,
            "context": context,
            "max_positions": max_positions,
        },
    )
    lengths = torch.tensor([len(window) for window in plan.windows])
    token = torch.cat(plan.windows)
    sequence = torch.arange(len(lengths)).repeat_interleave(lengths)
    position = torch.cat([torch.arange(int(length)) for length in lengths])
    return Trace(info, hidden, token, oracle, sequence, position, states)


def _settings(model: Any, documents: Sequence[Document]) -> dict[str, Any]:
    """What else would change the trace's bytes; never a path or a time."""
    texts = canonical_json([document.text for document in documents])
    installed = versions()
    return {
        "device": model.device.type,
        "documents": len(documents),
        "documents_sha256": hashlib.sha256(texts.encode()).hexdigest(),
        "dtype": str(model.dtype).removeprefix("torch."),
        "versions": {name: installed.get(name) for name in ("torch", "transformers")},
    }


def _check_arguments(
    verifier: Verifier,
    context: int,
    max_positions: int | None,
    layers: Sequence[int],
    batch: int,
) -> None:
    """Raise BadUsageError for numbers that this model or any model cannot run with."""
    for name, value in {"context": context, "batch": batch, "max_positions": max_positions}.items():
        if value is not None and value < 1:
            raise BadUsageError(f"{name} is {value}", hint="it must be 1 or more")
    config = verifier.model.config.get_text_config()
    longest = getattr(config, "max_position_embeddings", None)
    if longest is not None and context > longest:
        raise BadUsageError(
            f"context is {context}, but {verifier.name} was made for {longest} tokens",
            hint=f"use --context {longest} or less",
        )
    count = int(config.num_hidden_layers)
    for layer in layers:
        if not 0 <= layer < count:
            raise BadUsageError(
                f"layer {layer} does not exist in {verifier.name}",
                hint=f"it has the layers 0 to {count - 1}; a layer's entering state is recorded",
            )


def _run(
    model: Any, plan: Plan, layers: Sequence[int], report: Progress
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """States [N, d] after the final norm, and those entering `layers`, in trace order."""
    width = int(model.get_output_embeddings().weight.shape[1])
    hidden = torch.empty(plan.rows, width, dtype=model.dtype)
    states: dict[str, torch.Tensor] = {}
    done = 0
    for indexes in plan.batches:
        output = _forward(model, [plan.windows[index] for index in indexes], bool(layers))
        recorded = {_name(layer): output.hidden_states[layer] for layer in layers}
        if recorded and not states:
            states = {
                name: torch.empty(plan.rows, state.shape[2], dtype=model.dtype)
                for name, state in recorded.items()
            }
        for slot, index in enumerate(indexes):
            length = len(plan.windows[index])
            rows = slice(plan.starts[index], plan.starts[index] + length)
            hidden[rows] = output.last_hidden_state[slot, :length].cpu()
            for name, state in recorded.items():
                states[name][rows] = state[slot, :length].cpu()
            done += length
        report(done // 2, plan.rows)
    return hidden, states


def _forward(model: Any, windows: list[torch.Tensor], all_states: bool) -> Any:
    """The decoder's output for windows padded on the right to one length.

    A causal model never looks at what follows, so no mask is needed, and without one it is faster.
    """
    inputs = torch.nn.utils.rnn.pad_sequence(windows, batch_first=True).to(model.device)
    arguments: dict[str, Any] = {"input_ids": inputs, "use_cache": False}
    if all_states:
        arguments["output_hidden_states"] = True
    return model.get_decoder()(**arguments)


def _name(layer: int) -> str:
    return f"layer_{layer}"
