"""Do these states belong to this head? Asked before anything is believed.

An LM head must reproduce the oracle that the verifier itself gave; a draft head must not be near
chance. RMSNorm hides magnitude, so
states from before or after the final norm look alike; a wrong norm or sign convention shows in the
rank of the right token: near V/2 for unrelated states, near V for inverted ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from audit.blocks import BlockHead
from audit.chance import independent_share, upper
from audit.errors import MismatchError
from audit.heads import Head
from audit.lockstep import Answers, compare_heads
from audit.lockstep.stream import NARROW_TIE
from audit.measure import Measured
from audit.records import Control
from audit.traces import Trace

ANCHOR_MIN = 0.99
_SAMPLE = 256
_INVERTED = 0.75
"""Share of the ids: unrelated states give a median rank of V/2, inverted ones near V."""
_FEWEST = 30
"""With fewer positions even a good head can not be told from chance."""


def check_anchor(
    ref: Head, trace: Trace, measured: Measured, valid: int, minimum: float = ANCHOR_MIN
) -> Control:
    """The anchor control of one trace.

    Args:
        ref, trace: the reference and the states it ran on.
        measured: its answers there.
        valid: number of ids that count.
        minimum: share of the verifier's greedy tokens that an LM head must reproduce. A draft
            head, or any head on a text's own tokens, must only be beyond chance, which
            `settle_anchors` judges over all traces.

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
    share = reproduced(measured.ref, measured.oracle, ref.is_full)
    if isinstance(ref, BlockHead) or trace.info.oracle == "text":
        return beyond_chance(trace.info.corpus, measured.ref.proposal, measured.oracle, share)
    if share >= minimum:
        return _own_control(trace, share, minimum)
    median = int(ranks.median())
    raise MismatchError(
        f"{ref.record.name} reproduces {100 * share:.1f} % of the verifier's tokens on "
        f"{trace.info.corpus}, {100 * minimum:.0f} % are needed (median rank of the right token "
        f"{median:,} of {valid:,})",
        hint=_advice(ref, trace, measured, valid, median, minimum),
        where=trace.path or "",
        code=_code(median, valid),
    )


def settle_anchors(
    ref: Head, anchors: Sequence[Control], measured: Sequence[Measured], valid: int
) -> list[Control]:
    """A draft head may be useless on some text; the states are its own if it is not on all.

    Raises:
        MismatchError: the reference is near chance on every trace (TOO_FEW_POSITIONS where that
            says nothing).
    """
    good = [control.corpus for control in anchors if control.passed]
    if good:
        note = f"; anchored on {good[0]}"
        return [
            control
            if control.passed
            else control.model_copy(update={"passed": True, "sentence": control.sentence + note})
            for control in anchors
        ]
    ranks = torch.cat([m.ref.oracle_rank for m in measured])
    if len(ranks) < _FEWEST:
        raise MismatchError(
            f"{len(ranks)} positions are too few to tell {ref.record.name} from chance",
            hint="record a longer trace: `audit capture MODEL --max-positions 2500`",
            where=ref.record.path,
            code="TOO_FEW_POSITIONS",
        )
    median = int(ranks[ranks > 0].median())
    shares = ", ".join(f"{100 * control.observed:.1f} %" for control in anchors)
    raise MismatchError(
        f"{ref.record.name} is accepted near chance on every trace ({shares}; median rank of the "
        f"right token {median:,} of {valid:,})",
        hint="check that the trace is of this head's verifier, and its --concat order and --stage; "
        "with inverted norms the right token ranks last",
        where=ref.record.path,
        code=_code(median, valid),
    )


def _code(median: int, valid: int) -> str:
    return "ANTI_CORRELATED" if median > _INVERTED * valid else "STATES_NOT_FOR_THIS_HEAD"


def _advice(
    ref: Head, trace: Trace, measured: Measured, valid: int, median: int, floor: float
) -> str:
    """What would mend it, tried on a sample rather than guessed."""
    if ref.norm is not None and not isinstance(ref, BlockHead):
        other = _with_other_norm(ref, trace, measured, valid)
        if other >= floor:
            fix = "pre_norm" if trace.info.stage == "post_norm" else "post_norm"
            return (
                f"with the final norm {'applied' if fix == 'pre_norm' else 'left out'} it "
                f"reproduces {100 * other:.1f} %: the trace's stage should be {fix}"
            )
    if median > _INVERTED * valid:
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
    return reproduced(answers, measured.oracle[pick], ref.is_full)


def reproduced(answers: Answers, oracle: torch.Tensor, is_full: bool) -> float:
    """Share of positions where the head proposes the oracle, or rates it exactly as high.

    Which of a few equal ids a kernel picks is chance; of many, nothing was known. A full head must
    have the oracle among its ids; a trimmed one is asked only where it has.
    """
    tied = (answers.oracle_rank == 1) & (answers.ties <= NARROW_TIE)
    right = (answers.proposal == oracle) | tied
    asked = right if is_full else right[answers.oracle_rank > 0]
    return float(asked.float().mean())


def sample_rows(count: int, wanted: int) -> torch.Tensor:
    """At most `wanted` of `count` rows, evenly spread, int64."""
    if count <= wanted:
        return torch.arange(count)
    return torch.linspace(0, count - 1, wanted).long()


def _own_control(trace: Trace, share: float, minimum: float) -> Control:
    return Control(
        name="anchor",
        corpus=trace.info.corpus,
        observed=share,
        expected=f"at least {100 * minimum:.0f} %",
        passed=True,
        sentence=f"the reference reproduces {100 * share:.2f} % of the oracle tokens",
    )


def beyond_chance(
    corpus: str, proposal: torch.Tensor, oracle: torch.Tensor, share: float
) -> Control:
    """Anchor of what only has to be beyond chance; `share` is its acceptance, ids int64 [n]."""
    bound = upper(independent_share(proposal, oracle), len(oracle))
    return Control(
        name="anchor",
        corpus=corpus,
        observed=share,
        expected=f"beyond chance, more than {100 * bound:.1f} %",
        passed=share > bound,
        sentence=f"the reference proposes {100 * share:.2f} % of the oracle tokens",
    )
