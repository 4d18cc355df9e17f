"""Counted chains become figures: p_k, c_k, chain acceptance, tokens per round, harm per slot.

All are ratios of sums over whole sequences, which are what is resampled; both heads have the same
anchors and the same draws, so their differences are paired. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from audit.chains.records import ChainFigures, SlotHarm
from audit.estimates import ROUNDING, spread
from audit.records import Estimate, Register
from audit.samples import Sample, pool_registers
from audit.stats import (
    MIN_SEQUENCES,
    Floats,
    Interval,
    Resampling,
    binomial_interval,
    divide,
    percentile_interval,
)

Bools = NDArray[np.bool_]
_NONE = "no chain got there"
_NOTHING = {"slot_harm": "no disagreements"}


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """One head's chains on one trace."""

    corpus: str
    register: Register
    sequence: NDArray[np.int64]
    """[n]: which sequence each anchor lies in; of repeated texts the first."""
    tokens: NDArray[np.int64]
    """[n, K] drafted."""
    drafted: Bools
    """[n, K]"""
    accepted: Bools
    """[n, K]: slots 0..k accepted."""

    @property
    def reached(self) -> Bools:
        """[n, K]: everything before slot k was accepted."""
        first = np.ones((len(self.accepted), 1), bool)
        return np.concatenate([first, self.accepted[:, :-1]], axis=1)


def chain_figures(counted: Sequence[Counted], how: Resampling) -> tuple[ChainFigures, ...]:
    """One head's figures per corpus, then pooled per register."""
    slots = counted[0].accepted.shape[1]
    columns = [
        np.column_stack([np.ones(len(one.sequence)), one.drafted, one.accepted])
        for one in counted
    ]  # fmt: skip
    return tuple(_figures(sample, slots, how) for sample in _samples(counted, columns, how))


def slot_harm(
    ref: Sequence[Counted], cand: Sequence[Counted], how: Resampling
) -> tuple[SlotHarm, ...]:
    """What a candidate loses at each slot, per corpus, then pooled per register.

    At slot k both heads must have got there: what happened before is then the same text, and a
    difference is the slot's own.
    """
    slots = ref[0].accepted.shape[1]
    columns = []
    for ours, theirs in zip(cand, ref, strict=True):
        both = ours.reached & theirs.reached
        columns.append(
            np.column_stack([
                np.ones(len(ours.sequence)), both, both & _differ(ours, theirs),
                both & theirs.accepted, both & ours.accepted, theirs.accepted, ours.accepted,
            ])
        )  # fmt: skip
    return tuple(_harm(sample, slots, how) for sample in _samples(ref, columns, how))


def _differ(ours: Counted, theirs: Counted) -> Bools:
    """[n, K]: other tokens, or only one of the two drafted at all."""
    tokens = (ours.tokens != theirs.tokens) & ours.drafted & theirs.drafted
    different: Bools = tokens | (ours.drafted != theirs.drafted)
    return different


def _samples(
    counted: Sequence[Counted], columns: Sequence[Floats], how: Resampling
) -> list[Sample]:
    """Sums per sequence of the columns, the first of which counts chains; then per register."""
    corpora = []
    for one, values in zip(counted, columns, strict=True):
        _, place = np.unique(one.sequence, return_inverse=True)
        sums = np.zeros((place.max() + 1, values.shape[1]))
        np.add.at(sums, place, values.astype(np.float64))
        replicates = how.weights(one.corpus, len(sums)) @ sums
        corpora.append(Sample(one.corpus, one.register, sums, replicates))
    return corpora + pool_registers(corpora, how)


def _figures(sample: Sample, slots: int, how: Resampling) -> ChainFigures:
    drafted, accepted = _block(1, slots), _block(1 + slots, slots)
    before = [0, *accepted[:-1]]
    count = _Ratio(sample, how)
    return ChainFigures(
        corpus=sample.corpus,
        register=sample.register,
        chains=sample.positions,
        sequences=sample.sequences,
        drafted=count.totals(drafted),
        accepted=count.totals(accepted),
        p=tuple(count("chain_share", [k], [0]) for k in accepted),
        c=tuple(
            count("slot_acceptance", [k], [last]) for k, last in zip(accepted, before, strict=True)
        ),
        chain_acceptance=count("chain_acceptance", accepted, [0] * slots),
        tokens_per_round=count("tokens_per_round", [0, *accepted], [0], rate=False),
    )


def _harm(sample: Sample, slots: int, how: Resampling) -> SlotHarm:
    both, differ, ref_here, cand_here, ref_p, cand_p = (
        _block(1 + i * slots, slots) for i in range(6)
    )
    count = _Ratio(sample, how)
    return SlotHarm(
        corpus=sample.corpus,
        register=sample.register,
        both=count.totals(both),
        disagreements=count.totals(differ),
        harm=tuple(
            count("slot_harm", [ref_here[k]], [differ[k]], minus=[cand_here[k]], rate=False)
            for k in range(slots)
        ),
        loss=tuple(
            count("chain_loss", [ref_p[k]], [0], minus=[cand_p[k]], rate=False)
            for k in range(slots)
        ),
        tokens_lost=count("tokens_lost", ref_p, [0], minus=cand_p, rate=False),
    )


def _block(first: int, slots: int) -> list[int]:
    return list(range(first, first + slots))


class _Ratio:
    """Ratios of sums of columns of one sample."""

    def __init__(self, sample: Sample, how: Resampling) -> None:
        self.sample, self.how = sample, how

    def totals(self, columns: Sequence[int]) -> tuple[int, ...]:
        return tuple(int(self.sample.total[column]) for column in columns)

    def __call__(
        self,
        measure: str,
        plus: Sequence[int],
        below: Sequence[int],
        minus: Sequence[int] = (),
        *,
        rate: bool = True,
    ) -> Estimate:
        """(sum of `plus` - sum of `minus`) / sum of `below`, pooled, with interval and macro."""

        def above(counts: Floats) -> Floats:
            difference: Floats = counts[:, list(plus)].sum(1) - counts[:, list(minus)].sum(1)
            return difference

        def under(counts: Floats) -> Floats:
            total: Floats = counts[:, list(below)].sum(1)
            return total

        sample, whole = self.sample, self.sample.total[None]
        value = float(divide(above(whole), under(whole))[0])
        if not np.isfinite(value):
            return self._made(
                measure, None, Interval(None, None, _NOTHING.get(measure, _NONE)), None
            )
        replicates = divide(above(sample.replicates), under(sample.replicates))
        each = divide(above(sample.sums), under(sample.sums))
        macro = float(each[np.isfinite(each)].mean())
        interval = percentile_interval(replicates, sample.sequences, self.how.level)
        flat = spread(replicates) <= ROUNDING and sample.sequences >= MIN_SEQUENCES
        if flat and rate:
            events, of = int(above(whole)[0]), int(under(whole)[0])
            interval = binomial_interval(events, of, self.how.level)
        return self._made(measure, value, interval, macro)

    def _made(
        self, measure: str, value: float | None, interval: Interval, macro: float | None
    ) -> Estimate:
        return Estimate(
            measure=measure,
            corpus=self.sample.corpus,
            register=self.sample.register,
            value=value,
            low=interval.low,
            high=interval.high,
            level=self.how.level,
            macro=macro,
            positions=self.sample.positions,
            sequences=self.sample.sequences,
            reason=interval.reason,
        )
