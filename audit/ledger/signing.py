"""How a person signs a decision: the review that their words make, appended to the ledger.

The command line and the dashboard both come here, so that they ask the same and refuse the same.
When a review may be appended at all is `reviewing`.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Sequence
from dataclasses import dataclass

from audit.errors import BadUsageError
from audit.ledger.documents import find_candidate
from audit.ledger.ledger import Ledger
from audit.provenance import now_utc
from audit.records import Candidate, GateResult, Review, Run, Waiver

REVIEWER = "AUDIT_REVIEWER"


@dataclass(frozen=True, slots=True)
class Decided:
    """What a reviewer says of one candidate of a run."""

    decision: str
    reason: str | None
    reviewer: str
    authenticated: bool = False
    """Whether someone else vouches for the name."""
    candidate: str | None = None
    """Name of the candidate; None where the run has only one."""
    waivers: tuple[str, ...] = ()
    """Ids, or beginnings of ids, of waivers that hold."""
    limits: tuple[str, ...] = ()
    """Limits that are waived along with it."""
    expires: str | None = None
    """The last day of those waivers, ISO 8601."""


def reviewer_name(given: str | None) -> str:
    """Who speaks: as given, else AUDIT_REVIEWER, else the user of the operating system.

    Raises:
        BadUsageError: none of them tells.
    """
    try:
        return given or os.environ.get(REVIEWER) or getpass.getuser()
    except (KeyError, OSError, ImportError) as error:
        raise BadUsageError(
            "the reviewer's name is not known", hint=f"give it with --reviewer or {REVIEWER}"
        ) from error


def check_reason(reason: str | None) -> None:
    """Raises BadUsageError where there is none."""
    if not reason:
        raise BadUsageError("a decision needs a reason", hint="--reason TEXT")


def sign(
    ledger: Ledger,
    run: Run,
    said: Decided,
    answers: Sequence[GateResult],
    reviews: Sequence[str] | None = None,
) -> Review:
    """Append the review, with the waivers it brings along.

    Args:
        answers: the gate's answers on the candidate that the reviewer looked at, the worst first.
        reviews: ids of the candidate's reviews that the reviewer saw; None without such a view.

    Raises:
        BadUsageError, MismatchError, NotFoundError: see `find_candidate` and `Ledger.add_review`.
    """
    check_reason(said.reason)
    candidate = find_candidate(run, said.candidate)
    seen = answers[0] if answers else None
    review = Review.model_validate(
        {
            "id": "",
            "run": run.run,
            "head_sha256": candidate.head.sha256,
            "decision": said.decision,
            "reason": said.reason,
            "reviewer": said.reviewer,
            "authenticated": said.authenticated,
            "created": now_utc(),
            "gate": seen.outcome if seen else None,
            "policy_sha256": seen.policy.sha256 if seen else None,
            "waivers": tuple(ledger.find_waiver(name) for name in said.waivers),
        }
    )
    return ledger.add_review(review, _waivers(said, candidate, review), reviews)


def _waivers(said: Decided, candidate: Candidate, review: Review) -> list[Waiver]:
    return [
        Waiver(
            id="", head_sha256=candidate.head.sha256, limit=limit, reason=review.reason,
            who=review.reviewer, created=review.created, expires=said.expires or "",
        )
        for limit in said.limits
    ]  # fmt: skip
