"""Run the verifier over windows of tokens and keep its states.

Windows run in batches of like length and their states go straight into place, so that memory is
bounded by the states and one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from audit.traces.recipe import state_name
from audit.traces.windows import Plan


def record_states(
    model: Any, plan: Plan, layers: Sequence[int], report: Callable[[int], None]
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """States [N, d] after the final norm, and those entering `layers`, in trace order.

    Args:
        report: called with the number of rows done.
    """
    width = int(model.get_output_embeddings().weight.shape[1])
    hidden = torch.empty(plan.rows, width, dtype=model.dtype)
    states: dict[str, torch.Tensor] = {}
    done = 0
    for indexes in plan.batches:
        output = _forward(model, [plan.windows[index] for index in indexes], bool(layers))
        recorded = {state_name(layer): output.hidden_states[layer] for layer in layers}
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
        report(done)
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
