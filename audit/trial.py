"""The verdict on trial: every yardstick, whose family is known, judged as a candidate would be.

Each is left out in turn: the rules are checked, and their thresholds taken, from the others. What
comes out says how far a verdict on this reference can be trusted. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence

from audit.calibration import Calibration, Trial, Yardstick, check_rules
from audit.verdict import judge


def try_verdicts(calibration: Calibration) -> tuple[Trial, ...]:
    """The verdict on each cut of a calibration (not on its noise), from the other yardsticks."""
    yardsticks = calibration.yardsticks
    return tuple(
        _try(calibration, yardstick, [other for other in yardsticks if other is not yardstick])
        for yardstick in yardsticks
        if yardstick.family != "noise"
    )


def _try(calibration: Calibration, held: Yardstick, others: Sequence[Yardstick]) -> Trial:
    without = calibration.model_copy(
        update={"yardsticks": tuple(others), "rules": check_rules(others)}
    )
    verdict = judge(held.estimates, same_weights=False, trimmed=False, calibration=without)
    return Trial(cut=held.cut, family=held.family, verdict=verdict.kind, sentence=verdict.sentence)
