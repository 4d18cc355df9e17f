"""Two heads and a trace -> position tables. The bridge from tensors to frames.

Everything above this module (estimates, verdict, reports) works on the frames it returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from audit.blocks import BlockHead
from audit.errors import BadUsageError, MismatchError
from audit.heads import Head, Proposals
from audit.heads.proposals import check_trace
from audit.heads.tokens import Tokens
from audit.lockstep import Answers, compare_heads
from audit.lockstep.heads import known_ids
from audit.lockstep.stream import Progress
from audit.pair import same_block, same_parameters
from audit.table import Frame, position_frame
from audit.traces import Trace, lookahead_rows

AnyHead = Head | Proposals
T = TypeVar("T", bound=AnyHead)


@dataclass(frozen=True, slots=True)
class Measured:
    """One trace's results."""

    ref: Answers
    ref_states: Tensor
    """float32 [n, hidden], what entered the reference's projection."""
    rows: Tensor
    """int64 [n], the trace rows that were compared."""
    oracle: Tensor
    """int64 [n]."""
    frames: list[Frame]
    """One position table per candidate, in the order given."""
    same_weights: list[bool]


def with_own_names(cands: Sequence[T]) -> list[T]:
    """The candidates, those whose name is taken renamed: tables are told apart by it."""
    taken: set[str] = set()
    named: list[T] = []
    for cand in cands:
        name, i = cand.record.name, 1
        while name in taken:
            i += 1
            name = f"{cand.record.name}#{i}"
        taken.add(name)
        record = cand.record.model_copy(update={"name": name})
        named.append(cand if name == cand.record.name else replace(cand, record=record))
    return named


def refuse_twins(cands: Sequence[Head]) -> None:
    """Raise BadUsageError where two candidates are one head: figures are joined by its hash."""
    seen: dict[str, Head] = {}
    for cand in cands:
        twin = seen.setdefault(cand.record.sha256, cand)
        if twin is not cand:
            raise BadUsageError(
                f"{twin.record.name} and {cand.record.name} are the same head, by its weights",
                hint="give each head once",
                where=cand.record.path,
            )


def states_for(head: Head, trace: Trace, rows: Tensor, device: str = "cpu") -> Tensor:
    """The states that enter the projection, float32 [n, hidden].

    A draft block makes them from the trace; else they are the trace's own, through the final norm
    where it is due.

    Raises:
        MismatchError: widths differ, or the states need a norm that the head's file does not hold,
            or the block needs what the trace does not hold.
    """
    if isinstance(head, BlockHead):
        return head.block.run(trace, device=device)[rows]
    if trace.hidden_size != head.hidden_size:
        raise MismatchError(
            f"the trace of {trace.info.corpus} has states of width {trace.hidden_size}, "
            f"{head.record.name} reads {head.hidden_size}",
            hint="this trace is of another model: record one with `audit capture MODEL`",
            where=trace.path or "",
        )
    states = trace.hidden[rows].float()
    if trace.info.stage == "post_norm":
        return states
    if head.norm is None:
        raise MismatchError(
            f"the states were taken before the final norm, and {head.record.name} has no norm "
            "to apply",
            hint="give the reference as the whole model (its folder or GGUF), which holds the norm",
            where=trace.path or "",
        )
    return head.norm(states)


def valid_ids(ref: Head, trace: Trace) -> int:
    """Number of ids that count: the verifier's tokenizer's, as trace or reference know it."""
    known = known_ids(ref)
    return min(known, trace.info.vocabulary) if trace.info.vocabulary else known


