"""The release gate: a Run held against a policy. Read `judge` first."""

from audit.gate.judge import EXIT_CODES, judge_run, outcome_of
from audit.gate.prove import SelfTest, selftest
from audit.gate.waivers import load_waivers, make_waiver, unknown_limits

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
