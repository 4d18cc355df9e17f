"""`audit review`: sign a decision on a candidate, or read what was decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from audit.cli.frame import Shared, shared_options
from audit.errors import BadUsageError

if TYPE_CHECKING:
    from audit.ledger import Ledger
    from audit.records import Run

_EPILOG = """\b
Accepting a candidate that the gate passed needs nothing more. One that failed or is undecided needs
a waiver for each limit that did not pass; one that was never judged, a waiver of the limit `gate`.
A review is appended and never changed; the newest one counts.

\b
Examples:
  audit review latest
  audit review latest --decision accept --reason "2 points on German are worth the memory"
  audit review 3f9a --decision reject --reason "loses Chinese" --candidate q4_0.gguf
  audit review 3f9a --decision accept --reason "one release only" --waiver-limit worst-retention \
--expires 2026-12-31
"""


@click.command(epilog=_EPILOG)
@click.argument("run")
@click.option("--decision", type=click.Choice(["accept", "reject", "more-data"]))
@click.option("--reason", help="Why; needed with a decision.")
@click.option("--candidate", metavar="NAME", help="Which one, where the run has several.")
@click.option("--reviewer", metavar="NAME", help="Else AUDIT_REVIEWER, else the user's name.")
@click.option("--waiver", "waivers", multiple=True, metavar="ID", help="A waiver that holds.")
@click.option(
    "--waiver-limit", "limits", multiple=True, metavar="NAME", help="Waive this limit as well."
)
@click.option("--expires", metavar="DATE", help="The last day of the waivers made here.")
@shared_options
def review(shared: Shared, run: str, **options: Any) -> None:
    """Decide on a candidate of RUN, or without --decision list what was decided.

    The reviewer's name is recorded as it is given: nobody vouches for it.
    """
    ledger = shared.open_ledger()
    found = ledger.load_run(run)
    if options["decision"] is None:
        given = [name for name, value in options.items() if value]
        if given:
            raise BadUsageError(
                f"--{given[0].rstrip('s')} belongs to a decision",
                hint="add --decision accept, reject or more-data",
            )
        _list(shared, ledger, found)
    else:
        _decide(shared, ledger, found, options)


def _decide(shared: Shared, ledger: Ledger, run: Run, options: dict[str, Any]) -> None:
    from audit.ledger import find_candidate
    from audit.ledger.signing import Decided, check_reason, reviewer_name, sign

    check_reason(options["reason"])
    if bool(options["limits"]) != bool(options["expires"]):
        raise BadUsageError(
            "--waiver-limit and --expires belong together", hint="give both, or neither"
        )
    candidate = find_candidate(run, options["candidate"])
    said = Decided(**options | {"reviewer": reviewer_name(options["reviewer"])})
    saved = sign(ledger, run, said, ledger.answers(run.run, candidate.head.sha256))
    if shared.as_json:
        shared.print_json({"review": saved.model_dump(mode="json")})
    elif shared.quiet < 2:
        from audit.report.history import recorded

        click.echo(recorded(saved, candidate.head.name))


def _list(shared: Shared, ledger: Ledger, run: Run) -> None:
    from audit.provenance import now_utc

    reviews, judgements = ledger.reviews_of(run.run), ledger.judgements_of(run.run)
    if shared.as_json:
        shared.print_json(
            {
                "as_of": now_utc(),
                "run": run.run,
                "reviews": [one.model_dump(mode="json") for one in reviews],
                "judgements": [one.model_dump(by_alias=True, mode="json") for one in judgements],
            }
        )
    elif shared.quiet < 2:
        show_history(shared, ledger, run)
        if not reviews:
            click.echo(f"run {run.run} was not reviewed · audit review {run.run} --decision …")


def show_history(shared: Shared, ledger: Ledger, run: Run) -> None:
    """Print the gate's answers on a run and its reviews; nothing where there are none."""
    from audit.report import history
    from audit.report.terminal import rows

    names = {one.head.sha256: one.head.name for one in run.candidates}
    for header, lines in (
        (history.JUDGEMENTS, history.judgement_rows(ledger.judgements_of(run.run), names)),
        (history.REVIEWS, history.review_rows(ledger.reviews_of(run.run), names)),
    ):
        if lines:
            rows(shared.out, header, lines)
            click.echo()
