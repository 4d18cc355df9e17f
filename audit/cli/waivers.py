"""`audit waivers`: which heads may pass which limits, and until when."""

from __future__ import annotations

import click

from audit.cli.frame import Shared, shared_options

_EPILOG = """\b
Examples:
  audit waivers
  audit waivers --head-hash 3f9a77c0 --active --json
"""


@click.command(epilog=_EPILOG)
@click.option("--head-hash", metavar="HASH", help="Only for this head; the beginning will do.")
@click.option("--active", is_flag=True, help="Only those that hold today.")
@shared_options
def waivers(shared: Shared, head_hash: str | None, active: bool) -> None:
    """List the waivers, the first one first."""
    from audit.ledger import in_force
    from audit.provenance import now_utc
    from audit.report.history import WAIVERS, waiver_rows
    from audit.report.terminal import rows

    now = now_utc()
    known = shared.open_ledger().all_waivers()
    held = [one for one in known if in_force(one, now[:10])]
    found = held if active else known
    if head_hash is not None:
        found = [one for one in found if one.head_sha256.startswith(head_hash.lower())]
    if shared.as_json:
        listed = [
            one.model_dump(mode="json") | {"in_force": in_force(one, now[:10])} for one in found
        ]
        counts = {"waivers": len(known), "in_force": len(held), "matching": len(found)}
        shared.print_json({"as_of": now, "counts": counts, "waivers": listed, "truncated": False})
    elif shared.quiet < 2:
        if found:
            rows(shared.out, WAIVERS, waiver_rows(found, now[:10]))
        else:
            click.echo("no waiver" + (" fits" if known else " was ever given here"))
