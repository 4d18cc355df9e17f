"""`audit ledger`: is the ledger whole, and what is in it?"""

from __future__ import annotations

from dataclasses import asdict

import click

from audit.cli.frame import USAGE, Shared, shared_options

_EPILOG = """\b
Examples:
  audit ledger info
  audit ledger verify
  audit ledger verify --repair --json
"""

_VERIFY_EPILOG = """\b
Exit codes: 0 all is as it was written, or was mended; 2 damage is left.

\b
Examples:
  audit ledger verify
  audit ledger verify --repair
"""


@click.group(epilog=_EPILOG)
def ledger() -> None:
    """The ledger itself: its place, its database, its soundness.

    AUDIT_LEDGER names its place, a folder or any URL that fsspec knows; AUDIT_DB_URL its database,
    SQLite or PostgreSQL, else a SQLite file in the folder.
    """


@ledger.command(epilog=_VERIFY_EPILOG)
@click.option("--repair", is_flag=True, help="Mend what can be mended without losing anything.")
@click.option(
    "--stale-after", type=click.FloatRange(min=0), default=60, show_default=True, metavar="MINUTES",
    help="A writer that has not finished for so long was killed.",
)  # fmt: skip
@shared_options
def verify(shared: Shared, repair: bool, stale_after: float) -> int:
    """Compute every hash again: documents, tables, policies, calibrations, reviews.

    With --repair, runs that the index lacks are indexed, an index that tells otherwise than the
    files is made anew, and what killed writers left is removed. Runs, tables and reviews are never
    changed: those come back from a copy only.
    """
    from audit.ledger import verify as verify_ledger
    from audit.provenance import now_utc
    from audit.report.history import PROBLEMS, problem_rows, verified
    from audit.report.terminal import progress_on, rows

    with progress_on(shared.err, enabled=not shared.quiet) as progress:
        found = verify_ledger(
            shared.open_ledger(), repair=repair, stale_seconds=60 * stale_after, progress=progress
        )
    if shared.as_json:
        problems = [asdict(problem) for problem in found.problems]
        document = {"as_of": now_utc(), "sound": found.sound, "counts": found.counts}
        shared.print_json(document | {"problems": problems})
    elif shared.quiet < 2:
        if found.problems:
            rows(shared.out, PROBLEMS, problem_rows(found))
        click.echo(verified(found))
    return 0 if found.sound else USAGE


@ledger.command(epilog="\b\nExamples:\n  audit ledger info\n  audit ledger info --json\n")
@shared_options
def info(shared: Shared) -> None:
    """Where the ledger is, which database it has, and how much is in it."""
    from audit.ledger import describe
    from audit.report.history import counted
    from audit.report.terminal import rows
    from audit.report.wording import clean

    found = describe(shared.open_ledger())
    if shared.as_json:
        shared.print_json(asdict(found))
    elif shared.quiet < 2:
        lines = [
            ["ledger", clean(found.ledger)],
            ["database", clean(found.database)],
            ["version", f"{found.schema_version}, journal {found.journal or 'of the server'}"],
            ["holds", counted(found.counts) or "nothing"],
            ["newest run", found.newest or "–"],
        ]
        lines += [[f"unreadable {clean(run)}", clean(why)] for run, why in found.unreadable.items()]
        rows(shared.out, ("", ""), lines)
