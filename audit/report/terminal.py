"""A Run on a terminal, and progress on stderr. The only module that knows rich.

Identities before numbers, intervals beside estimates, the verdict as a word, the next command
last. Colour only repeats what a word says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from audit.records import Candidate, Control, Estimate, Finding, Inspection, Run
from audit.report import wording
from audit.words import count

_VERDICT_STYLE = {
    "identical": "bold cyan",
    "fidelity": "bold green",
    "vocabulary": "bold yellow",
    "function": "bold red",
    "undecided": "bold magenta",
}
_SHOWN = (
    "disagreement",
    "harm",
    "acceptance_ref",
    "acceptance_cand",
    "retention",
    "vocabulary_ceiling",
    "disagreement_covered",
    "flip_margin",
    "near_tie_auc",
    "kl_nats",
    "shift_loss",
    "shift_tax",
)
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
    if not quiet:
        _show_identities(run, console)
        _show_findings(run.preflight, console)
        _show_controls(run.controls, console)
        _show_calibration(run, console)
        for candidate in run.candidates:
            console.print(_estimates(candidate, narrow=console.width < _NARROW))
        if len(run.candidates) > 1:
            console.print(_ranking(run, narrow=console.width < _NARROW))
    for candidate in run.candidates:
        console.print(_verdict(candidate), soft_wrap=True)
        for sentence in wording.predictions(candidate):
            console.print(Text(f"  {sentence}"), soft_wrap=True)


def show_inspection(found: Inspection, console: Console, *, quiet: bool = False) -> None:
    """Print what `audit inspect` found; with `quiet` the head's identity only."""
    _show_lines([["head", *wording.head_line(found.head)]], console)
    if quiet:
        return
    norm = "found" if found.norm_found else "not in this file"
    tokenizer = "unknown" if found.valid_ids is None else f"{found.valid_ids:,} ids"
    for line in (
        f"files      {len(found.files)} with {count(found.tensors_in_file, 'tensor')}",
        f"heads      {', '.join(found.heads)}",
        f"norm       {norm}",
        f"tokenizer  {tokenizer}",
        f"rows       median norm {found.row_norm_median:.4g}, {found.dead_rows} of them zero; "
        f"{found.dead_columns} zero columns",
    ):
        console.print(Text(line))
    _show_findings(found.preflight, console)


