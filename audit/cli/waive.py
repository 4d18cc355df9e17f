"""`audit waive`: let one head pass one limit until a day."""

from __future__ import annotations

import click

from audit.cli.frame import Shared, shared_options

_EPILOG = """\b
A waiver holds for the bytes it names, not for a file name: a new build of the head needs a new one.
It is appended and never changed; after its last day it does nothing.

\b
Examples:
  audit waive 3f9a77c0 --limit worst-retention --reason "until the retrained head" \
--expires 2026-12-31
"""


@click.command(epilog=_EPILOG)
@click.argument("head_hash")
@click.option("--limit", required=True, metavar="NAME", help="The limit's name in the policy.")
@click.option("--reason", required=True, help="Why.")
@click.option("--expires", required=True, metavar="DATE", help="The last day on which it holds.")
@click.option("--who", metavar="NAME", help="Who answers for it; else as in `audit review`.")
@shared_options
def waive(
    shared: Shared, head_hash: str, limit: str, reason: str, expires: str, who: str | None
) -> None:
    """Let the head with HEAD_HASH pass a limit of the policy until a day.

    HEAD_HASH is a candidate's whole hash, or the beginning of one that the ledger knows.
    """
    from audit.errors import BadUsageError
    from audit.ledger.signing import reviewer_name
    from audit.policy import CONTROLS_LIMIT
    from audit.provenance import now_utc
    from audit.records import Waiver
    from audit.report.wording import clean

    if limit == CONTROLS_LIMIT:
        raise BadUsageError(
            "failed controls can not be waived: then there is no number to overrule",
            hint="find out why the audit's own checks failed, and audit again",
        )
    ledger = shared.open_ledger()
    waiver = ledger.add_waiver(
        Waiver(
            id="",
            head_sha256=ledger.find_head(head_hash),
            limit=limit,
            reason=reason,
            who=reviewer_name(who),
            created=now_utc(),
            expires=expires,
        )
    )
    if shared.as_json:
        shared.print_json({"waiver": waiver.model_dump(mode="json")})
    elif shared.quiet < 2:
        click.echo(
            f"waiver {waiver.id[:12]} recorded: {waiver.head_sha256[:12]} may pass "
            f"{clean(waiver.limit)} until {waiver.expires}"
        )
