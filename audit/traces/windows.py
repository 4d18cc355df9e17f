"""Cut documents into windows of tokens, and decide which windows run together.

Everything here happens before the model runs; `capture` then has no decisions left to make.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from audit.corpora import Document
from audit.errors import BadUsageError, MismatchError, UnreadableError
from audit.traces.verifier import Verifier


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: decided before the model runs."""

    windows: list[torch.Tensor]
    """Token ids [length] int64 of each sequence, in the order of the trace."""
    starts: list[int]
    """First row of each sequence."""
    batches: list[list[int]]
    """Indexes of windows to run together, of like length."""
    rows: int


def plan_batches(windows: list[torch.Tensor], batch: int) -> Plan:
    """Batches of windows sorted by length, so that most batches need no padding at all."""
    lengths = [len(window) for window in windows]
    starts = [0]
    for length in lengths[:-1]:
        starts.append(starts[-1] + length)
    order = sorted(range(len(windows)), key=lambda index: (-lengths[index], index))
    batches = [order[first : first + batch] for first in range(0, len(order), batch)]
    return Plan(windows, starts, batches, sum(lengths))


def cut_windows(
    verifier: Verifier, documents: Sequence[Document], context: int, max_positions: int | None
) -> list[torch.Tensor]:
    """Token ids of every sequence; later documents are not read once there are enough."""
    prefix = _prefix(verifier.tokenizer)
    step = context - len(prefix)
    if step < 1:
        raise BadUsageError(
            f"{context} tokens of context leave no room after the tokenizer's {len(prefix)} first "
            "tokens",
            hint=f"use --context {len(prefix) + 1} or more; what is generated comes on top",
        )
    windows: list[torch.Tensor] = []
    left = max_positions if max_positions is not None else -1
    for document in documents:
        ids = _encode(verifier.tokenizer, document.text)
        # A text that was saved with its BOS must not get a second one.
        body = ids[len(prefix) :] if prefix and ids[: len(prefix)] == prefix else ids
        for start in range(0, len(body), step):
            window = (prefix + body[start : start + step])[: left if left >= 0 else None]
            windows.append(torch.tensor(window, dtype=torch.int64))
            left -= len(window) if left >= 0 else 0
            if left == 0:
                return _within_embedding(windows, verifier)
    return _within_embedding(windows, verifier)


def _within_embedding(windows: list[torch.Tensor], verifier: Verifier) -> list[torch.Tensor]:
    if not windows:
        raise UnreadableError(
            "the documents hold no tokens", hint="give at least one text that is not empty"
        )
    rows = int(verifier.model.get_input_embeddings().weight.shape[0])
    largest = max(int(window.max()) for window in windows)
    if largest >= rows:
        raise MismatchError(
            f"the tokenizer made the id {largest}, but {verifier.identity.name} embeds {rows} ids",
            hint="the tokenizer belongs to another model, or the text holds a token for images",
        )
    return windows


def _prefix(tokenizer: Any) -> list[int]:
    """The ids that the tokenizer puts in front of a text: BOS, or nothing."""
    whole = list(tokenizer("a", verbose=False)["input_ids"])
    bare = _encode(tokenizer, "a")
    for start in range(len(whole) - len(bare) + 1):
        if whole[start : start + len(bare)] == bare:
            return whole[:start]
    return []


def _encode(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