def measure_trace(
    ref: Head,
    cands: Sequence[AnyHead],
    trace: Trace,
    *,
    kl: bool = False,
    tokens: Tokens | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Measured:
    """Run the reference and all candidates on one trace, in one pass.

    With `tokens`, the classes of the oracle tokens go into the tables.

    Raises:
        MismatchError: the trace is of another model, or proposals of another trace.
        UnreadableError: NaN or infinity anywhere.
    """
    rows, targets = lookahead_rows(trace, ref.lookahead)
    oracle = trace.oracle[targets]
    _check_tokens(trace, ref)
    valid = valid_ids(ref, trace)
    heads = [cand for cand in cands if isinstance(cand, Head)]
    states = states_for(ref, trace, rows, device)
    cand_states = [_states_of_cand(cand, ref, trace, rows, states, device) for cand in heads]
    ref_answers, answers = compare_heads(
        ref,
        heads,
        states,
        oracle,
        cand_states=cand_states,
        valid=valid,
        kl=kl,
        device=device,
        progress=progress,
    )
    classes = {"oracle_class": tokens.classes(oracle.numpy()) if tokens else None}
    pending = iter(answers)
    frames, same = [], []
    for cand in cands:
        common = _common_columns(trace, rows, targets, ref_answers, cand) | classes
        if isinstance(cand, Head):
            answer = next(pending)
            own = _answer_columns(answer, ref, cand, oracle, ref_answers.proposal)
            same.append(answer.same_weights)
        else:
            check_trace(cand, trace.sha256 or "", trace.positions)
            own = proposal_columns(cand.proposal[rows], ref_answers.proposal)
            same.append(False)
        frames.append(position_frame(common | own))
    return Measured(ref_answers, states, rows, oracle, frames, same)


def _states_of_cand(
    cand: Head, ref: Head, trace: Trace, rows: Tensor, ref_states: Tensor, device: str
) -> Tensor:
    """The candidate's states; the reference's own where nothing can differ."""
    if same_block(cand, ref):
        return ref_states
    states = states_for(cand, trace, rows, device)
    same = torch.equal(states, ref_states) and same_parameters(cand, ref)
    return ref_states if same else states


def _check_tokens(trace: Trace, ref: Head) -> None:
    highest = int(torch.maximum(trace.token.max(), trace.oracle.max()))
    known = min(ref.vocabulary, trace.info.vocabulary or ref.vocabulary)
    if highest >= known:
        raise MismatchError(
            f"the trace of {trace.info.corpus} holds token {highest}, but only {known} ids are "
            f"known to it and {ref.record.name}",
            hint="this trace is of another model: record one with `audit capture MODEL`",
            where=trace.path or "",
        )


def _common_columns(
    trace: Trace, rows: Tensor, targets: Tensor, ref: Answers, cand: AnyHead
) -> dict[str, object]:
    return trace_columns(trace, rows, targets) | {
        "candidate": cand.record.name,
        "ref": ref.proposal.numpy(),
        "ref_margin": ref.margin.numpy(),
        "ref_tied": ref.tied.numpy(),
        "ref_rank": ref.oracle_rank.numpy(),
    }


def trace_columns(trace: Trace, rows: Tensor, targets: Tensor) -> dict[str, object]:
    """What the trace alone says of each compared position, int64 `rows` and `targets` [n]."""
    return {
        "corpus": trace.info.corpus,
        "register": trace.info.register_,
        "sequence": trace.sequence[rows].numpy(),
        "position": trace.position[rows].numpy(),
        "token": trace.token[rows].numpy(),
        "oracle": trace.oracle[targets].numpy(),
        "generated": None if trace.generated is None else trace.generated[targets].numpy(),
    }


def _answer_columns(
    answer: Answers, ref: Head, cand: Head, oracle: Tensor, ref_proposal: Tensor
) -> dict[str, object]:
    assert answer.tie_flip is not None
    return {
        "cand": answer.proposal.numpy(),
        "cand_margin": answer.margin.numpy(),
        "cand_tied": answer.tied.numpy(),
        "cand_rank": answer.oracle_rank.numpy(),
        "tie_flip": answer.tie_flip.numpy(),
        "oracle_in_vocabulary": torch.isin(oracle, cand.ids).numpy(),
        "ref_in_vocabulary": torch.isin(ref_proposal, cand.ids).numpy(),
        "kl_nats": None if answer.kl_nats is None else answer.kl_nats.float().numpy(),
    }


def proposal_columns(proposal: Tensor, ref_proposal: Tensor) -> dict[str, object]:
    """Only what bare proposals can tell: no margins, no ranks, and a vocabulary taken as whole."""
    always = torch.ones(len(ref_proposal), dtype=torch.bool).numpy()
    return {
        "cand": proposal.numpy(),
        "cand_margin": None,
        "cand_tied": ~always,
        "cand_rank": None,
        "tie_flip": ~always,
        "oracle_in_vocabulary": always,
        "ref_in_vocabulary": always,
        "kl_nats": None,
    }