@contextmanager
def progress_on(console: Console, enabled: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A progress callback (what, done, total) drawn on `console`, or one that does nothing."""
    if not enabled or not console.is_terminal:
        yield lambda what, done, total: None
        return
    columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def report(what: str, done: int, total: int) -> None:
            bar.update(task, description=wording.clean(what), completed=done, total=total)

        yield report


def rows(console: Console, header: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """Print plain aligned rows under a header."""
    table = _grid(header)
    for line in lines:
        table.add_row(*[Text(cell) for cell in line])
    console.print(table)


def _grid(header: Sequence[str] = ()) -> Table:
    table = Table(box=None, show_header=bool(header), pad_edge=False, padding=(0, 2, 0, 0))
    for title in header:
        table.add_column(Text(title), header_style="dim", overflow="fold")
    return table


def _show_identities(run: Run, console: Console) -> None:
    lines = [["reference", *wording.head_line(run.reference)]]
    lines += [["candidate", *wording.head_line(candidate.head)] for candidate in run.candidates]
    for trace in run.traces:
        corpus, register, amount, model, digest = wording.trace_line(trace)
        lines.append(["trace", corpus, register, amount, model, "", digest])
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


def _show_findings(findings: Sequence[Finding], console: Console) -> None:
    console.print()
    loud = [finding for finding in findings if finding.severity != "note"]
    notes = len(findings) - len(loud)
    counted = f"{count(len(loud), 'warning')}, {count(notes, 'note')}"
    console.print(Text(f"preflight  {counted}"))
    for finding in (*loud, *(f for f in findings if f.severity == "note")):
        style = "yellow" if finding.severity == "warning" else "dim"
        words = f"  {finding.severity:<7}  {finding.code}  {finding.subject}: {finding.sentence}"
        console.print(Text(wording.clean(words), style=style), soft_wrap=True)


def _show_controls(controls: Sequence[Control], console: Console) -> None:
    failed = [control for control in controls if not control.passed]
    console.print(Text(f"controls   {len(controls) - len(failed)} of {len(controls)} passed"))
    for control in controls:
        word, style = ("passed", "dim") if control.passed else ("FAILED", "bold red")
        place = wording.clean(control.corpus)
        words = f"  {word:<7}  {control.name} on {place}: {control.sentence} ({control.expected})"
        console.print(Text(words, style=style), soft_wrap=True)
    console.print()


def _show_calibration(run: Run, console: Console) -> None:
    """One line per rule that was checked on this reference's yardsticks."""
    if run.calibration is None:
        return
    console.print(Text(f"calibration on {len(run.calibration['yardsticks'])} yardsticks"))
    for rule in run.calibration["rules"]:
        console.print(Text(f"  {wording.rule_check(rule)}", style="dim"), soft_wrap=True)
    if tried := run.calibration.get("trials"):
        console.print(Text(f"  {wording.trials(tried)}", style="dim"), soft_wrap=True)
    console.print()


def _estimates(candidate: Candidate, *, narrow: bool) -> Table:
    table = _grid((wording.clean(candidate.head.name), "on", "estimate", "95 % interval", "macro"))
    level = candidate.estimates[0].level if candidate.estimates else 0.95
    table.columns[3].header = Text(f"{100 * level:g} % interval")
    for column in (2, 4):
        table.columns[column].justify = "right"
        table.columns[column].no_wrap = True
    numbers = [wording.interval(e) for e in candidate.estimates if e.low is not None]
    table.columns[3].min_width = max(map(len, numbers), default=0)
    for estimate in _ordered(candidate.estimates):
        cells = (
            wording.measure_title(estimate.measure),
            wording.scope(estimate),
            wording.number(estimate.measure, estimate.value),
            wording.interval(estimate),
            wording.number(estimate.measure, estimate.macro),
        )
        table.add_row(*map(Text, cells[: 4 if narrow else 5]))
    table.columns = table.columns[: 4 if narrow else 5]
    table.add_row()
    return table


def _ordered(estimates: Sequence[Estimate]) -> list[Estimate]:
    """By measure; a register's pooled row only where it pools several corpora."""
    corpora: dict[str | None, set[str]] = {}
    for estimate in estimates:
        if estimate.corpus:
            corpora.setdefault(estimate.register_, set()).add(estimate.corpus)

    def shown(estimate: Estimate) -> bool:
        pooled = estimate.corpus is None
        alone = len(corpora.get(estimate.register_, ())) == 1
        full = estimate.measure == "vocabulary_ceiling" and estimate.value == 1.0
        return estimate.measure in _SHOWN and not (pooled and alone) and not full

    kept = [estimate for estimate in estimates if shown(estimate)]
    return sorted(kept, key=lambda e: _SHOWN.index(e.measure))


def _ranking(run: Run, *, narrow: bool) -> Table:
    """All candidates in one table, the best retention on its worst corpus first."""
    table = _grid(("ranked", "verdict", "worst retention", "on", "disagreement there", "size"))
    ranked = []
    for candidate in run.candidates:
        worst = worst_retention(candidate.estimates)
        ranked.append((-(worst.value if worst and worst.value is not None else 0.0), candidate))
    for _, candidate in sorted(ranked, key=lambda pair: pair[0]):
        worst = worst_retention(candidate.estimates)
        there = [
            e
            for e in candidate.estimates
            if worst and e.measure == "disagreement" and e.corpus == worst.corpus
        ]
        cells = (
            wording.clean(candidate.head.name),
            candidate.verdict.kind,
            wording.number("retention", worst.value if worst else None),
            wording.scope(worst) if worst else "–",
            wording.number("disagreement", there[0].value if there else None),
            wording.size(candidate.head.stored_bytes),
        )
        table.add_row(*map(Text, cells[: 4 if narrow else 6]))
    table.columns = table.columns[: 4 if narrow else 6]
    table.add_row()
    return table


def worst_retention(estimates: Sequence[Estimate]) -> Estimate | None:
    """The corpus on which the candidate keeps least; None when no retention is known."""
    known = [
        (estimate.value, estimate)
        for estimate in estimates
        if estimate.measure == "retention" and estimate.corpus and estimate.value is not None
    ]
    return min(known, key=lambda pair: pair[0])[1] if known else None


def _verdict(candidate: Candidate) -> Text:
    kind = candidate.verdict.kind
    text = Text(f"{wording.clean(candidate.head.name)}: ")
    word, _, rest = candidate.verdict.sentence.partition(":")
    text.append(word, style=_VERDICT_STYLE[kind])
    text.append(wording.clean(f":{rest}"))
    return text
