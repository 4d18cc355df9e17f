"""A calibration as something to read: the table of the study, its rankings, and which rules hold.

The terminal, Markdown and HTML show the same table and the same sentences.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from audit.calibration import Calibration, Yardstick, ladder_distance
from audit.errors import BadUsageError
from audit.report.escape import markdown, markdown_table
from audit.report.tables import Table
from audit.report.terminal import rows
from audit.report.wording import clean, number, ranking_check, rule_check, trials_told

_HEADER = (
    "cut", "family", "R in", "R same", "R shift", "loss", "tax", "D in", "H in", "AUC in",
    "D shift", "H shift", "beyond noise",
)  # fmt: skip
_CELLS = (
    ("retention", "in_distribution"), ("retention", "same_register"),
    ("retention", "domain_shift"), ("shift_loss", "domain_shift"),
    ("shift_tax", "domain_shift"), ("disagreement", "in_distribution"),
    ("harm", "in_distribution"), ("near_tie_auc", "in_distribution"),
    ("disagreement", "domain_shift"), ("harm", "domain_shift"),
)  # fmt: skip
SUFFIXES = {".html": "html", ".htm": "html", ".md": "markdown", ".markdown": "markdown"}


@dataclass(frozen=True, slots=True)
class Study:
    """What is said of a calibration."""

    title: str
    head: str
    reference: str
    table: Table
    rankings: tuple[str, ...]
    rules: tuple[str, ...]
    traces: Table


def study_of(calibration: Calibration) -> Study:
    """The retention and tax table, Spearman with its exact p, and the rules' checks."""
    c = calibration
    cuts = sum(yardstick.family != "noise" for yardstick in c.yardsticks)
    traces = tuple((clean(corpus), clean(digest)) for corpus, digest in c.traces.items())
    return Study(
        title=f"What {cuts} known cuts of this {clean(c.head)} head cost",
        head=clean(c.head),
        reference=clean(c.reference),
        table=_table(c),
        rankings=(
            ranking_check("loss", c.spearman_loss, c.spearman_loss_p, c.spearman_exact),
            ranking_check("tax", c.spearman_tax, c.spearman_tax_p, c.spearman_exact),
        ),
        rules=(*map(rule_check, c.rules), trials_told(c.trials)),
        traces=Table(("corpus", "sha256"), traces),
    )


def show_study(calibration: Calibration, console: Console) -> None:
    """Print the study on a terminal."""
    study = study_of(calibration)
    rows(console, study.table.header, study.table.rows)
    console.print()
    for sentence in study.rankings:
        console.print(Text(sentence))
    for sentence in study.rules:
        console.print(Text(sentence), soft_wrap=True)


def study_format(path: Path) -> str:
    """`html` or `markdown`, by the suffix.

    Raises:
        BadUsageError: it is another one.
    """
    found = SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise BadUsageError(
            f"a study's report is HTML or Markdown, not {path.suffix or 'without a suffix'}",
            hint=f"use one of {', '.join(SUFFIXES)}",
            where=path,
        )
    return found


def render_study(calibration: Calibration, format_: str) -> str:
    """The study as `html`, with its charts, or as `markdown`."""
    study = study_of(calibration)
    return _html(study, calibration) if format_ == "html" else _markdown(study)


def _markdown(study: Study) -> str:
    parts = [
        f"### {markdown(study.title)}",
        f"Reference `{''.join(c for c in study.reference if c.isalnum())}`",
        markdown_table(study.table.header, study.table.rows, study.table.numbers),
        "\n".join(f"* {markdown(sentence)}" for sentence in (*study.rankings, *study.rules)),
        markdown_table(study.traces.header, study.traces.rows),
    ]
    return "\n\n".join(parts) + "\n"


def _html(study: Study, calibration: Calibration) -> str:
    from audit.report.page import CHARTS_MISSING, charts_installed, figure_of, render_page

    figures = []
    if charts_installed():
        from audit.report import charts
        from audit.report.calibrated import summary_of

        summary = summary_of(calibration)
        assert summary is not None
        figures = [
            figure_of(charts.yardstick_retention(calibration)),
            figure_of(charts.disagreement_against_loss((), summary)),
            figure_of(charts.noise_ladder(summary)),
            figure_of(charts.harm_against_disagreement((), summary)),
        ]
    missing = "" if figures else CHARTS_MISSING
    return render_page(
        "study.html.jinja", study.title, study=study, figures=figures, charts_missing=missing
    )


def _table(calibration: Calibration) -> Table:
    ladder = calibration.ladder()
    lines = []
    for yardstick in calibration.yardsticks:
        distance = ladder_distance(
            yardstick.value("disagreement", "in_distribution"),
            yardstick.value("disagreement", "domain_shift"),
            ladder,
        )
        beyond = "–" if distance is None or yardstick.family == "noise" else f"{distance:+.3f}"
        lines.append((clean(yardstick.cut), yardstick.family, *_cells(yardstick), beyond))
    return Table(_HEADER, tuple(lines), numbers=tuple(range(2, len(_HEADER))))


def _cells(yardstick: Yardstick) -> list[str]:
    return [number(measure, yardstick.value(measure, register)) for measure, register in _CELLS]
