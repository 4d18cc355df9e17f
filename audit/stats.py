"""Ratios of sums with intervals, by resampling sequences.

Positions of one sequence are not independent, so whole sequences are drawn. The draw of a corpus
depends on the seed and the corpus only: every measure and every candidate sees the same resamples,
which is what makes differences between heads paired. Works on plain arrays; knows no files.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# The functions themselves: importing scipy.stats takes a second, longer than many audits.
from scipy import special

from audit.words import count

Floats = NDArray[np.float64]

MIN_SEQUENCES = 5
"""Below this many sequences a resampled interval says more about luck than about the head."""
NO_SPREAD = "no spread between sequences"
EXACT = "exact, not estimated"
"""What the reasons of intervals say that were not resampled."""
_MAX_UNDEFINED = 0.01
"""Largest share of resamples in which a ratio may be undefined (its denominator 0)."""


@dataclass(frozen=True, slots=True)
class Resampling:
    """How intervals are made."""

    level: float = 0.95
    resamples: int = 4000
    seed: int = 0

    def weights(self, corpus: str, sequences: int) -> Floats:
        """How often each sequence is drawn, [resamples, sequences]; the same for every measure."""
        stream = int.from_bytes(hashlib.sha256(corpus.encode()).digest()[:8], "little")
        rng = np.random.default_rng([self.seed, stream])
        share = np.full(sequences, 1.0 / sequences)
        return rng.multinomial(sequences, share, size=self.resamples).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval, or the reason why there is none."""

    low: float | None
    high: float | None
    reason: str | None = None


def percentile_interval(replicates: Floats, sequences: int, level: float) -> Interval:
    """Percentile interval of bootstrap replicates, widened for small samples.

    The plain percentile interval is too short by about sqrt((n - 1) / n) and ignores that the
    spread is estimated; the tail probabilities are therefore taken from Student's t, the "expanded
    percentile interval" of Hesterberg, The American Statistician 69 (2015), section 5.4.

    Args:
        replicates: [resamples], NaN where the statistic is undefined.
        sequences: number of resampling units n.
        level: for instance 0.95.
    """
    if sequences < MIN_SEQUENCES:
        return Interval(
            None, None, f"{count(sequences, 'sequence')}: an interval needs {MIN_SEQUENCES} or more"
        )
    defined = replicates[np.isfinite(replicates)]
    if len(defined) < (1 - _MAX_UNDEFINED) * len(replicates):
        share = 1 - len(defined) / len(replicates)
        return Interval(None, None, f"undefined in {share:.0%} of the resamples: too few events")
    tail = float(
        special.ndtr(
            math.sqrt(sequences / (sequences - 1)) * special.stdtrit(sequences - 1, (1 - level) / 2)
        )
    )
    low, high = np.quantile(defined, [tail, 1 - tail])
    return Interval(float(low), float(high))


def binomial_interval(events: float, positions: float, level: float) -> Interval:
    """Exact (Clopper-Pearson) interval of a share, for samples without any spread to resample.

    With no event seen the resampled interval would be [0, 0], which no finite sample can show.
    """
    tail = (1 - level) / 2
    others = positions - events
    low = float(special.betaincinv(events, others + 1, tail)) if events else 0.0
    high = float(special.betaincinv(events + 1, others, 1 - tail)) if others else 1.0
    reason = f"{NO_SPREAD}: exact binomial bound over positions taken as independent"
    return Interval(low, high, reason)


def divide(above: Floats, below: Floats) -> Floats:
    """above / below with NaN, and no warning, where below is 0."""
    out: Floats = np.full(np.broadcast_shapes(above.shape, below.shape), np.nan)
    np.divide(above, below, out=out, where=below != 0)
    return out


def positions_needed(
    value: float, low: float, high: float, threshold: float, positions: int, *, spread: bool = True
) -> int | None:
    """About how many positions would put the whole interval on one side of the threshold.

    Widths shrink with the square root of the sample, so n (half-width / distance)^2 do; a bound
    from a sample without any `spread` shrinks with the sample itself. None when the estimate lies
    on the threshold.
    """
    distance = abs(value - threshold)
    reach = value - low if value > threshold else high - value
    if distance == 0 or reach <= 0:
        return None
    return math.ceil(positions * (reach / distance) ** (2 if spread else 1))
