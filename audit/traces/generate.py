"""The model continues its own prompts: text in distribution is what a model really says.

The text comes from transformers' own generation with its cache. Its states do not: they are
recorded by the same pass over whole sequences as for any text (`states`), so that they never
depend on how the text was made. Leaves out chat templates: prompts are run as they are given.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from audit.traces.quiet import hushed
from audit.traces.recipe import Generation
from audit.traces.verifier import Verifier

GROUP = 16
"""Prompts that are continued together. A constant: rounding depends on how many run together, and
a near-tie that falls otherwise changes all that follows, so the text must not depend on a batch
size that somebody chose for speed."""
_PADDING = 0

Report = Callable[[int, int], None]
"""Called with (new tokens done, new tokens at most)."""


@dataclass(frozen=True, slots=True)
class Continued:
    """One prompt and what the model added to it."""

    tokens: torch.Tensor
    """[length] int64: the prompt, then the new tokens, an end-of-sequence token included."""
    prompt: int
    """How many of them were given."""
    ended: bool
    """The last token ends the text: nothing is ever proposed behind it."""


def continue_prompts(
    verifier: Verifier,
    prompts: Sequence[torch.Tensor],
    how: Generation,
    max_positions: int | None,
    report: Report,
) -> list[Continued]:
    """Continue each prompt; with `max_positions`, until all together are exactly that long.

    Args:
        prompts: [length] int64 each, as `cut_windows` makes them.
        max_positions: later prompts are left out, and the last sequence is shortened.
    """
    stops = [] if how.ignore_eos else end_tokens(verifier)
    left = max_positions if max_positions is not None else -1
    found: list[Continued] = []
    for start in range(0, len(prompts), GROUP):
        group = prompts[start : start + GROUP]

        def tick(step: int, first: int = start, width: int = len(group)) -> None:
            report(first * how.tokens + step * width, len(prompts) * how.tokens)

        added = _generate(verifier, group, how, stops, start, tick)
        for prompt, new in zip(group, added, strict=True):
            whole = Continued(
                tokens=torch.cat([prompt, new]),
                prompt=len(prompt),
                ended=bool(stops) and int(new[-1]) in stops,
            )
            found.append(_shortened(whole, left) if left >= 0 else whole)
            left -= len(found[-1].tokens) if left >= 0 else 0
            if left == 0:
                return found
    return found


def end_tokens(verifier: Verifier) -> list[int]:
    """Ids that end a text: those of the generation config, the model's and the tokenizer's."""
    model = verifier.model
    named: set[int] = set()
    for source in (model.generation_config, model.config.get_text_config(), verifier.tokenizer):
        ids = getattr(source, "eos_token_id", None)
        named |= set(ids if isinstance(ids, list | tuple) else [] if ids is None else [ids])
    return sorted(token for token in named if 0 <= token < verifier.vocabulary)


def _shortened(whole: Continued, length: int) -> Continued:
    """Its first `length` tokens."""
    if length >= len(whole.tokens):
        return whole
    return Continued(whole.tokens[:length], min(whole.prompt, length), ended=False)


def _generate(
    verifier: Verifier,
    prompts: Sequence[torch.Tensor],
    how: Generation,
    stops: list[int],
    first: int,
    tick: Callable[[int], None],
) -> list[torch.Tensor]:
    """The new tokens of each prompt, up to its first end token; `first` is the first's number."""
    model, longest = verifier.model, max(len(prompt) for prompt in prompts)
    inputs = torch.full((len(prompts), longest), _PADDING)
    mask = torch.zeros_like(inputs)
    for row, prompt in enumerate(prompts):
        # On the left, so that all continue at one column; generate() counts positions by the mask.
        inputs[row, longest - len(prompt) :] = prompt
        mask[row, longest - len(prompt) :] = 1
    config = GenerationConfig(
        max_new_tokens=how.tokens,
        do_sample=False,
        num_beams=1,
        eos_token_id=stops or None,
        pad_token_id=_PADDING,
    )
    with torch.no_grad(), hushed(), _own_defaults(model):
        output = model.generate(
            input_ids=inputs.to(model.device),
            attention_mask=mask.to(model.device),
            generation_config=config,
            logits_processor=_choosers(verifier.vocabulary, how, first, len(prompts)),
            stopping_criteria=StoppingCriteriaList([_Tick(longest, tick)]),
        )
    return [_until_end(new, stops) for new in output[:, longest:].cpu()]


def _until_end(new: torch.Tensor, stops: list[int]) -> torch.Tensor:
    ends = torch.isin(new, torch.tensor(stops, dtype=new.dtype)).nonzero().flatten()
    return new[: int(ends[0]) + 1] if len(ends) else new


@contextmanager
def _own_defaults(model: Any) -> Iterator[None]:
    """Keep the checkpoint's own defaults (temperature, penalties, beams) out of the generation."""
    theirs = model.generation_config
    model.generation_config = GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = theirs


def _choosers(vocabulary: int, how: Generation, first: int, count: int) -> LogitsProcessorList:
    """What stands between the logits and the token, which is then the largest."""
    chain = LogitsProcessorList([_OnlyKnown(vocabulary)])
    if how.temperature is None:
        return chain
    if how.temperature != 1:
        chain.append(TemperatureLogitsWarper(float(how.temperature)))
    if how.top_k is not None:
        chain.append(TopKLogitsWarper(how.top_k))
    if how.top_p is not None:
        chain.append(TopPLogitsWarper(float(how.top_p)))
    chain.append(_Draw([_generator(how.seed, first + row) for row in range(count)]))
    return chain


def _generator(seed: int, number: int) -> torch.Generator:
    """The random numbers of one sequence, which no other sequence touches."""
    digest = hashlib.sha256(f"{seed}:{number}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big", signed=True))


class _OnlyKnown(LogitsProcessor):  # type: ignore[misc]
    """Rows of the head that no token of the tokenizer stands for are never chosen."""

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores[:, self.vocabulary :] = -torch.inf
        return scores


class _Draw(LogitsProcessor):  # type: ignore[misc]
    """One token for each sequence, drawn with its own generator; the others become impossible."""

    def __init__(self, generators: list[torch.Generator]) -> None:
        self.generators = generators

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        summed = scores.double().softmax(-1).cumsum(-1).cpu()
        # In (0, 1], so that the first sum to reach it is never that of an impossible token.
        drawn = [1 - torch.rand(1, dtype=torch.float64, generator=g) for g in self.generators]
        chosen = torch.searchsorted(summed, torch.stack(drawn) * summed[:, -1:])
        only = torch.full_like(scores, -torch.inf)
        return only.scatter(1, chosen.to(scores.device), 0.0)


class _Tick(StoppingCriteria):  # type: ignore[misc]
    """Never stops anything; tells how many tokens there are."""

    def __init__(self, before: int, tick: Callable[[int], None]) -> None:
        self.before, self.tick = before, tick

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **more: Any) -> torch.Tensor:
        self.tick(input_ids.shape[1] - self.before)
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
