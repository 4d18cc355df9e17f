"""The verifier's greedy token from a hidden state, in vocabulary tiles.

Logits of all positions never exist at once: one block of rows meets one tile of the output
embedding. What a model does to its logits afterwards (softcap, scale) does not move the largest as
long as it is monotone; `check_against_model` measures that, instead of knowing each architecture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import torch

from audit.errors import UnreadableError, UnsupportedFormatError
from audit.logits import BLOCK, even_pieces, first_equal, padded, padded_view

# Measured with 192 and 640 columns: shorter chunks slow the product down by more than they gain.
_ROWS = 2560
_TILE = 2048
_CHECKED_POSITIONS = 100
_MIN_AGREEMENT = 0.99
_AGREED: WeakSet[Any] = WeakSet()
"""Open models whose own greedy tokens were found to be their head's."""


def greedy_tokens(
    hidden: torch.Tensor,
    head: torch.nn.Linear,
    vocabulary: int,
    progress: Callable[[int], None] | None = None,
) -> torch.Tensor:
    """Largest logit's id for each row, the lowest id on ties.

    Args:
        hidden: [N, d], any float dtype; the product is taken in float32.
        head: its `weight` [V, d] and `bias` [V] or None are used.
        vocabulary: ids from here on are never chosen; at most V.
        progress: called with the number of rows done.

    Returns:
        [N] int64 on the CPU. Depends on the rows alone, not on how they were made.

    Raises:
        UnreadableError: a logit is NaN or infinite (code NON_FINITE).
    """
    oracle = torch.empty(len(hidden), dtype=torch.int64)
    # One buffer for all: fresh megabytes for each tile would cost as much as what fills them.
    size = min(_ROWS, len(hidden)) * padded(min(_TILE, vocabulary))
    buffer = torch.empty(size, device=head.weight.device)
    for start in range(0, len(hidden), _ROWS):
        rows = hidden[start : start + _ROWS].to(head.weight.device, torch.float32)
        oracle[start : start + _ROWS] = _greedy_block(rows, head, vocabulary, buffer).cpu()
        if progress:
            progress(start + len(rows))
    return oracle


def _greedy_block(
    rows: torch.Tensor, head: torch.nn.Linear, vocabulary: int, buffer: torch.Tensor
) -> torch.Tensor:
    """[rows] ids for float32 `rows` [rows, d]."""
    best = rows.new_full((len(rows),), -torch.inf)
    token = torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
    broken = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
    for at in even_pieces(vocabulary, _TILE):
        logits, inner = padded_view(buffer, len(rows), at.stop - at.start)
        torch.mm(rows, head.weight[at].to(torch.float32).T, out=inner)
        if head.bias is not None:
            inner += head.bias[at].to(torch.float32)
        blocks = logits.view(len(rows), -1, BLOCK)
        peaks = blocks.amax(-1)
        top = peaks.amax(-1)
        # NaN compares as no improvement, so it would pass unseen.
        broken |= top.isnan()
        # Only rows that improve need the id, and an earlier tile keeps a tie.
        better = torch.nonzero(top > best).flatten()
        best[better] = top[better]
        block = first_equal(peaks[better], top[better])
        column = first_equal(blocks[better, block], top[better])
        token[better] = at.start + block * BLOCK + column
    if bool((broken | ~best.isfinite()).any()):
        raise UnreadableError(
            "the verifier's logits hold NaN or infinity",
            hint="its LM head overflowed or is damaged; check the weights with `audit inspect`",
            code="NON_FINITE",
        )
    return token


def check_once(model: Any, tokens: torch.Tensor, vocabulary: int) -> None:
    """`check_against_model` on the first text that an open model is run over.

    What a model does to its logits is not a matter of the text.
    """
    if model not in _AGREED and check_against_model(model, tokens, vocabulary):
        _AGREED.add(model)


def check_against_model(model: Any, tokens: torch.Tensor, vocabulary: int) -> float:
    """Compare the tiled oracle with the model's own logits; return the share that agrees.

    Only the first positions of `tokens` [L] are run: a causal model's states there do not depend
    on the rest. A position agrees if the oracle's logit is the model's largest, up to rounding.

    Raises:
        UnsupportedFormatError: less than 99 % agree.
    """
    inputs = tokens[:_CHECKED_POSITIONS].unsqueeze(0).to(model.device)
    own, states = _own_logits(model, inputs)
    if not bool(states.isfinite().all()):
        return 0.0  # The capture itself then refuses, and names every such position.
    oracle = greedy_tokens(states, model.get_output_embeddings(), vocabulary).to(model.device)
    own = own[:, :vocabulary]
    largest = own.amax(dim=1)
    # Two orders of summation differ by a few units in the last place of the largest logit.
    tolerance = 8 * torch.finfo(own.dtype).eps * largest.abs().clamp(min=1)
    chosen = own.gather(1, oracle.unsqueeze(1)).squeeze(1)
    share = float((chosen >= largest - tolerance).double().mean())
    if not share >= _MIN_AGREEMENT:
        raise UnsupportedFormatError(
            f"this model changes its logits after the head in a way that is not known: "
            f"its own greedy tokens agree with its head's at {share:.0%} of "
            f"{len(oracle)} positions",
            hint="capture in the engine that runs it and write a trace file",
        )
    return share


def _own_logits(model: Any, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [L, V] for `inputs` [1, L], and the decoder's states [L, d] of the same run."""
    seen: list[Any] = []
    handle = model.get_decoder().register_forward_hook(lambda *call: seen.append(call[-1]))
    try:
        logits = model(input_ids=inputs, use_cache=False).logits[0]
    finally:
        handle.remove()
    return logits, seen[-1].last_hidden_state[0]
