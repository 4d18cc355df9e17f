"""Position tables become estimates: every measure of the catalogue, per corpus and per register.

Pooled over positions is the headline, the mean over sequences stands beside it. Retention, tax and
loss of a candidate that never disagreed get their bound from the disagreement rate, since
|a_ref - a_cand| <= D.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from audit.catalogue import CATALOGUE, CLASS_MEASURES, Measure
from audit.neartie import near_tie_estimate
from audit.records import Estimate
from audit.samples import (
    REGISTERS,
    Sample,
    class_samples,
    count_at,
    pool_registers,
    sample_of,
)
from audit.stats import (
    EXACT,
    MIN_SEQUENCES,
    NO_SPREAD,
    Floats,
    Interval,
    Resampling,
    binomial_interval,
    divide,
    percentile_interval,
)
from audit.table import Frame

ROUNDING = 1e-12
"""Replicates closer than this differ by summation order only."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a candidate before counting; decides which measures apply."""

    same_weights: bool = False
    """Decoded weights equal the reference's: the differences are exactly 0, not estimates."""
    trimmed: bool = False
    vocabulary_known: bool = True
    """False for bare proposals: which ids their head has rows for, nobody told."""
    has_kl: bool = False
    has_margins: bool = True
    """The reference's margins are known."""
    kl_missing: str | None = None
    """Why KL was asked for and is not there."""


def estimate_all(frames: Sequence[Frame], facts: Facts, resampling: Resampling) -> list[Estimate]:
    """All estimates of one candidate.

    Args:
        frames: one position table per trace, each of one corpus and register.
        facts: which measures apply, and whether the heads are known to be identical.
        resampling: seed, level and number of resamples.
    """
    corpora = [sample_of(frame, resampling) for frame in frames]
    registers = pool_registers(corpora, resampling)
    out: list[Estimate] = []
    for sample in (*corpora, *registers):
        out += [_ratio(measure, sample, facts, resampling) for measure in _applicable(facts)]
        if facts.kl_missing:
            nothing = Interval(None, None, facts.kl_missing)
            out.append(_estimate("kl_nats", sample, resampling, None, nothing))
    if facts.has_margins:
        out += _near_ties(frames, resampling)
    by_register = {sample.register: sample for sample in registers}
    shifted = by_register.get("domain_shift")
    if shifted:
        own = [sample for sample in corpora if sample.register == "domain_shift"]
        for sample in (*own, shifted):
            out += _shift(sample, by_register.get("in_distribution"), facts, resampling)
    return out + estimate_by_class(CLASS_MEASURES, frames, facts, resampling)


def estimate_some(
    names: Sequence[str], frames: Sequence[Frame], facts: Facts, resampling: Resampling
) -> list[Estimate]:
    """As `estimate_all`, of some measures of the catalogue only: per corpus and per register."""
    corpora = [sample_of(frame, resampling) for frame in frames]
    samples = (*corpora, *pool_registers(corpora, resampling))
    return [_ratio(CATALOGUE[name], s, facts, resampling) for name in names for s in samples]


def estimate_by_class(
    names: Sequence[str], frames: Sequence[Frame], facts: Facts, resampling: Resampling
) -> list[Estimate]:
    """As `estimate_some`, per token class."""
    out: list[Estimate] = []
    measures = [CATALOGUE[name] for name in names]
    for samples in class_samples(frames, resampling).values():
        for sample in (*samples, *pool_registers(samples, resampling)):
            out += [_ratio(measure, sample, facts, resampling) for measure in measures]
    return out


def _near_ties(frames: Sequence[Frame], how: Resampling) -> list[Estimate]:
    """Near-tie AUC per corpus and per register."""
    out = [near_tie_estimate([frame], str(frame["corpus"].iloc[0]), how) for frame in frames]
    for register in REGISTERS:
        members = [frame for frame in frames if frame["register"].iloc[0] == register]
        if members:
            out.append(near_tie_estimate(members, None, how))
    return out


def measure_values(measure: Measure, counts: Floats) -> Floats:
    """The ratio for each row of counts [n, counts]; NaN where it is undefined."""
    above = counts[:, count_at(measure.plus)]
    if measure.minus:
        above = above - counts[:, count_at(measure.minus)]
    return divide(above, counts[:, count_at(measure.below)])


def _applicable(facts: Facts) -> list[Measure]:
    """The measures that mean something for this candidate, in catalogue order."""
    skipped = set()
    if not facts.trimmed:
        skipped |= {"disagreement_covered", "acceptance_ref_covered", "harm_covered"}
    if not facts.has_margins:
        skipped.add("flip_margin")
    if not facts.has_kl:
        skipped.add("kl_nats")
    return [measure for name, measure in CATALOGUE.items() if name not in skipped]


def _ratio(measure: Measure, sample: Sample, facts: Facts, how: Resampling) -> Estimate:
    if measure.name == "vocabulary_ceiling" and not facts.vocabulary_known:
        untold = Interval(None, None, "proposals do not tell which ids their head has rows for")
        return _estimate(measure.name, sample, how, None, untold)
    value = _one(measure_values(measure, sample.total[None]))
    if value is None:
        what = measure.below.replace("_", " ")
        return _estimate(measure.name, sample, how, None, Interval(None, None, f"no {what}"))
    per_sequence = measure_values(measure, sample.sums)
    per_sequence = per_sequence[np.isfinite(per_sequence)]
    interval = _interval(measure, sample, facts, how, value)
    macro = float(per_sequence.mean())
    return _estimate(measure.name, sample, how, value, interval, macro)


