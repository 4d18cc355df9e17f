"""What a head must show to be released: read `records` first, then `release.toml`."""

from audit.policy.changes import changes_between
from audit.policy.limits import Limit
from audit.policy.reading import load_policy, parse_policy
from audit.policy.records import CONTROLS_LIMIT, Change, Policy
from audit.policy.requirements import Requirement

__all__ = [
    "CONTROLS_LIMIT",
    "Change",
    "Limit",
    "Policy",
    "Requirement",
    "changes_between",
    "load_policy",
    "parse_policy",
]
