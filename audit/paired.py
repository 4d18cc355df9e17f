"""Is one candidate better than another? Differences on the very same positions, with intervals.

Both candidates ran beside the same reference on the same traces, so both see the same resamples of
the sequences, and what the two share cancels: the interval of the difference is much shorter than
those of the two estimates suggest. Works on position tables; which tables may be held against each
other is decided in `diff`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from audit.catalogue import CATALOGUE, Measure
from audit.errors import MismatchError
from audit.estimates import ROUNDING, measure_values, spread
from audit.records import Register
from audit.samples import Sample, count_at, pool_registers, sample_of
from audit.stats import (
    MIN_SEQUENCES,
    Interval,
    Resampling,
    binomial_interval,
    percentile_interval,
)
from audit.table import Frame

MEASURES = ("disagreement", "acceptance_cand", "retention")
_COUNTED = {"disagreement": "disagree"}
_KEY = ["sequence", "position"]


@dataclass(frozen=True, slots=True)
class Difference:
    """Candidate b minus candidate a in one measure. Fractions of one."""

    measure: str
    corpus: str | None
    """None when pooled over the corpora of the register."""
    register: Register
    a: float | None
    b: float | None
    value: float | None
    low: float | None
    high: float | None
    level: float
    only_a: int
    """Positions where a disagrees with the reference (or is accepted) and b is not."""
    only_b: int
    positions: int
    sequences: int
    reason: str | None
    """Why value or interval is missing, or how a degenerate interval was made."""


def paired_differences(
    a: Sequence[Frame], b: Sequence[Frame], how: Resampling, *, same_head: bool = False
) -> list[Difference]:
    """Differences per corpus and per register.

    Args:
        a, b: position tables of the two candidates, one per corpus, in the same order.
        same_head: both are the same bytes, so that no difference is exactly none.

    Raises:
        MismatchError: the tables are not of the same positions.
    """
    pairs = [_aligned(*pair) for pair in zip(a, b, strict=True)]
    corpora = [tuple(sample_of(frame, how) for frame in pair) for pair in pairs]
    registers = [pool_registers([pair[side] for pair in corpora], how) for side in (0, 1)]
    samples = [*corpora, *zip(*registers, strict=True)]
    out = []
    for left, right in samples:
        members = [pair for pair in pairs if _belongs(pair[0], left)]
        for name in MEASURES:
            only_a, only_b = _discordant(members, name)
            out.append(_difference(name, left, right, only_a, only_b, how, same_head))
    return out


def reference_changes(a: Frame, b: Frame) -> int:
    """Positions where the reference itself proposed something else: another device or version."""
    left, right = _aligned(a, b)
    return int((left["ref"].to_numpy() != right["ref"].to_numpy()).sum())


def _aligned(a: Frame, b: Frame) -> tuple[Frame, Frame]:
    """Both tables in the order of their positions, which must be the same ones."""
    left, right = (frame.sort_values(_KEY, ignore_index=True) for frame in (a, b))
    columns = [*_KEY, "oracle"]
    if len(left) != len(right) or (left[columns] != right[columns]).to_numpy().any():
        raise MismatchError(
            f"the two runs measured different positions of {a['corpus'].iloc[0]}",
            hint="audit both candidates in one run",
        )
    return left, right


def _belongs(frame: Frame, sample: Sample) -> bool:
    if sample.corpus is not None:
        return bool(frame["corpus"].iloc[0] == sample.corpus)
    return bool(frame["register"].iloc[0] == sample.register)


def _discordant(pairs: Sequence[tuple[Frame, Frame]], measure: str) -> tuple[int, int]:
    """Positions that count for one of the two only."""
    column = _COUNTED.get(measure, "cand_accepts")
    left, right = (
        np.concatenate([pair[side][column].to_numpy(bool) for pair in pairs]) for side in (0, 1)
    )
    return int((left & ~right).sum()), int((right & ~left).sum())


def _difference(
    name: str, a: Sample, b: Sample, only_a: int, only_b: int, how: Resampling, same_head: bool
) -> Difference:
    measure = CATALOGUE[name]
    values = [float(measure_values(measure, side.total[None])[0]) for side in (a, b)]
    defined = bool(np.isfinite(values).all())
    if defined:
        interval = _interval(measure, a, b, only_a + only_b, how, same_head)
    else:
        interval = Interval(None, None, f"no {measure.below.replace('_', ' ')}")
    return Difference(
        measure=name,
        corpus=a.corpus,
        register=a.register,
        a=values[0] if defined else None,
        b=values[1] if defined else None,
        value=values[1] - values[0] if defined else None,
        low=interval.low,
        high=interval.high,
        level=how.level,
        only_a=only_a,
        only_b=only_b,
        positions=a.positions,
        sequences=a.sequences,
        reason=interval.reason,
    )


def _interval(
    measure: Measure, a: Sample, b: Sample, discordant: int, how: Resampling, same_head: bool
) -> Interval:
    if same_head and discordant == 0:
        return Interval(0.0, 0.0, "the same head: exact, not estimated")
    replicates = measure_values(measure, b.replicates) - measure_values(measure, a.replicates)
    if spread(replicates) > ROUNDING or a.sequences < MIN_SEQUENCES:
        return percentile_interval(replicates, a.sequences, how.level)
    # Without spread to resample: no difference can exceed the share of positions that differ.
    most = binomial_interval(discordant / a.copies, a.positions / a.copies, how.level).high or 0.0
    scale = a.positions / float(min(side.total[count_at(measure.below)] for side in (a, b)))
    reason = "no spread between sequences: bound from the positions on which the two differ"
    return Interval(-most * scale, most * scale, reason)