def _interval(
    measure: Measure, sample: Sample, facts: Facts, how: Resampling, value: float
) -> Interval:
    compares = measure.name not in ("acceptance_ref", "acceptance_cand", "vocabulary_ceiling")
    if facts.same_weights and compares:
        return Interval(value, value, f"the weights are identical: {EXACT}")
    if measure.name == "vocabulary_ceiling" and not facts.trimmed and value == 1.0:
        return Interval(1.0, 1.0, f"every id has a row: {EXACT}")
    replicates = measure_values(measure, sample.replicates)
    if spread(replicates) > ROUNDING or sample.sequences < MIN_SEQUENCES:
        return percentile_interval(replicates, sample.sequences, how.level)
    if measure.is_rate:
        return _binomial(measure.plus, measure.below, sample, how)
    if measure.name == "retention":
        return _retention_bound(sample, how, value)
    return Interval(None, None, f"{NO_SPREAD}: no interval")


def _binomial(events: str, of: str, sample: Sample, how: Resampling) -> Interval:
    """Of one count among another; copies of a text are not more evidence."""
    seen, tried = (float(sample.total[count_at(name)]) / sample.copies for name in (events, of))
    return binomial_interval(seen, tried, how.level)


def _retention_bound(sample: Sample, how: Resampling, value: float) -> Interval:
    """Retention without any spread: at 1, bounded by D since |a_ref - a_cand| <= D; below 1, by
    the exact binomial interval of the kept among the reference's acceptances."""
    total = sample.total
    if value < 1.0:
        return _binomial("cand_accepted", "ref_accepted", sample, how)
    high = _binomial("disagreements", "positions", sample, how).high or 0.0
    slack = float(high * total[count_at("positions")] / total[count_at("ref_accepted")])
    reason = f"{NO_SPREAD}: bound from the disagreement rate"
    return Interval(max(0.0, value - slack), value + slack, reason)


def _shift(shifted: Sample, inside: Sample | None, facts: Facts, how: Resampling) -> list[Estimate]:
    """Shift loss, and shift tax when there is text in distribution to hold it against."""
    retention = CATALOGUE["retention"]
    there = _ratio(retention, shifted, facts, how)
    loss = _flip(there, "shift_loss")
    if inside is None:
        reason = "no trace in distribution: the tax is a difference of two retentions"
        return [loss, _estimate("shift_tax", shifted, how, None, Interval(None, None, reason))]
    here = _ratio(retention, inside, facts, how)
    if here.value is None or there.value is None:
        missing = here.reason if here.value is None else there.reason
        return [loss, _estimate("shift_tax", shifted, how, None, Interval(None, None, missing))]
    value = here.value - there.value
    interval = _gap_interval(shifted, inside, here, there, facts, how)
    return [loss, _estimate("shift_tax", shifted, how, value, interval)]


def _gap_interval(
    shifted: Sample,
    inside: Sample,
    here: Estimate,
    there: Estimate,
    facts: Facts,
    how: Resampling,
) -> Interval:
    """Interval of a difference of two retentions on different corpora."""
    retention = CATALOGUE["retention"]
    gap = measure_values(retention, inside.replicates) - measure_values(
        retention, shifted.replicates
    )
    fewest = min(inside.sequences, shifted.sequences)
    few = fewest < MIN_SEQUENCES
    if not facts.same_weights and (few or spread(gap) > ROUNDING):
        return percentile_interval(gap, fewest, how.level)
    if here.low is None or here.high is None or there.low is None or there.high is None:
        return Interval(None, None, there.reason or here.reason)
    # Without spread to resample: the widest gap that the two intervals allow.
    return Interval(here.low - there.high, here.high - there.low, there.reason)


def _flip(retention: Estimate, name: str) -> Estimate:
    """1 - R, its interval turned round."""
    turned = {
        field: None if old is None else 1.0 - old
        for field, old in (
            ("value", retention.value),
            ("low", retention.high),
            ("high", retention.low),
            ("macro", retention.macro),
        )
    }
    return retention.model_copy(update={"measure": name, **turned})


def _estimate(
    name: str,
    sample: Sample,
    how: Resampling,
    value: float | None,
    interval: Interval,
    macro: float | None = None,
) -> Estimate:
    return Estimate(
        measure=name,
        corpus=sample.corpus,
        register=sample.register,
        token_class=sample.token_class,
        value=value,
        low=interval.low,
        high=interval.high,
        level=how.level,
        macro=macro,
        positions=sample.positions,
        sequences=sample.sequences,
        reason=interval.reason,
    )


def _one(values: Floats) -> float | None:
    return float(values[0]) if np.isfinite(values[0]) else None


def spread(replicates: Floats) -> float:
    """Largest minus smallest defined replicate; 0 when none is defined."""
    defined = replicates[np.isfinite(replicates)]
    return float(np.ptp(defined)) if len(defined) else 0.0
