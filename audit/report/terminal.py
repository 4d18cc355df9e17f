"""A Run on a terminal, and progress on stderr. The only module that knows rich.

Identities before numbers, intervals beside estimates, the verdict as a word, the next command
last. Colour only repeats what a word says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table as Grid
from rich.text import Text

from audit.progress import ENVIRONMENT, Progress, progress_lines
from audit.records import Inspection, Run
from audit.report import wording
from audit.report.content import Judged, Line, Report, findings_told, report_of
from audit.report.inspected import inspection_lines
from audit.report.tables import Table

_VERDICT_STYLE = {
    "identical": "bold cyan",
    "fidelity": "bold green",
    "vocabulary": "bold yellow",
    "function": "bold red",
    "undecided": "bold magenta",
}
_NARROW = 80
"""On less columns than this, tables leave out what the others say too."""


class _Console(Console):
    """Text is shown as it is, and a reader that has left is an error like any other."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(*, no_color: bool, width: int | None = None, stderr: bool = False) -> Console:
    """A console that takes no file name for markup; NO_COLOR counts even without `no_color`."""
    return _Console(
        stderr=stderr, no_color=no_color or None, width=width,
        markup=False, emoji=False, highlight=False,
    )  # fmt: skip


def show_run(run: Run, console: Console, *, quiet: bool = False) -> None:
    """Print a whole run; with `quiet` the verdicts only."""
    report = report_of(run)
    if not quiet:
        _show_identities(report, console)
        _show_findings(report.findings, report.findings_summary, console)
        _show_controls(report, console)
        _show_calibration(report, console)
        for candidate in report.candidates:
            found = candidate.estimates
            named = replace(found, header=(candidate.name, *found.header[1:]))
            _show_table(named, console, narrow=4)
        if report.ranking:
            _show_table(report.ranking, console, narrow=4)
    for candidate in report.candidates:
        console.print(_verdict(candidate), soft_wrap=True)
        for sentence in wording.ceilings_by_class(candidate.record.estimates) if not quiet else ():
            console.print(Text(f"  {sentence}"), soft_wrap=True)
        for sentence in candidate.predictions:
            console.print(Text(f"  {sentence}"), soft_wrap=True)


def show_inspection(found: Inspection, console: Console, *, quiet: bool = False) -> None:
    """Print what `audit inspect` found; with `quiet` the head's identity only."""
    _show_lines([["head", *wording.head_line(found.head)]], console)
    if quiet:
        return
    for line in inspection_lines(found):
        console.print(Text(line))
    _show_findings(*findings_told(found.preflight), console)


@contextmanager
def progress_on(console: Console, enabled: bool) -> Iterator[Progress]:
    """A progress callback drawn on `console`, or one that does nothing.

    Where AUDIT_PROGRESS names a file, the callback writes lines into it instead: see `progress`.
    """
    if place := os.environ.get(ENVIRONMENT):
        with progress_lines(Path(place)) as report:
            yield report
        return
    if not enabled or not console.is_terminal:
        yield lambda what, done, total: None
        return
    columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn()
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def draw(what: str, done: int, total: int) -> None:
            bar.update(task, description=wording.clean(what), completed=done, total=total)

        yield draw


def rows(console: Console, header: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """Print plain aligned rows under a header."""
    table = _grid(header)
    for line in lines:
        table.add_row(*[Text(cell) for cell in line])
    console.print(table)


def _grid(header: Sequence[str] = ()) -> Grid:
    table = Grid(box=None, show_header=bool(header), pad_edge=False, padding=(0, 2, 0, 0))
    for title in header:
        table.add_column(Text(title), header_style="dim", overflow="fold")
    return table


def _show_identities(report: Report, console: Console) -> None:
    lines: list[Sequence[str]] = list(report.heads.rows)
    for *columns, digest in report.traces.rows:
        lines.append([*columns, "", digest])
    _show_lines(lines, console)


def _show_lines(lines: Sequence[Sequence[str]], console: Console) -> None:
    """In columns where there is room for them, else as running text."""
    table = _grid()
    for line in lines:
        table.add_row(*map(Text, line))
    unlimited = console.options.update(width=10_000)
    if console.measure(table, options=unlimited).maximum <= console.width:
        console.print(table)
        return
    for line in lines:
        console.print(Text(f"{line[0]:<9}  {' · '.join(cell for cell in line[1:] if cell)}"))


def _show_findings(findings: Sequence[Line], summary: str, console: Console) -> None:
    console.print()
    console.print(Text(f"preflight  {summary}"))
    for finding in findings:
        style = "yellow" if finding.loud else "dim"
        words = f"  {finding.word:<7}  {finding.sentence}"
        console.print(Text(words, style=style), soft_wrap=True)


def _show_controls(report: Report, console: Console) -> None:
    console.print(Text(f"controls   {report.controls_summary}"))
    for control in report.controls:
        style = "bold red" if control.loud else "dim"
        console.print(Text(f"  {control.word:<7}  {control.sentence}", style=style), soft_wrap=True)
    console.print()


def _show_calibration(report: Report, console: Console) -> None:
    """One line per rule that was checked on this reference's yardsticks."""
    if report.calibration is None:
        return
    console.print(Text(f"calibration on {len(report.calibration.yardsticks)} yardsticks"))
    for rule in report.rules:
        console.print(Text(f"  {rule}", style="dim"), soft_wrap=True)
    console.print()


def _show_table(table: Table, console: Console, narrow: int | None = None) -> None:
    """A table, of which a narrow terminal shows the first `narrow` columns, and an empty line."""
    kept = narrow if console.width < _NARROW else None
    grid = _grid(table.header[:kept])
    for place, column in enumerate(grid.columns):
        if place in table.numbers:
            column.justify = "right"
            column.no_wrap = True
        elif "interval" in table.header[place]:
            # Numbers stay on one line; the sentence that stands for a missing interval may wrap.
            cells = (row[place] for row in table.rows)
            intervals = (cell for cell in cells if cell[:1] in "-0123456789")
            column.min_width = max(map(len, intervals), default=0)
    for row in table.rows:
        grid.add_row(*map(Text, row[:kept]))
    grid.add_row()
    console.print(grid)


def _verdict(candidate: Judged) -> Text:
    text = Text(f"{candidate.name}: ")
    word, colon, rest = candidate.verdict.partition(":")
    text.append(word, style=_VERDICT_STYLE[candidate.kind])
    return text.append(colon + rest)
