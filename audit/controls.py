"""Checks on the audit itself, whose right answers are known beforehand.

They run the very code that measures, on a small sample of positions over all traces: a comparison
that can not tell a shuffled head from a good one, or that finds differences between a head and
itself, must not be believed about anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from audit.anchor import sample_rows
from audit.chance import independent_share, upper
from audit.heads import Head
from audit.heads.head import trim_rows
from audit.heads.rows import SelectedRows
from audit.lockstep import Answers, compare_heads
from audit.measure import Measured
from audit.records import Control
from audit.traces import Trace

_SAMPLE = 128
_ALL = "all traces"


def run_controls(
    ref: Head,
    traces: Sequence[Trace],
    measured: Sequence[Measured],
    valid: int,
    *,
    device: str,
    seed: int,
) -> list[Control]:
    """The four controls; a failed one is a result, reported and never hidden.

    Args:
        ref: the reference.
        traces, measured: the traces and what was measured on them.
        valid: number of ids that count.
        device, seed: where to run, and which rows to shuffle.
    """
    states, oracle = _sample(measured)
    rng = torch.Generator().manual_seed(seed)
    again = replace(ref)
    half = torch.randperm(len(ref.ids), generator=rng)[: max(1, len(ref.ids) // 2)]
    # One proposal of the sample is surely kept, so that the subset covers some position.
    kept = torch.cat([ref.ids[half], measured[0].ref.proposal[:1]]).unique()
    subset = trim_rows(ref, kept, ref.record)
    shuffled = replace(
        ref, rows=SelectedRows(ref.rows, torch.randperm(ref.rows.count, generator=rng))
    )
    own, answers = compare_heads(
        ref, [again, subset, shuffled], states, oracle, valid=valid, device=device
    )
    return [
        _self_control(own, answers[0]),
        _subset_control(own, answers[1], kept),
        _shuffled_control(answers[2], oracle),
        *[
            shifted_control(trace.info.corpus, m.ref.proposal, m.oracle)
            for trace, m in zip(traces, measured, strict=True)
            if len(m.oracle) > 1
        ],
    ]


def _sample(measured: Sequence[Measured]) -> tuple[Tensor, Tensor]:
    """States and oracle of at most _SAMPLE positions, evenly over the traces; row 0 is the first
    trace's first position."""
    each = max(1, _SAMPLE // len(measured))
    picks = [sample_rows(len(m.rows), each) for m in measured]
    pairs = list(zip(measured, picks, strict=True))
    states = torch.cat([m.ref_states[pick] for m, pick in pairs])
    return states, torch.cat([m.oracle[pick] for m, pick in pairs])


def _self_control(own: Answers, again: Answers) -> Control:
    differ = int((own.proposal != again.proposal).sum())
    return Control(
        name="self",
        corpus=_ALL,
        observed=differ / len(own.proposal),
        expected="0",
        passed=differ == 0,
        sentence=f"the reference against itself disagrees at {differ} of "
        f"{len(own.proposal)} sampled positions",
    )


def _subset_control(own: Answers, subset: Answers, kept: Tensor) -> Control:
    covered = torch.isin(own.proposal, kept)
    differ = int((own.proposal != subset.proposal)[covered].sum())
    count = int(covered.sum())
    return Control(
        name="row subset",
        corpus=_ALL,
        observed=differ / count if count else 0.0,
        expected="0",
        passed=count > 0 and differ == 0,
        sentence=f"half of the reference's own rows disagree at {differ} of {count} covered "
        "positions",
    )


def _shuffled_control(shuffled: Answers, oracle: Tensor) -> Control:
    share = float((shuffled.proposal == oracle).float().mean())
    bound = upper(independent_share(shuffled.proposal, oracle), len(oracle))
    return Control(
        name="shuffled rows",
        corpus=_ALL,
        observed=share,
        expected=f"near chance, at most {100 * bound:.1f} %",
        passed=share <= bound,
        sentence=f"the reference with its rows shuffled is accepted at {100 * share:.2f} %",
    )


def shifted_control(corpus: str, proposal: Tensor, oracle: Tensor) -> Control:
    """The reference's proposals against the oracle of positions half a trace away, int64 [n]."""
    n = len(oracle)
    moved = oracle.roll(n // 2)
    share = float((proposal == moved).float().mean())
    bound = upper(independent_share(proposal, oracle), n)
    return Control(
        name="shifted oracle",
        corpus=corpus,
        observed=share,
        expected=f"near chance, at most {100 * bound:.1f} %",
        passed=share <= bound,
        sentence=f"against the oracle of other positions the reference is accepted at "
        f"{100 * share:.2f} %",
    )
