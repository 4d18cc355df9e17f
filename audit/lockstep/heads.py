"""Put heads to work on one trace's states and run the pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from audit.errors import BadUsageError, UnreadableError
from audit.heads.head import Head
from audit.lockstep.running import Running
from audit.lockstep.stream import Answers, Pass, Progress
from audit.lockstep.subset import RowsOfRef, takes_rows_of


def compare_heads(
    ref: Head,
    cands: Sequence[Head],
    states: Tensor,
    oracle: Tensor,
    *,
    cand_states: Sequence[Tensor] | None = None,
    valid: int | None = None,
    kl: bool = False,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> tuple[Answers, list[Answers]]:
    """Run the reference and any number of candidates on the same states.

    Args:
        ref, cands: heads over the same target vocabulary.
        states: [N, hidden] in any float type, as the projection's adapter expects them (normed).
        cand_states: each candidate's own states, where a draft block of its own made them; the
            very tensor `states` where they are the reference's. Default: `states` for all.
        oracle: int64 [N], the verifier's greedy token per position, -1 where there is none.
        valid: ids from here on are padding; default: what the reference says. A candidate never
            decides what counts, or it could declare the ids it lost to be padding.
        kl: also compute KL(ref || cand) in nats, for candidates that cover the whole vocabulary.
        device: where the products run. Sums are float32 on any device.
        progress: called with (tiles done, tiles in all).

    Raises:
        MismatchError: the states do not fit a head.
        UnreadableError: NaN or infinity in states, weights or logits (code NON_FINITE).
        BadUsageError: no positions.
    """
    device = torch.device(device)
    _check_states(states)
    oracle = oracle.to(device)
    inputs = states.to(device, torch.float32)
    running_ref = Running(ref, ref.project_in(inputs), oracle, device)
    own = cand_states or [states] * len(cands)
    running = []
    for cand, given in zip(cands, own, strict=True):
        if given is states:
            running.append(_running(cand, ref, running_ref, inputs, oracle))
            continue
        _check_states(given)
        projected = cand.project_in(given.to(device, torch.float32))
        running.append(Running(cand, projected, oracle, device))
    work = Pass(
        running_ref,
        running,
        vocabulary=max(head.vocabulary for head in (ref, *cands)),
        valid=known_ids(ref) if valid is None else valid,
        kl=kl,
    )
    # not inference_mode: decoders fill tiles from threads, which that mode forbids
    with torch.no_grad():
        work.run(progress)
        return work.answers()


def known_ids(ref: Head) -> int:
    """Number of ids that count: the reference's tokenizer's, or all its rows'."""
    return ref.vocabulary if ref.valid is None else min(ref.valid, ref.vocabulary)


def _running(
    cand: Head, ref: Head, running_ref: Running, inputs: Tensor, oracle: Tensor
) -> Running:
    if takes_rows_of(cand, ref):
        return RowsOfRef(cand, running_ref)
    # The very same tensor where nothing is adapted: equal weights then mean equal logits.
    states = running_ref.states if cand.adapt is ref.adapt else cand.project_in(inputs)
    if cand.adapt is ref.adapt:
        cand.project_in(inputs[:0])
    return Running(cand, states, oracle, running_ref.device)


def _check_states(states: Tensor) -> None:
    if len(states) == 0:
        raise BadUsageError("there are no positions to compare on", hint="record a longer trace")
    bad = (~torch.isfinite(states.sum(-1, dtype=torch.float32))).nonzero().squeeze(1)
    if len(bad):
        some = ", ".join(str(int(row)) for row in bad[:5])
        raise UnreadableError(
            f"{len(bad)} of {len(states)} states hold NaN or infinity (rows {some})",
            hint="record the trace again, in float32 or bfloat16; float16 overflows",
            code="NON_FINITE",
        )
