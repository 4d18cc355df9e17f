"""Draft K slots from each of many anchors, batch by batch.

A chain begins where the text is known up to some token. The block runs over the text's true states
and then over one more row per slot, each made by `recursion` from the slot before. Chains are
independent: they run padded on the right, where causal layers never look. The text is run again
for each slot, so that no layer needs a cache that it may not have; memory is one batch of at most
`_ROWS` rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.blocks import Block
from audit.chains.proposing import propose
from audit.chains.recursion import Recursion, check_width
from audit.heads import Head
from audit.traces import Trace

_ROWS = 8192

Tick = Callable[[int], None]
"""Called with the number of chains done."""


@dataclass(frozen=True, slots=True, eq=False)
class Anchors:
    """Where chains begin: int64 [n] rows of one trace."""

    rows: Tensor
    """The last row with a true state."""
    targets: Tensor
    """The row of the last known token, whose oracle slot 0 is held against."""

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, index: Tensor) -> Anchors:
        return Anchors(self.rows[index], self.targets[index])


@dataclass(frozen=True, slots=True, eq=False)
class Drafts:
    """What was drafted from n anchors."""

    tokens: Tensor
    """int64 [n, K]."""
    drafted: Tensor
    """bool [n, K]: False from the first slot on that the head was less sure of than p-min."""


def draft_chains(
    head: Head,
    recursion: Recursion,
    trace: Trace,
    anchors: Anchors,
    *,
    slots: int,
    valid: int,
    p_min: float = 0.0,
    tick: Tick | None = None,
) -> Drafts:
    """Draft from every anchor.

    Raises:
        MismatchError: the trace lacks what the block reads, or the head can not read its own state.
        UnreadableError: NaN or infinity.
    """
    states = recursion.block.reads.of(trace)
    if recursion.block.embedding:
        recursion.block.embedding.check(trace)
    if slots == 1:  # Nothing recursive: one pass over the trace serves every anchor.
        device = recursion.device
        left = recursion.block.run(trace, device=device)[anchors.rows]
        first, probability = propose(head, left, valid, device)
        return Drafts(first.unsqueeze(1), (probability >= p_min).unsqueeze(1))
    tokens = torch.zeros(len(anchors), slots, dtype=torch.int64)
    sure = torch.zeros(len(anchors), slots, dtype=torch.bool)
    done = 0
    with torch.no_grad():
        for index in batches(context_lengths(trace, anchors), slots):
            batch = _Batch(head, recursion, trace, states, anchors.part(index), slots)
            tokens[index], probability = batch.run(valid)
            sure[index] = probability >= p_min
            done += len(index)
            if tick:
                tick(done)
    return Drafts(tokens, sure.int().cumprod(1).bool())


def context_lengths(trace: Trace, anchors: Anchors) -> Tensor:
    """int64 [n]: known tokens of each anchor."""
    return trace.position[anchors.targets] + 1


def known_text(trace: Trace, anchors: Anchors) -> list[Tensor]:
    """The tokens that are known at each anchor, from the first of its sequence on."""
    firsts = anchors.targets - trace.position[anchors.targets]
    pairs = zip(firsts.tolist(), anchors.targets.tolist(), strict=True)
    return [trace.token[first : last + 1] for first, last in pairs]


def batches(lengths: Tensor, more: int) -> Iterator[Tensor]:
    """Indexes of chains of like length, at most `_ROWS` rows together with `more` each."""
    order = torch.sort(lengths, stable=True).indices
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order):
            rows = (stop + 1 - start) * (int(lengths[order[stop]]) + more)
            if rows > _ROWS:
                break
            stop += 1
        yield order[start:stop]
        start = stop


class _Batch:
    """Some chains side by side."""

    def __init__(
        self,
        head: Head,
        recursion: Recursion,
        trace: Trace,
        states: Tensor,
        anchors: Anchors,
        slots: int,
    ) -> None:
        self.head, self.recursion, self.slots = head, recursion, slots
        self.block: Block = recursion.block
        self.text = known_text(trace, anchors)
        self.last = trace.position[anchors.rows]
        self.each = torch.arange(len(anchors))
        longest = int(self.last.max()) + 1
        columns = torch.arange(longest)
        firsts = (anchors.rows - self.last).unsqueeze(1)
        rows = firsts + torch.minimum(columns, self.last.unsqueeze(1))
        entering = recursion.enter(states[rows].float())
        room = torch.zeros(len(anchors), slots - 1, entering.shape[-1])
        self.entering = torch.cat([entering, room], dim=1)
        self.following = None
        if self.block.embedding:
            known = self.block.embedding(trace.token[rows + 1])
            room = torch.zeros(len(anchors), slots - 1, known.shape[-1])
            self.following = torch.cat([known, room], dim=1)

    def run(self, valid: int) -> tuple[Tensor, Tensor]:
        """Drafted tokens int64 [B, K] and their probabilities float32 [B, K]."""
        tokens, sure = [], []
        for slot in range(self.slots):
            at = self.last + slot
            left, raw = self._states(at, int(self.last.max()) + 1 + slot)
            token, probability = propose(self.head, left, valid, self.recursion.device)
            tokens.append(token)
            sure.append(probability)
            if slot + 1 < self.slots:
                self._append(at + 1, left, raw, token)
        return torch.stack(tokens, 1), torch.stack(sure, 1)

    def _states(self, at: Tensor, used: int) -> tuple[Tensor, Tensor]:
        """The block's states [B, h] at row `at` of each chain, after and before its norm."""
        following = None if self.following is None else self.following[:, :used]
        left, raw = self.recursion.run(self.entering[:, :used], following)
        return left[self.each, at], raw[self.each, at]

    def _append(self, at: Tensor, left: Tensor, raw: Tensor, token: Tensor) -> None:
        """Give the next slot its row: what it enters with, and the token that was drafted."""
        drafted = token.unsqueeze(1)
        self.text = [torch.cat(pair) for pair in zip(self.text, drafted, strict=True)]
        row = self.recursion.next_row(left, raw, self.text)
        check_width(row, self.entering, self.head)
        self.entering[self.each, at] = row
        if self.following is not None and self.block.embedding is not None:
            self.following[self.each, at] = self.block.embedding(token)
