"""`audit diff`: two recorded candidates held against each other."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from audit.cli.frame import RESAMPLES, SEED, Shared, shared_options
from audit.errors import BadUsageError

if TYPE_CHECKING:
    from audit.diff import InputDifference, Side
    from audit.paired import Difference

_EPILOG = """\b
Runs whose reference, traces or counting differ are refused with exit code 2: their difference would
mean nothing. The differing inputs are shown all the same.

\b
Examples:
  audit diff 3f9a 81c2
  audit diff 3f9a latest --candidate q4_0.gguf --corpus german
  audit diff latest latest --candidate q4_0.gguf --candidate q8_0.gguf --json
"""


@click.command(epilog=_EPILOG)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--candidate", "names", multiple=True, metavar="NAME",
    help="The candidate meant in both runs; given twice, in A and in B.",
)  # fmt: skip
@click.option("--corpus", "corpora", multiple=True, metavar="NAME", help="Only on this corpus.")
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option("--resamples", type=RESAMPLES, default=4000, show_default=True)
@shared_options
def diff(
    shared: Shared,
    a: str,
    b: str,
    names: tuple[str, ...],
    corpora: tuple[str, ...],
    seed: int,
    resamples: int,
) -> None:
    """Hold a candidate of run B against one of run A: what went in, then what came out.

    Differences are paired: the same positions, the same resamples of the sequences.
    """
    from audit.diff import comparable_corpora, input_differences, outcome_differences
    from audit.stats import Resampling

    if len(names) > 2:
        raise BadUsageError("--candidate can be given twice at most", hint="one for A, one for B")
    left, right = _sides(shared, a, b, names)
    inputs = input_differences(left, right)
    if not shared.as_json and not shared.quiet:
        _show_inputs(shared, inputs)
    chosen = comparable_corpora(left, right, corpora)
    ledger = shared.open_ledger()
    tables = ledger.load_positions(left.run), ledger.load_positions(right.run)
    how = Resampling(resamples=resamples, seed=seed)
    found, notes = outcome_differences(left, right, tables, chosen, how)
    if shared.as_json:
        sides = {"a": _side(left), "b": _side(right)}
        changed = {"inputs": [asdict(one) for one in inputs]}
        outcome = {"differences": [asdict(one) for one in found], "notes": notes}
        shared.print_json(sides | changed | outcome)
    elif shared.quiet < 2:
        _show_outcome(shared, found, notes, left, right)


def _sides(shared: Shared, a: str, b: str, names: tuple[str, ...]) -> tuple[Side, Side]:
    from audit.diff import Side
    from audit.ledger import find_candidate

    ledger = shared.open_ledger()
    runs = ledger.load_run(a), ledger.load_run(b)
    wanted = names * 2 if len(names) == 1 else names or (None, None)
    left, right = (
        Side(run, find_candidate(run, name)) for run, name in zip(runs, wanted, strict=True)
    )
    return left, right


def _side(side: Side) -> dict[str, str]:
    head = side.candidate.head
    return {"run": side.run.run, "candidate": head.name, "head_sha256": head.sha256}


def _show_inputs(shared: Shared, inputs: list[InputDifference]) -> None:
    from audit.report.diff import INPUTS, input_rows
    from audit.report.terminal import rows

    if inputs:
        rows(shared.out, INPUTS, input_rows(inputs))
    else:
        click.echo("the inputs are the same")
    click.echo()


def _show_outcome(
    shared: Shared, found: list[Difference], notes: list[str], left: Side, right: Side
) -> None:
    from audit.report.diff import OUTCOMES, outcome_rows, verdict_of
    from audit.report.terminal import rows
    from audit.report.wording import clean

    if not shared.quiet:
        rows(shared.out, OUTCOMES, outcome_rows(found))
        for note in notes:
            click.echo(f"note: {clean(note)}")
        click.echo()
    names = [side.candidate.head.name for side in (left, right)]
    if names[0] == names[1]:
        names = [
            f"{name} in {side.run.run}" for name, side in zip(names, (left, right), strict=True)
        ]
    for one in found:
        if sentence := verdict_of(one, names[0], names[1]):
            click.echo(sentence)
