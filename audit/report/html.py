"""A Run as one HTML file: what was compared, the outcome, the evidence with charts, the flips."""

from __future__ import annotations

from collections.abc import Sequence

from audit.report.content import Report
from audit.report.decided import LIMIT_HEADER, LIMIT_NUMBERS
from audit.report.page import CHARTS_MISSING, Figure, charts_installed, figure_of, render_page
from audit.report.tables import glossary
from audit.table import Frame


def render_html(report: Report, positions: Frame | None = None) -> str:
    """The report as a self-contained page; without altair and vl-convert it has no charts.

    Args:
        positions: the table of positions, for the charts of KL and flip margins.
    """
    charts = charts_installed()
    names = ", ".join(candidate.name for candidate in report.candidates)
    return render_page(
        "run.html.jinja",
        f"Audit of {names}",
        report=report,
        figures=_shared(report) if charts else (),
        own_figures=_own(report, positions) if charts else [()] * len(report.candidates),
        charts_missing="" if charts else CHARTS_MISSING,
        limit_header=LIMIT_HEADER,
        limit_numbers=LIMIT_NUMBERS,
        glossary=glossary(),
    )


def _shared(report: Report) -> list[Figure]:
    """Charts of all candidates together."""
    from audit.report import charts

    candidates = report.run.candidates
    drawings = [
        charts.harm_against_disagreement(candidates, report.calibration),
        charts.disagreement_against_loss(candidates, report.calibration),
    ]
    if report.calibration:
        drawings.append(charts.noise_ladder(report.calibration, candidates))
    if len(candidates) > 1:
        drawings.append(charts.size_against_loss(candidates, report.run.reference))
    return [figure_of(drawing) for drawing in drawings]


def _own(report: Report, positions: Frame | None) -> Sequence[Sequence[Figure]]:
    """Charts of each candidate alone."""
    from audit.report import charts

    out = []
    for number, candidate in enumerate(report.run.candidates, start=1):
        drawings = [charts.retention_by_corpus(candidate)]
        if any(e.token_class for e in candidate.estimates):
            drawings.append(charts.ceiling_by_class(candidate))
        if any(e.measure == "break_even_margin" for e in candidate.estimates):
            drawings.append(charts.margin_to_break_even(candidate))
        if positions is not None:
            rows = positions[positions["candidate"] == candidate.head.name]
            drawings += [charts.kl_spread(rows), charts.flip_margins(rows)]
        out.append([figure_of(drawing, number) for drawing in drawings])
    return out
