"""Charts of audits as pure functions, for the HTML report and the dashboard.

Needs altair: import this package only where charts are wanted, and say so when it is missing.
"""

from audit.report.charts.base import Drawing
from audit.report.charts.distributions import flip_margins, kl_spread
from audit.report.charts.forest import ceiling_by_class, retention_by_corpus
from audit.report.charts.frontier import size_against_loss
from audit.report.charts.harm import harm_against_disagreement
from audit.report.charts.loss import disagreement_against_loss
from audit.report.charts.lost import lost_by_class
from audit.report.charts.paired import paired_retention
from audit.report.charts.study import noise_ladder, yardstick_retention
from audit.report.charts.worth import margin_to_break_even

__all__ = [
    "Drawing",
    "ceiling_by_class",
    "disagreement_against_loss",
    "flip_margins",
    "harm_against_disagreement",
    "kl_spread",
    "lost_by_class",
    "margin_to_break_even",
    "noise_ladder",
    "paired_retention",
    "retention_by_corpus",
    "size_against_loss",
    "yardstick_retention",
]
