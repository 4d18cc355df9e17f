"""Traces of token ids in memory, for chains over texts that lie in no trace file."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from audit.blocks.reads import LayerStates
from audit.chains.recursion import Recursion
from audit.errors import BadUsageError
from audit.records import ExtraState, TraceInfo
from audit.traces import Trace
from audit.traces.oracle import check_once, greedy_tokens
from audit.traces.recipe import state_name
from audit.traces.states import record_states
from audit.traces.verifier import Verifier
from audit.traces.windows import plan_batches

_BATCH = 8


def info_of(layers: Sequence[int], vocabulary: int | None = None) -> TraceInfo:
    """What is said of states that were taken after the final norm, in memory."""
    return TraceInfo(
        model="",
        model_sha256=None,
        tokenizer_sha256=None,
        vocabulary=vocabulary,
        corpus="texts",
        register="in_distribution",
        language=None,
        stage="post_norm",
        oracle="verifier_greedy",
        states=tuple(ExtraState(tensor=state_name(layer), layer=layer) for layer in layers),
        captured_by="head-audit",
    )


def layers_read(recursion: Recursion) -> tuple[int, ...]:
    """Layers whose entering states a head reads beside the last one.

    Raises:
        BadUsageError: an EAGLE-3 head that does not say.
    """
    reads = recursion.block.reads
    if not isinstance(reads, LayerStates):
        return ()
    if reads.layers is None:
        raise BadUsageError(
            "this head does not say which layers' states it reads", hint="--aux-layers 2,12,21"
        )
    return reads.layers


def layer_states(
    verifier: Verifier, texts: Sequence[Tensor], layers: Sequence[int]
) -> dict[str, Tensor]:
    """States entering layers, [N, w] each, of texts (int64 [length] each) one after the other."""
    _, states = record_states(
        verifier.model, plan_batches(list(texts), _BATCH), layers, lambda done: None
    )
    return states


def trace_of(verifier: Verifier, texts: Sequence[Tensor], layers: Sequence[int]) -> Trace:
    """The verifier's states and greedy tokens over texts (int64 [length] each), each a sequence."""
    plan = plan_batches(list(texts), _BATCH)
    head = verifier.model.get_output_embeddings()
    with torch.no_grad():
        check_once(verifier.model, plan.windows[0], verifier.vocabulary)
        hidden, states = record_states(verifier.model, plan, layers, lambda done: None)
        oracle = greedy_tokens(hidden, head, verifier.vocabulary)
    lengths = torch.tensor([len(text) for text in texts])
    return Trace(
        info=info_of(layers, verifier.vocabulary),
        hidden=hidden,
        token=torch.cat(list(texts)),
        oracle=oracle,
        sequence=torch.arange(len(texts)).repeat_interleave(lengths),
        position=torch.cat([torch.arange(int(length)) for length in lengths]),
        states=states,
    )
