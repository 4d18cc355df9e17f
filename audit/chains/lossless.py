"""What `audit lossless` does: every text with each head and without any, token for token.

Without a head first (`live.decode_plainly` takes none). Then with each head, and what the loop
accepted is held against what `audit chain` counts from the finished texts at the same anchors: two
ways to the same numbers, one with a cache step by step, one over whole texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from audit.chains.asking import ChainRequest, check_slots, context_of, load_heads
from audit.chains.drafting import Anchors, draft_chains
from audit.chains.live import Live, Plain, Speculation, decode_plainly
from audit.chains.records import Difference, LosslessHead, LosslessResult
from audit.chains.recursion import Recursion, recursion_for
from audit.chains.texts import layers_read, trace_of
from audit.chains.verifying import Checker, accepted_slots
from audit.corpora import Document
from audit.errors import BadUsageError
from audit.heads import Head, HeadOptions
from audit.pair import PairOptions
from audit.records import Stage
from audit.traces.generate import end_tokens
from audit.traces.oracle import check_once
from audit.traces.verifier import Verifier, load_verifier
from audit.traces.windows import cut_windows

Progress = Callable[[str, int, int], None]
NEAR_TIE = 1e-4
"""Logits closer than this may fall either way with the order of summation in float32."""
_WHOLE = 1 << 40


@dataclass(frozen=True, slots=True)
class LosslessRequest:
    """Everything a user can ask of `audit lossless`."""

    model: Path
    documents: Sequence[Document]
    candidates: tuple[Path, ...] = ()
    tokens: int = 64
    slots: int = 4
    p_min: float = 0.0
    most: int | None = None
    """So many prompts, the first ones; None for all."""
    chain_stage: Stage | None = None
    device: str = "cpu"
    """Where the verifier, the block and the products run."""
    ref_options: HeadOptions = field(default_factory=HeadOptions)
    pair: PairOptions = field(default_factory=PairOptions)


def run_lossless(request: LosslessRequest, progress: Progress | None = None) -> LosslessResult:
    """Decode all prompts without a head and with each.

    Raises:
        AuditError: bad input, a prompt that does not fit the context among it.
    """
    report = progress or (lambda what, done, total: None)
    check_slots(request.slots, request.p_min)
    heads = load_heads(
        ChainRequest(
            request.model, request.candidates, ref_options=request.ref_options, pair=request.pair
        )
    )
    report("loading the verifier", 0, 1)
    verifier = load_verifier(request.model, device=request.device)
    recursions = [
        recursion_for(head, verifier.model, request.chain_stage).to(request.device)
        for head in heads
    ]
    prompts = _prompts(request, verifier)
    ends = end_tokens(verifier)
    check_once(verifier.model, prompts[0], verifier.vocabulary)
    plain = []
    for done, prompt in enumerate(prompts):
        report("decode without a head", done, len(prompts))
        plain.append(decode_plainly(verifier, prompt, request.tokens, ends))
    made = [
        _one_head(request, verifier, head, recursion, prompts, plain, report)
        for head, recursion in zip(heads, recursions, strict=True)
    ]
    return LosslessResult(
        model=verifier.identity.name,
        slots=request.slots,
        p_min=request.p_min,
        prompts=len(prompts),
        new_tokens=sum(len(one.tokens) for one in plain),
        smallest_margin=min(min(one.margins) for one in plain),
        heads=tuple(made),
        notes=("greedy, float32, one text at a time; the texts without a head come from a loop "
               "that takes none",),
    )  # fmt: skip


def _prompts(request: LosslessRequest, verifier: Verifier) -> list[Tensor]:
    """Token ids of each prompt, none of which is cut.

    Raises:
        BadUsageError: one is too long for what is to follow it.
    """
    documents = request.documents[: request.most] if request.most else request.documents
    prompts = cut_windows(verifier, documents, _WHOLE, None)
    room = context_of(verifier)
    for number, prompt in enumerate(prompts):
        needed = len(prompt) + request.tokens + request.slots + 1
        if room is not None and needed > room:
            raise BadUsageError(
                f"prompt {number} has {len(prompt)} tokens; with {request.tokens} new ones and "
                f"{request.slots} slots it needs {needed}, and the verifier was made for {room}",
                hint="fewer --tokens, or shorter prompts",
            )
    return prompts


def _one_head(
    request: LosslessRequest,
    verifier: Verifier,
    head: Head,
    recursion: Recursion,
    prompts: Sequence[Tensor],
    plain: Sequence[Plain],
    report: Progress,
) -> LosslessHead:
    loop = Speculation(verifier, head, recursion, request.slots, request.p_min)
    live, ends = [], end_tokens(verifier)
    for done, prompt in enumerate(prompts):
        report(f"decode with {head.record.name}", done, len(prompts))
        live.append(loop.decode(prompt, request.tokens, ends))
    report(f"predict {head.record.name}", 0, 1)
    predicted = _predicted(request, verifier, head, recursion, prompts, live)
    found = [
        difference(number, one, other)
        for number, (one, other) in enumerate(zip(plain, live, strict=True))
    ]
    differences = tuple(one for one in found if one)
    drafted = torch.tensor([n for one in live for n in one.drafted])
    accepted = torch.tensor([n for one in live for n in one.accepted])
    slots = range(request.slots)
    return LosslessHead(
        head=head.record,
        recursion=recursion.said,
        rounds=len(accepted),
        drafted=tuple(int((drafted > slot).sum()) for slot in slots),
        accepted=tuple(int((accepted > slot).sum()) for slot in slots),
        predicted=tuple(int((predicted > slot).sum()) for slot in slots),
        rounds_apart=int((predicted != accepted).sum()),
        tokens_per_round=1 + float(accepted.double().mean()) if len(accepted) else None,
        identical=not differences,
        differences=differences,
    )


def _predicted(
    request: LosslessRequest,
    verifier: Verifier,
    head: Head,
    recursion: Recursion,
    prompts: Sequence[Tensor],
    live: Sequence[Live],
) -> Tensor:
    """Slots that `audit chain` accepts at each round's anchor, int64 [rounds]."""
    whole = [
        torch.cat([prompt, torch.tensor(one.tokens, dtype=torch.int64)])
        for prompt, one in zip(prompts, live, strict=True)
    ]
    firsts = torch.tensor([0, *(len(text) for text in whole)]).cumsum(0)
    targets = [
        int(first) + anchor
        for first, one in zip(firsts, live, strict=False)
        for anchor in one.anchors
    ]
    if not targets:
        return torch.zeros(0, dtype=torch.int64)
    trace = trace_of(verifier, whole, layers_read(recursion))
    last = torch.tensor(targets)
    anchors = Anchors(last - (head.lookahead - 1), last)
    drafts = draft_chains(
        head, recursion, trace, anchors, slots=request.slots,
        valid=min(head.vocabulary, verifier.vocabulary), p_min=request.p_min,
    )  # fmt: skip
    greedy = Checker(verifier, trace).greedy(anchors, drafts.tokens)
    return accepted_slots(drafts, greedy, end_tokens(verifier)).sum(1)


def difference(number: int, plain: Plain, live: Live) -> Difference | None:
    """Where two texts part; None where they are the same."""
    if plain.tokens == live.tokens:
        return None
    pairs = zip(plain.tokens, live.tokens, strict=False)
    shorter = min(len(plain.tokens), len(live.tokens))
    place = next((i for i, (one, other) in enumerate(pairs) if one != other), shorter)
    token = live.tokens[place] if place < len(live.tokens) else None
    own = plain.tokens[place] if place < len(plain.tokens) else None
    margin = plain.margins[place] if own is not None else None
    near = margin is not None and margin <= NEAR_TIE
    told = f"prompt {number}, new token {place}: {_token(own)} without the head, "
    told += f"{_token(token)} with it"
    if margin is not None:
        why = "a near-tie that rounding decides" if near else "no near-tie"
        told += f"; the verifier's margin there is {margin:.2g} logits, {why}"
    return Difference(
        prompt=number, position=place, plain_token=own, token=token, margin=margin,
        near_tie=near, sentence=told,
    )  # fmt: skip


def _token(token: int | None) -> str:
    return "nothing" if token is None else f"token {token}"
