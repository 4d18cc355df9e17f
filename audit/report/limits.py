"""The gate's answer on a terminal: a line per limit, why some do not hold, and the outcome."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from audit.records import Candidate, GateResult, Run
from audit.report.terminal import rows
from audit.report.wording import clean, limit_cells

_HEADER = ("limit", "measure", "on", "estimate", "interval", "bound", "outcome")
_STYLE = {"pass": "bold green", "fail": "bold red", "undecided": "bold magenta"}
_NARROW = 100
"""On less columns than this the measure and the interval are left to the sentences."""


def show_gates(run: Run, console: Console, *, quiet: bool = False) -> None:
    """Print what the gate said of every candidate; with `quiet` the outcomes only."""
    judged = [(c, c.gate) for c in run.candidates if c.gate is not None]
    if judged and not quiet:
        _show_policy(judged[0][1], console)
    for candidate, gate in judged:
        if not quiet:
            _show_limits(candidate, gate, console)
        name = Text(f"{clean(candidate.head.name)}: ")
        word, _, rest = gate.sentence.partition(":")
        console.print(
            name.append(word, style=_STYLE[gate.outcome]).append(clean(f":{rest}")), soft_wrap=True
        )


def _show_policy(gate: GateResult, console: Console) -> None:
    console.print(Text(f"policy     {clean(gate.policy.name)}  {gate.policy.sha256[:12]}"))
    for sentence in gate.changes:
        console.print(Text(f"  changed  {clean(sentence)}", style="yellow"), soft_wrap=True)


def _show_limits(candidate: Candidate, gate: GateResult, console: Console) -> None:
    console.print()
    cells = [limit_cells(result) for result in gate.limits]
    kept = (0, 2, 3, 5, 6) if console.width < _NARROW else range(len(_HEADER))
    rows(console, [_HEADER[i] for i in kept], [[line[i] for i in kept] for line in cells])
    for result in gate.limits:
        if result.outcome != "pass":
            told = f"  {result.outcome:<9}  {result.limit}: {result.sentence} ({result.reason})"
            console.print(Text(clean(told)), soft_wrap=True)
    console.print()
