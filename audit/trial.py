"""The verdict on trial: every yardstick, whose family is known, judged as a candidate would be.

Each is left out in turn: the rules are checked, and their thresholds taken, from the others. What
comes out says how far a verdict on this reference can be trusted. Imports no torch.
"""

from __future__ import annotations

from audit.calibration import Calibration, Trial, Yardstick
from audit.rulecheck import leave_out
from audit.verdict import judge


def try_verdicts(calibration: Calibration) -> tuple[Trial, ...]:
    """The verdict on each cut of a calibration (not on its noise), from the other yardsticks."""
    return tuple(
        _try(calibration, yardstick)
        for yardstick in calibration.yardsticks
        if yardstick.family != "noise"
    )


def _try(calibration: Calibration, held: Yardstick) -> Trial:
    others = leave_out(calibration, [held])
    verdict = judge(held.estimates, same_weights=False, trimmed=False, calibration=others)
    return Trial(cut=held.cut, family=held.family, verdict=verdict.kind, sentence=verdict.sentence)
