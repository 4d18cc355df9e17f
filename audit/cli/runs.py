"""`audit runs`: the ledger's runs, the newest first."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from audit.cli.frame import Shared, shared_options
from audit.errors import BadUsageError

_VERDICTS = ("identical", "fidelity", "function", "vocabulary", "undecided")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_NARROW = 110
"""On fewer columns the list leaves out what `audit show` tells."""

_EPILOG = """\b
Examples:
  audit runs
  audit runs --gate fail --unreviewed
  audit runs --head q4_0 --verdict fidelity --since 2026-01-01 --json
  audit runs -n 1000 --csv
"""


def _moment(ctx: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
    """A day or time as runs tell theirs: the first second that --since takes and --until not."""
    if given is None:
        return None
    try:
        moment = datetime.fromisoformat(given)
        if parameter.name == "until":
            moment += timedelta(days=1) if _DAY.fullmatch(given) else timedelta(seconds=1)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(f"{given!r} is no day such as 2026-01-31, nor a time") from error


@click.command(epilog=_EPILOG)
@click.option("--verdict", type=click.Choice(_VERDICTS), help="What kind of cut a candidate is.")
@click.option(
    "--gate", type=click.Choice(["pass", "fail", "undecided", "none"]),
    help="The gate's newest answer; none: never judged.",
)  # fmt: skip
@click.option("--head", metavar="NAME", help="Part of a candidate's name.")
@click.option("--head-hash", "head_sha256", metavar="HASH", help="Beginning of a candidate's hash.")
@click.option(
    "--reference", metavar="NAME", help="Part of the reference's name, or beginning of its hash."
)
@click.option("--since", metavar="DAY", callback=_moment, help="Made on this day or later, UTC.")
@click.option("--until", metavar="DAY", callback=_moment, help="Made on this day or before, UTC.")
@click.option("--reviewed/--unreviewed", default=None, help="Whether someone reviewed a candidate.")
@click.option(
    "-n", "limit", type=click.IntRange(1, 1_000_000), default=20, show_default=True,
    help="How many to show.",
)  # fmt: skip
@click.option("--offset", type=click.IntRange(min=0), default=0, help="How many to pass over.")
@click.option("--csv", "as_csv", is_flag=True, help="One line of CSV per candidate.")
@shared_options
def runs(shared: Shared, as_csv: bool, **options: Any) -> None:
    """List the ledger's runs, the newest first.

    Filters on candidates mean one and the same candidate of a run.
    """
    from audit.ledger import RunFilter

    if as_csv and shared.as_json:
        raise BadUsageError("--csv and --json exclude each other", hint="leave one out")
    if options["head_sha256"] is not None:
        options["head_sha256"] = options["head_sha256"].lower()
    found = shared.open_ledger().runs(RunFilter(**options))
    if shared.as_json:
        shared.print_json(_document(found))
    elif as_csv:
        from audit.report.history import run_csv

        click.echo(run_csv(found.runs), nl=False)
    elif shared.quiet < 2:
        _show(shared, found, options["offset"])


def _document(found: Any) -> dict[str, Any]:
    from audit.provenance import now_utc

    counts = {"matching": found.matching, "unreadable": len(found.unreadable), **found.counts}
    return {
        "as_of": now_utc(),
        "counts": counts,
        "runs": [asdict(run) for run in found.runs],
        "truncated": found.truncated,
        "unreadable": [{"run": run, "why": why} for run, why in found.unreadable.items()],
    }


def _show(shared: Shared, found: Any, offset: int) -> None:
    from audit.report.history import RUNS, RUNS_NARROW, run_rows
    from audit.report.terminal import rows
    from audit.report.wording import clean
    from audit.words import count

    if found.runs:
        wide = shared.out.width >= _NARROW
        header = RUNS if wide else RUNS_NARROW
        rows(shared.out, header, run_rows(found.runs, header))
    for run, why in found.unreadable.items():
        click.echo(f"{clean(run)} can not be read: {clean(why)}")
    total = found.counts["runs"] + len(found.unreadable)
    if not total:
        click.echo("this ledger holds no runs · make one: audit compare REF CAND")
    elif not shared.quiet:
        last = offset + len(found.runs)
        which = f"{offset + 1} to {last}" if found.runs else "none"
        told = f"{which} of {found.matching:,} that fit · {count(total, 'run')} in the ledger"
        click.echo(f"{told} · next: audit show RUN" if found.runs else told)
