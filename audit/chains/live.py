"""A plain speculative decoding loop, and plain greedy decoding beside it that knows no head.

Both run transformers' model one text at a time, with its own KV cache where that can be rolled
back, else without. Tokens are chosen by one function for both (`oracle.greedy_tokens`: the largest
logit of the tokenizer's ids, the lowest of equal ones). A verify step sums in another order than a
step of one token does, so a near-tie of the verifier's own logits may fall otherwise; `margins`
tells. Leaves out sampling: only greedy decoding can be compared token for token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from audit.chains.drafting import Anchors, draft_chains
from audit.chains.recursion import Recursion
from audit.chains.texts import info_of, layer_states, layers_read
from audit.heads import Head
from audit.traces import Trace
from audit.traces.oracle import greedy_tokens
from audit.traces.verifier import Verifier


class Decoding:
    """One text being read by the verifier."""

    def __init__(self, verifier: Verifier, longest: int) -> None:
        """`longest`: tokens that will be read at most."""
        self.verifier, self.tokens = verifier, torch.zeros(0, dtype=torch.int64)
        self.cache = _cache(verifier.model, longest)
        parameters = signature(verifier.model.get_decoder().forward).parameters
        # transformers renames it in 5.24, and drops the old name in 5.40.
        self.cache_name = "cache" if "cache" in parameters else "past_key_values"

    def read(self, more: Tensor) -> Tensor:
        """States [m, d] after the final norm of m further tokens (int64 [m])."""
        model = self.verifier.model
        self.tokens = torch.cat([self.tokens, more])
        inputs = self.tokens if self.cache is None else more
        arguments: dict[str, Any] = {"use_cache": False}
        if self.cache is not None:
            arguments = {"use_cache": True, self.cache_name: self.cache}
        output = model.get_decoder()(input_ids=inputs.unsqueeze(0).to(model.device), **arguments)
        states: Tensor = output.last_hidden_state[0].cpu().float()
        return states[-len(more) :]

    def forget(self, count: int) -> None:
        """Drop the last tokens that were read."""
        if count:
            self.tokens = self.tokens[:-count]
            if self.cache is not None:
                self.cache.crop(-count)

    def greedy(self, states: Tensor) -> Tensor:
        """The verifier's tokens, int64 [m]."""
        head = self.verifier.model.get_output_embeddings()
        return greedy_tokens(states, head, self.verifier.vocabulary)


def _cache(model: Any, longest: int) -> Any | None:
    """An empty KV cache; None where the model keeps something that can not be rolled back."""
    from transformers import DynamicCache

    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    window = getattr(config, "sliding_window", None)
    if window is not None and longest >= window:
        return None
    if kinds - {"full_attention", "sliding_attention"}:
        return None
    return DynamicCache(config=config)


@dataclass(frozen=True, slots=True)
class Plain:
    """A text without any head."""

    tokens: list[int]
    """The new ones."""
    margins: list[float]
    """The verifier's best minus second logit where each was chosen."""


def decode_plainly(
    verifier: Verifier, prompt: Tensor, most: int, ends: Sequence[int]
) -> Plain:  # fmt: skip
    """Greedy decoding, one token after the other. Takes no head, so it can use none."""
    text = Decoding(verifier, len(prompt) + most)
    tokens, margins = list[int](), list[float]()
    with torch.no_grad():
        states = text.read(prompt)[-1:]
        while True:
            tokens.append(int(text.greedy(states)[0]))
            margins.append(_margin(verifier, states[0]))
            if len(tokens) == most or tokens[-1] in ends:
                return Plain(tokens, margins)
            states = text.read(torch.tensor(tokens[-1:]))


def _margin(verifier: Verifier, state: Tensor) -> float:
    head = verifier.model.get_output_embeddings()
    logits = head(state.to(head.weight.device, head.weight.dtype))[: verifier.vocabulary]
    best = logits.float().topk(2).values
    return float(best[0] - best[1])


@dataclass(slots=True)
class Live:
    """A text with the head."""

    tokens: list[int] = field(default_factory=list)
    """The new ones, cut where the text was asked to end."""
    anchors: list[int] = field(default_factory=list)
    """Place in the whole text of the last known token, one per round."""
    drafted: list[int] = field(default_factory=list)
    """Slots drafted in each round."""
    accepted: list[int] = field(default_factory=list)
    """Slots accepted in each round."""


class Speculation:
    """The loop: draft K slots, verify them in one step, keep what is right and one token more."""

    def __init__(
        self, verifier: Verifier, head: Head, recursion: Recursion, slots: int, p_min: float
    ) -> None:
        self.verifier, self.head, self.recursion = verifier, head, recursion
        self.slots, self.p_min = slots, p_min
        self.valid = min(head.vocabulary, verifier.vocabulary)
        self.layers = layers_read(recursion)

    def decode(self, prompt: Tensor, most: int, ends: Sequence[int]) -> Live:
        """Continue one prompt by at most so many tokens."""
        text, live = Decoding(self.verifier, len(prompt) + most + self.slots + 1), Live()
        with torch.no_grad():
            states = text.read(prompt)
            known = torch.cat([prompt, text.greedy(states[-1:])])
            while len(known) - len(prompt) < most and int(known[-1]) not in ends:
                drafts = self._draft(known, states)
                seen = text.read(torch.cat([known[-1:], drafts]))
                right = text.greedy(seen)
                count = _accepted(drafts, right, ends)
                live.anchors.append(len(known) - 1)
                live.drafted.append(len(drafts))
                live.accepted.append(count)
                text.forget(len(drafts) - count)
                ended = count > 0 and int(drafts[count - 1]) in ends
                bonus = right[:0] if ended else right[count : count + 1]
                states = torch.cat([states, seen[: count + 1]])
                known = torch.cat([known, drafts[:count], bonus])
        live.tokens = known[len(prompt) :][:most].tolist()
        return live

    def _draft(self, known: Tensor, states: Tensor) -> Tensor:
        """Drafts int64 [m], m <= K, behind the known tokens; the last of them was not read yet."""
        ahead = self.head.lookahead - 1
        trace = self._trace(known, states)
        last = torch.tensor([len(known) - 1])
        drafts = draft_chains(
            self.head, self.recursion, trace, Anchors(last - ahead, last),
            slots=self.slots, valid=self.valid, p_min=self.p_min,
        )  # fmt: skip
        return drafts.tokens[0, : int(drafts.drafted.sum())]

    def _trace(self, known: Tensor, states: Tensor) -> Trace:
        """What the head may know: the known tokens, the states of those that were read, and the
        states between layers where it reads such: an early exit runs those layers itself."""
        rows = len(known)
        room = torch.zeros(rows - len(states), states.shape[1])
        return Trace(
            info=info_of(self.layers),
            hidden=torch.cat([states, room]),
            token=known,
            oracle=torch.full((rows,), -1),
            sequence=torch.zeros(rows, dtype=torch.int64),
            position=torch.arange(rows),
            states=layer_states(self.verifier, [known], self.layers) if self.layers else {},
        )


def _accepted(drafts: Tensor, right: Tensor, ends: Sequence[int]) -> int:
    """How many drafts are the verifier's; none counts behind an end-of-sequence token."""
    count = 0
    for draft, wanted in zip(drafts.tolist(), right.tolist(), strict=False):
        if draft != wanted:
            return count
        count += 1
        if draft in ends:
            return count
    return count
