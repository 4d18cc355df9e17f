"""A policy in words, as `audit policy check` lists it and the gate's table shows its bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from audit.catalogue import SHIFT_MEASURES
from audit.policy.limits import Limit
from audit.policy.requirements import Requirement
from audit.report.wording import REGISTER_WORDS, exact_number, measure_title
from audit.words import count

_UNDER = {
    "in_distribution": "in distribution",
    "same_register": "of the same register",
    "domain_shift": "under domain shift",
}


def bound_words(part: Limit | Requirement) -> str:
    """What must hold, in the units of the screen: `at least 95.0 %`."""
    if isinstance(part, Requirement):
        return _REQUIRED[part.what](getattr(part, part.what))
    low, high = (
        None if bound is None else exact_number(part.measure, bound)
        for bound in (part.minimum, part.maximum)
    )
    if low is not None and high is not None:
        return f"between {low} and {high}"
    return f"at least {low}" if low is not None else f"at most {high}"


def part_words(part: Limit | Requirement) -> str:
    """One limit or requirement as a sentence, with its reason and its date."""
    if isinstance(part, Requirement):
        names = f": {', '.join(part.controls)}" if part.controls else ""
        said = f"{bound_words(part)}{names}{_place(part)}"
    else:
        said = f"{measure_title(part.measure)} {bound_words(part)}{_where(part)}"
    return f"{part.name}: {said} ({part.reason}; {part.date})"


def _where(limit: Limit) -> str:
    """Where a limit is held: ` on every corpus under domain shift`."""
    register = "domain_shift" if limit.measure in SHIFT_MEASURES else limit.register_
    if limit.corpus:
        where = f" on {limit.corpus}"
    elif limit.over == "register":
        under = _under(register) or "of each register"
        where = f" over all text {under} together"
    else:
        where = f" on every corpus {_under(register)}".rstrip()
    if limit.token_class:
        where += f", for tokens of class {limit.token_class}"
    if limit.ignore_fewer_than:
        where += f" (where there are {limit.ignore_fewer_than} or more)"
    return where + (", predicted if not measured" if limit.allow_predicted else "")


def _place(part: Requirement) -> str:
    if part.what not in ("positions", "sequences"):
        return ""
    if part.corpus:
        return f" on {part.corpus}"
    return f" on every corpus {_under(part.register_)}".rstrip()


def _under(register: str | None) -> str:
    return _UNDER[register] if register else ""


def _listed(what: str) -> Callable[[Any], str]:
    return lambda names: f"{what} {', '.join(names)}"


def _registers(names: tuple[str, ...]) -> str:
    return f"text {', '.join(REGISTER_WORDS[name] for name in names)}"


_REQUIRED: dict[str, Callable[[Any], str]] = {
    "verdicts": lambda kinds: f"verdict {' or '.join(kinds)}",
    "controls": lambda names: f"{count(len(names), 'control')} by name, all passed",
    "registers": _registers,
    "corpora": _listed("corpora"),
    "positions": lambda n: f"at least {count(n, 'position')}",
    "sequences": lambda n: f"at least {count(n, 'sequence')}",
    "compressed": lambda _: "smaller than the reference",
    "no_findings": _listed("no preflight finding"),
    "run_age_days": lambda n: f"run at most {count(n, 'day')} old",
    "calibration_age_days": lambda n: f"calibration at most {count(n, 'day')} old",
    "audit_version": lambda v: f"made by head-audit {v} or newer",
    "measures_version": lambda n: f"measures of version {n} or newer",
}
