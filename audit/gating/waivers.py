"""Waivers: a named person lets one head pass one limit until a day. Expired ones do nothing.

Nobody can waive the check on the audit's own controls: then there is no number to overrule.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from audit.errors import BadPolicyError, BadUsageError
from audit.policy import CONTROLS_LIMIT, Policy
from audit.policy.reading import check_keys, parse_toml, read_text, tables_of, validated
from audit.policy.suggest import did_you_mean
from audit.policy.values import Day, Words
from audit.provenance import canonical_json
from audit.records import LimitResult, Record, Run, Waiver
from audit.report.wording import clean

MIN_PREFIX = 12
"""Hex digits of a head's hash that name it: 48 bits."""
_HASH = re.compile(r"[0-9a-f]{12,64}")


class _Written(Record):
    """A waiver as a file holds it."""

    head: Words
    limit: Words
    reason: Words
    who: Words
    expires: Day
    created: Day | None = None


def load_waivers(path: Path) -> tuple[Waiver, ...]:
    """The waivers in a TOML file, each a table `[[waiver]]`.

    Raises:
        NotFoundError: there is no such file.
        BadPolicyError: it holds something else, or a waiver lacks a key.
    """
    content = parse_toml(read_text(path), path)
    check_keys(content, {"waiver"}, "the waiver file", path)
    tables = tables_of(content, "waiver", path)
    return tuple(_read(table, f"waiver number {i}", path) for i, table in enumerate(tables, 1))


def make_waiver(
    *, head_sha256: str, limit: str, reason: str, who: str, created: str, expires: str
) -> Waiver:
    """A waiver with its id, the hash of all the rest."""
    fields = {
        "head_sha256": head_sha256, "limit": limit, "reason": reason, "who": who,
        "created": created, "expires": expires,
    }  # fmt: skip
    return Waiver(id=hashlib.sha256(canonical_json(fields).encode()).hexdigest(), **fields)


def _read(table: dict[str, Any], what: str, path: Path) -> Waiver:
    check_keys(table, set(_Written.model_fields), what, path)
    found = validated(_Written, table, what, path)
    head = found.head.lower()
    if not _HASH.fullmatch(head):
        raise BadPolicyError(
            f"{what}: head = {found.head!r:.80} is not the hash of a head",
            hint=f"give {MIN_PREFIX} to 64 hex digits of its sha256, as `audit show` prints it",
            where=path,
        )
    return make_waiver(
        head_sha256=head,
        limit=found.limit,
        reason=found.reason,
        who=found.who,
        created=found.created.isoformat() if found.created else "",
        expires=found.expires.isoformat(),
    )


def fits(waiver: Waiver, head_sha256: str) -> bool:
    """True when a waiver names this head, by its hash or a long enough beginning of it."""
    named = waiver.head_sha256
    return len(named) >= MIN_PREFIX and head_sha256.startswith(named)


def check_waivers(waivers: Sequence[Waiver], run: Run) -> None:
    """Raises BadUsageError when the beginning of a hash fits two heads of the run."""
    heads = {candidate.head.sha256 for candidate in run.candidates}
    for waiver in waivers:
        if len([head for head in heads if fits(waiver, head)]) > 1:
            raise BadUsageError(
                f"a waiver for {waiver.head_sha256} fits several candidates of this run",
                hint="give more digits of the head's hash",
            )


def unknown_limits(waivers: Sequence[Waiver], policy: Policy) -> list[str]:
    """A sentence for each waiver that names no limit of the policy, with the one that was meant."""
    names = {part.name for part in policy.parts} | {CONTROLS_LIMIT}
    return [
        f"the waiver by {clean(waiver.who)} is for {clean(waiver.limit)!r}, "
        f"which this policy has no limit of: {did_you_mean(waiver.limit, sorted(names))}"
        for waiver in waivers
        if waiver.limit not in names
    ]


def apply_waivers(
    result: LimitResult, waivers: Sequence[Waiver], head_sha256: str, today: date
) -> LimitResult:
    """The result with the waiver that lifts it, if any; what was used or has expired is told."""
    own = [w for w in waivers if w.limit == result.limit and fits(w, head_sha256)]
    if result.outcome == "pass" or not own:
        return result
    if result.measure == CONTROLS_LIMIT:
        told = f"{result.sentence}; failed controls can not be waived"
        return result.model_copy(update={"sentence": told})
    valid = [waiver for waiver in own if _until(waiver) >= today]
    if valid:
        waiver = max(valid, key=_until)
        by = f"waived by {clean(waiver.who)} until {_until(waiver)}: {clean(waiver.reason)}"
        update = {"waiver": waiver.id, "sentence": f"{result.sentence}; {by}"}
        return result.model_copy(update=update)
    last = max(own, key=_until)
    ended = f"expired on {_until(last)}" if _until(last) > date.min else "names no last day"
    told = f"{result.sentence}; the waiver by {clean(last.who)} {ended} and does nothing"
    return result.model_copy(update={"sentence": told})


def _until(waiver: Waiver) -> date:
    """The last day of a waiver; the first day of all where it can not be read."""
    try:
        return date.fromisoformat(waiver.expires)
    except ValueError:
        return date.min
