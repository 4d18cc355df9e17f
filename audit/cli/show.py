"""`audit show`: one run of the ledger."""

from __future__ import annotations

import click

from audit.cli.frame import Shared, shared_options

_EPILOG = """\b
Examples:
  audit show latest
  audit show 3f9a --tokens 20
"""


@click.command(epilog=_EPILOG)
@click.argument("run")
@click.option(
    "--tokens", type=click.IntRange(min=0), default=0, show_default=True, metavar="N",
    help="Also list the N costliest flips: the reference was right and sure, the candidate wrong.",
)  # fmt: skip
@shared_options
def show(shared: Shared, run: str, tokens: int) -> None:
    """Show RUN: a full id, a unique beginning of one, or `latest`."""
    from audit.ledger import load_positions, load_run, run_json
    from audit.report.flips import costliest_flips
    from audit.report.limits import show_gates
    from audit.report.terminal import rows, show_run

    found = load_run(run, shared.ledger)
    if shared.as_json:
        click.echo(run_json(found))
        return
    if shared.quiet < 2:
        show_run(found, shared.out, quiet=bool(shared.quiet))
        show_gates(found, shared.out, quiet=bool(shared.quiet))
    if tokens and shared.quiet < 2:
        header, lines = costliest_flips(load_positions(found, shared.ledger), tokens)
        rows(shared.out, header, lines)
