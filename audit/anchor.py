"""Do these states belong to this head? Asked before anything is believed.

An LM head must reproduce the oracle that the verifier itself gave. RMSNorm hides magnitude, so
states from before or after the final norm look alike; a wrong norm or sign convention shows in the
rank of the right token: near V/2 for unrelated states, near V for inverted ones.
"""

from __future__ import annotations

import torch

from audit.compare import Answers, compare_heads
from audit.errors import MismatchError
from audit.heads import Head
from audit.measure import Measured
from audit.records import Control
from audit.traces import Trace

ANCHOR_MIN = 0.99
_SAMPLE = 256
_CHANCE_MARGIN = 0.05


def check_anchor(
    ref: Head, trace: Trace, measured: Measured, valid: int, minimum: float = ANCHOR_MIN
) -> Control:
    """The anchor control of one trace.

    Args:
        ref, trace: the reference and the states it ran on.
        measured: its answers there.
        valid: number of ids that count.
        minimum: share of the verifier's greedy tokens that an LM head must reproduce.

    Raises:
        MismatchError: STATES_NOT_FOR_THIS_HEAD or ANTI_CORRELATED, with what would mend it.
    """
    covered = measured.ref.oracle_rank > 0
    if not bool(covered.any()):
        raise MismatchError(
            f"{ref.record.name} has no row for any oracle token of {trace.info.corpus}",
            hint="the vocabulary map or the trace is another model's",
            where=trace.path or "",
            code="STATES_NOT_FOR_THIS_HEAD",
        )
    ranks = measured.ref.oracle_rank[covered]
    # Rank 1 also where another id is exactly as good: which one a kernel picks is chance.
    share = float((ranks == 1).float().mean())
    floor = minimum if trace.info.oracle == "verifier_greedy" else _chance(measured)
    median = int(ranks.median())
    if share >= floor:
        return _control(trace, share, floor, passed=True)
    code = "ANTI_CORRELATED" if median > valid / 2 else "STATES_NOT_FOR_THIS_HEAD"
    raise MismatchError(
        f"{ref.record.name} reproduces {100 * share:.1f} % of the verifier's tokens on "
        f"{trace.info.corpus}, {100 * floor:.0f} % are needed (median rank of the right token "
        f"{median:,} of {valid:,})",
        hint=_advice(ref, trace, measured, valid, median, floor),
        where=trace.path or "",
        code=code,
    )


def near_chance(measured: Measured) -> float:
    """Acceptance of a head that knows nothing: the most common oracle token's share."""
    counts = measured.oracle.unique(return_counts=True)[1]
    return float(counts.max()) / len(measured.oracle)


def _chance(measured: Measured) -> float:
    return min(1.0, near_chance(measured) + _CHANCE_MARGIN)


def _advice(
    ref: Head, trace: Trace, measured: Measured, valid: int, median: int, floor: float
) -> str:
    """What would mend it, tried on a sample rather than guessed."""
    if ref.norm is not None:
        other = _with_other_norm(ref, trace, measured, valid)
        if other >= floor:
            fix = "pre_norm" if trace.info.stage == "post_norm" else "post_norm"
            return (
                f"with the final norm {'applied' if fix == 'pre_norm' else 'left out'} it "
                f"reproduces {100 * other:.1f} %: the trace's stage should be {fix}"
            )
    if median > valid / 2:
        return "the right tokens rank last: check the norm's (1 + w) convention and signs"
    return "record the trace with the verifier that this head belongs to: `audit capture MODEL`"


def _with_other_norm(ref: Head, trace: Trace, measured: Measured, valid: int) -> float:
    """Share reproduced on a sample when the norm is applied where it was not, or left out."""
    assert ref.norm is not None
    pick = sample_rows(len(measured.rows), _SAMPLE)
    states = trace.hidden[measured.rows[pick]].float()
    if trace.info.stage == "post_norm":
        states = ref.norm(states)
    answers, _ = compare_heads(ref, [], states, measured.oracle[pick], valid=valid)
    return reproduced(answers)


def reproduced(answers: Answers) -> float:
    """Share of positions whose oracle no id beats."""
    return float((answers.oracle_rank == 1).float().mean())


def sample_rows(count: int, wanted: int) -> torch.Tensor:
    """At most `wanted` of `count` rows, evenly spread, int64."""
    if count <= wanted:
        return torch.arange(count)
    return torch.linspace(0, count - 1, wanted).long()


def _control(trace: Trace, share: float, floor: float, passed: bool) -> Control:
    what = "reproduces" if trace.info.oracle == "verifier_greedy" else "proposes"
    return Control(
        name="anchor",
        corpus=trace.info.corpus,
        observed=share,
        expected=f"at least {100 * floor:.0f} %",
        passed=passed,
        sentence=f"the reference {what} {100 * share:.2f} % of the oracle tokens",
    )
