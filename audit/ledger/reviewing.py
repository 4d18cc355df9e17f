"""When a review may be appended: what accepting a head demands.

- What counts is the newest judgement under each policy, by its name: an answer of a laxer policy
  never takes the place of another one's. Of these the worst is the gate's answer on a candidate.
- A candidate that every policy passes may be accepted.
- One that failed or is undecided needs a waiver for each limit that did not pass, unless the gate
  itself already took one into account.
- One that was never judged, or whose judgement names no limit, needs a waiver of the limit `gate`:
  leaving the gate out must not be the easiest way past it.
- A reviewer decides on what was last judged: if it was judged again meanwhile, look again. Where
  the reviewer saw a list of earlier reviews, the same holds for a review that came since.

Rejecting and asking for more data need no waiver, and naming one there is an error. Pure functions:
they read no database, so the same rule holds for the command line, the API and the dashboard.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import date

from audit.errors import BadUsageError, MismatchError
from audit.records import GateResult, Review, Waiver

WORST_FIRST = ("fail", "undecided", "pass")
WHOLE_GATE = "gate"
"""The limit to waive where there is no judgement, or none that names a limit."""


def standing(judgements: Sequence[GateResult]) -> tuple[GateResult, ...]:
    """The newest judgement under each policy, the worst first and of equal ones the newest.

    Args:
        judgements: of one candidate, the first one first.
    """
    newest = {one.policy.name: one for one in judgements}
    by_day = sorted(newest.values(), key=lambda one: one.judged, reverse=True)
    return tuple(sorted(by_day, key=lambda one: WORST_FIRST.index(one.outcome)))


def limits_to_waive(answers: Sequence[GateResult]) -> tuple[str, ...]:
    """The limits for which accepting needs a waiver; none when every policy passes.

    Args:
        answers: see `standing`.
    """
    if not answers:
        return (WHOLE_GATE,)
    return tuple(dict.fromkeys(limit for one in answers for limit in _open_limits(one)))


def _open_limits(answer: GateResult) -> tuple[str, ...]:
    if answer.outcome == "pass":
        return ()
    named = [one.limit for one in answer.limits if one.outcome != "pass" and one.waiver is None]
    return tuple(named) or (WHOLE_GATE,)


def check_review(
    review: Review, answers: Sequence[GateResult], waivers: Sequence[Waiver], today: str
) -> None:
    """Raise unless this review may be appended.

    Args:
        answers: the judgements of its candidate that stand, see `standing`.
        waivers: those that the review names.
        today: the day in UTC, ISO 8601.

    Raises:
        BadUsageError: no reason, no reviewer, or a waiver is missing, spent or out of place.
        MismatchError: the candidate was judged again since.
    """
    for what in ("reason", "reviewer"):
        if not getattr(review, what).strip():
            raise BadUsageError(f"a review needs a {what}", hint=f"give one with --{what}")
    newest = answers[0] if answers else None
    policy = newest.policy.sha256 if newest else None
    if (review.gate, review.policy_sha256) != (newest.outcome if newest else None, policy):
        raise MismatchError(
            "this candidate was judged again while the review was written",
            hint="look at the new judgement first: audit show RUN",
            where=review.run,
        )
    if review.decision != "accept":
        if waivers:
            raise BadUsageError(
                "a waiver serves to accept", hint=f"leave it out to {_verb(review)}"
            )
        return
    needed = limits_to_waive(answers)
    for waiver in waivers:
        _check_waiver(waiver, review, needed, today)
    open_ = [limit for limit in needed if limit not in {waiver.limit for waiver in waivers}]
    if open_:
        raise _not_waived(newest, open_, review.run)


def check_seen(before: Sequence[Review], seen: Sequence[str], run: str) -> None:
    """Raise MismatchError unless the reviews of a candidate are those that its reviewer saw.

    Args:
        before: all reviews of the candidate, the first one first.
        seen: the ids of those that were seen.
    """
    new = [one for one in before if one.id not in seen]
    if new:
        raise MismatchError(
            f"this candidate was reviewed again while the review was written: {new[-1].decision} "
            f"by {new[-1].reviewer}",
            hint="look at the new review first: audit review RUN",
            where=run,
        )


def in_force(waiver: Waiver, today: str) -> bool:
    """Whether a waiver still holds on this day."""
    return today <= waiver.expires


def check_waiver(waiver: Waiver, today: str) -> None:
    """Raise BadUsageError unless this waiver may be appended."""
    for what in ("limit", "reason", "who"):
        if not getattr(waiver, what).strip():
            raise BadUsageError(f"a waiver needs a {what}", hint=f"give one with --{what}")
    if not waiver.expires:
        raise BadUsageError("a waiver needs a last day", hint="give one with --expires")
    try:
        day = date.fromisoformat(waiver.expires).isoformat()
    except ValueError:
        day = ""
    if day != waiver.expires:
        raise BadUsageError(
            f"{waiver.expires!r} is no day", hint="write the last day as 2026-12-31"
        )
    if not in_force(waiver, today):
        raise BadUsageError(
            f"this waiver would have expired on {waiver.expires}", hint="give a day to come"
        )


def _check_waiver(waiver: Waiver, review: Review, needed: Sequence[str], today: str) -> None:
    if waiver.head_sha256 != review.head_sha256:
        raise BadUsageError(
            f"waiver {waiver.id[:12]} is of another head, {waiver.head_sha256[:12]}",
            hint="a waiver holds for the very bytes it names",
        )
    if waiver.limit not in needed:
        raise BadUsageError(
            f"limit {waiver.limit!r} needs no waiver here",
            hint=f"those that do: {', '.join(needed) or 'none, the gate passed'}",
        )
    if not in_force(waiver, today):
        raise BadUsageError(
            f"waiver {waiver.id[:12]} expired on {waiver.expires}", hint="ask for a new one"
        )


def _not_waived(newest: GateResult | None, limits: Sequence[str], run: str) -> BadUsageError:
    if newest is None:
        return BadUsageError(
            "this candidate was never judged, so accepting it needs a waiver",
            hint=f"judge it: audit gate {run} --policy FILE; "
            f"or --waiver-limit {WHOLE_GATE} --expires DATE",
            where=run,
        )
    names = " ".join(f"--waiver-limit {shlex.quote(limit)}" for limit in limits)
    return BadUsageError(
        f"the gate says {newest.outcome} under {newest.policy.name}; "
        f"accepting needs a waiver for {', '.join(limits)}",
        hint=f"{names} --expires DATE, or --waiver ID of one that holds",
        where=run,
    )


def _verb(review: Review) -> str:
    return "reject" if review.decision == "reject" else "ask for more data"
