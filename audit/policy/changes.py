"""What changed between two policies: no threshold may creep without being seen.

Limits are matched by name. Of a changed threshold both values are told, with the reason and the
date that the newer policy gives, and whether those were renewed at all.
"""

from __future__ import annotations

from typing import Any

from audit.policy.limits import Limit
from audit.policy.records import Change, Policy
from audit.policy.requirements import Requirement

Part = Limit | Requirement
_SAID = ("name", "reason", "date")


def changes_between(old: Policy, new: Policy) -> tuple[Change, ...]:
    """Every difference, in the order of the newer policy, removed limits last."""
    before = {part.name: part for part in old.parts}
    after = {part.name: part for part in new.parts}
    out: list[Change] = []
    for name, part in after.items():
        if name not in before:
            sentence = f"{name}: added, {asked(part)}; reason: {part.reason} ({part.date})"
            out.append(Change(name=name, what="added", looser=False, sentence=sentence))
        else:
            out += _changed(before[name], part)
    for name, part in before.items():
        if name not in after:
            sentence = f"{name}: removed, it was {asked(part)}"
            out.append(Change(name=name, what="removed", looser=True, sentence=sentence))
    return tuple(out)


def asked(part: Part) -> str:
    """What a part asks for, as it is written: `measure retention, minimum 0.95`."""
    return ", ".join(f"{key} {_shown(value)}" for key, value in _content(part).items())


def _changed(old: Part, new: Part) -> list[Change]:
    before, after = _content(old), _content(new)
    keys = [key for key in (*after, *(k for k in before if k not in after))
            if before.get(key) != after.get(key)]  # fmt: skip
    if not keys:
        return []
    told = [
        f"{_noun(key)} changed {_shown(before.get(key))} -> {_shown(after.get(key))}"
        for key in keys
    ]
    stale = [word for word in ("reason", "date") if getattr(old, word) == getattr(new, word)]
    looser = _looser(before, after, keys)
    way = {True: " (looser)", False: " (stricter)", None: ""}[looser]
    said = f"{new.name}: {', '.join(told)}{way}; reason: {new.reason} ({new.date})"
    if stale:
        said += f"; its {' and '.join(stale)} {'were' if len(stale) > 1 else 'was'} not renewed"
    return [Change(name=new.name, what="changed", looser=looser, sentence=said)]


def _content(part: Part) -> dict[str, Any]:
    """The keys that say what is asked, without those that keep their default."""
    given = part.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {key: value for key, value in given.items() if key not in _SAID}


def _looser(before: dict[str, Any], after: dict[str, Any], keys: list[str]) -> bool | None:
    """Whether more heads pass, where one number tells it."""
    if len(keys) != 1:
        return None
    old, new = before.get(keys[0]), after.get(keys[0])
    if keys[0] not in ("minimum", "maximum", "positions", "sequences", "measures_version",
                       "run_age_days", "calibration_age_days"):  # fmt: skip
        return None
    if old is None or new is None:
        return new is None
    upper = keys[0] == "maximum" or keys[0].endswith("age_days")
    return bool(new > old) if upper else bool(new < old)


def _noun(key: str) -> str:
    return "threshold" if key in ("minimum", "maximum") else key


def _shown(value: Any) -> str:
    """A value as TOML writes it, without quotes."""
    if value is None:
        return "none"
    if isinstance(value, list):
        return " ".join(map(str, value))
    return str(value)
