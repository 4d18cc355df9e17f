"""Counts of one candidate on one or more corpora, with their resamples: what ratios are made of.

Whole sequences are drawn, within their own corpus. Leaves out the ratios (`estimates`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from audit.catalogue import COUNTS
from audit.records import Register
from audit.stats import MIN_SEQUENCES, Floats, Resampling
from audit.table import Frame, sums_by_class, sums_by_sequence, units_of

REGISTERS: tuple[Register, ...] = ("in_distribution", "same_register", "domain_shift")


@dataclass(frozen=True, slots=True)
class Sample:
    """Counts of one candidate on one or more corpora, ready for any ratio."""

    corpus: str | None
    register: Register
    sums: Floats
    """[sequences, counts], one row per sequence."""
    replicates: Floats
    """[resamples, counts], the summed counts of each resample."""
    token_class: str | None = None
    copies: float = 1.0
    """Positions for each that is there once: above 1 where texts repeat. What takes positions as
    independent divides by it."""

    @property
    def total(self) -> Floats:
        return np.asarray(self.sums.sum(axis=0), dtype=np.float64)

    @property
    def sequences(self) -> int:
        """Sequences that hold any position: of a rare class only a few do."""
        return int((self.sums[:, count_at("positions")] > 0).sum())

    @property
    def positions(self) -> int:
        return int(self.total[count_at("positions")])


def count_at(count: str) -> int:
    """The column of a count."""
    return COUNTS.index(count)


def sample_of(frame: Frame, resampling: Resampling) -> Sample:
    """Counts and resamples of one candidate on one trace."""
    sums = sums_by_sequence(frame)[list(COUNTS)].to_numpy(np.float64)
    corpus = str(frame["corpus"].iloc[0])
    replicates = resampling.weights(corpus, len(sums)) @ sums
    return Sample(corpus, frame["register"].iloc[0], sums, replicates, copies=_copies(frame))


def _copies(frame: Frame) -> float:
    units = units_of(frame)
    return len(units) / int((units == frame["sequence"].to_numpy()).sum())


def class_samples(frames: Sequence[Frame], resampling: Resampling) -> dict[str, list[Sample]]:
    """Samples per token class, one per trace that has any position of it, in order of name."""
    found: dict[str, list[Sample]] = {}
    for frame in frames:
        by_class = sums_by_class(frame)
        if not by_class:
            continue
        corpus, register = str(frame["corpus"].iloc[0]), frame["register"].iloc[0]
        weights = resampling.weights(corpus, len(np.unique(units_of(frame))))
        copies = _copies(frame)
        for name, table in by_class.items():
            sums = table[list(COUNTS)].to_numpy(np.float64)
            sample = Sample(corpus, register, sums, weights @ sums, name, copies)
            found.setdefault(name, []).append(sample)
    return dict(sorted(found.items()))


def pool_registers(samples: Iterable[Sample], how: Resampling) -> list[Sample]:
    """One sample per register; sequences are resampled within their own corpus (strata)."""
    ordered = sorted(samples, key=lambda sample: REGISTERS.index(sample.register))
    pooled = []
    for register, group in groupby(ordered, key=lambda sample: sample.register):
        members = list(group)
        sums = np.concatenate([sample.sums for sample in members])
        if min(sample.sequences for sample in members) < MIN_SEQUENCES:
            # A stratum of one or two sequences shows no spread of its own: draw from all of them.
            names = "+".join(str(sample.corpus) for sample in members)
            replicates = how.weights(names, len(sums)) @ sums
        else:
            replicates = np.sum([sample.replicates for sample in members], axis=0)
        distinct = sum(sample.positions / sample.copies for sample in members)
        copies = sum(sample.positions for sample in members) / distinct if distinct else 1.0
        pooled.append(Sample(None, register, sums, replicates, members[0].token_class, copies))
    return pooled
