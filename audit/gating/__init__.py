"""The release gate: a Run held against a policy. Read `judge` first."""

from audit.gating.judge import EXIT_CODES, judge_run, outcome_of
from audit.gating.prove import SelfTest, selftest
from audit.gating.waivers import load_waivers, make_waiver, unknown_limits

__all__ = [
    "EXIT_CODES",
    "SelfTest",
    "judge_run",
    "load_waivers",
    "make_waiver",
    "outcome_of",
    "selftest",
    "unknown_limits",
]
