"""Harm against disagreement: how often a head differs, and what each difference costs.

The published rule draws a line through this plane. The yardsticks show where the families lie on
this very reference, and the rule's own check on them is said beside the chart.
"""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from audit.records import Candidate
from audit.report import wording
from audit.report.calibrated import Summary
from audit.report.charts.base import (
    FAMILY,
    HEIGHT,
    PINK,
    WIDTH,
    Drawing,
    base,
    drawing,
    family_colour,
    nothing,
    padded,
    percent_axis,
    register_shape,
)
from audit.report.charts.labels import Box, Plane
from audit.report.charts.points import (
    LABEL,
    axes_layer,
    candidate_rows,
    interval_layers,
    label_layers,
    marks,
    span,
    text_box,
    yard_row,
)
from audit.rulecheck import PUBLISHED_HARM

NAME = "harm-against-disagreement"
_X, _Y = (
    "disagreement D with the reference, % of positions",
    "harm per disagreement H, acceptances lost",
)


def harm_against_disagreement(
    candidates: Sequence[Candidate], summary: Summary | None = None
) -> Drawing:
    """One mark per head and register with intervals; yardsticks, family regions, threshold."""
    heads = marks(candidate_rows(candidates, "disagreement", "harm"))
    yards = _yardsticks(summary)
    title = _finding(candidates, heads, summary)
    if heads.empty and yards.empty:
        return nothing(NAME, title, "no head has both a disagreement rate and a harm")
    threshold, holds = _threshold(summary)
    plane = _plane(heads, yards, threshold)
    rule = pd.DataFrame([{"x": plane.x[1], "y": threshold, "label": _rule_label(threshold, holds)}])
    written = text_box(plane, plane.x[1], threshold, _rule_label(threshold, holds))
    families = [*dict.fromkeys(yards["family"]), *(["candidate"] * bool(len(heads)))]
    layers = [
        axes_layer(plane, percent_axis(_X), alt.Axis(title=_Y, format=".2~f")),
        *_regions(yards, plane),
        base(rule).mark_rule(color=LABEL, strokeDash=[1, 0] if holds else [6, 4]).encode(y="y:Q"),
        base(rule).mark_text(align="right", dy=-6, fontSize=10, color=LABEL)
        .encode(x="x:Q", y="y:Q", text="label:N"),
        _yard_layer(yards, families),
        *_head_layers(heads, families),
        *label_layers(heads, yards, plane, [_line_box(plane, threshold), written]),
    ]  # fmt: skip
    told = _told(heads, yards, threshold, holds)
    return drawing(NAME, title, layers, f"{title}. {told}", _data(heads, yards), _notes(summary))


def _yardsticks(summary: Summary | None) -> pd.DataFrame:
    rows = []
    for yard in summary.yardsticks if summary else ():
        inside = yard.at("in_distribution")
        rows.append(yard_row(yard, inside.disagreement, inside.harm))
    return marks(rows)


def _threshold(summary: Summary | None) -> tuple[float, bool]:
    """The rule's line, and whether it carries weight: the yardsticks' own where it holds."""
    if summary is None:
        return PUBLISHED_HARM, True
    own, published = summary.rule("harm"), summary.rule("published harm")
    if own and own.weight and own.threshold is not None:
        return own.threshold, True
    return PUBLISHED_HARM, bool(published and published.weight)


def _rule_label(threshold: float, holds: bool) -> str:
    return f"rule: {threshold:.2f}" if holds else f"published rule {threshold:.2f}: no weight here"


def _finding(candidates: Sequence[Candidate], heads: pd.DataFrame, summary: Summary | None) -> str:
    if summary is not None:
        tells = "tells" if _threshold(summary)[1] else "does not tell"
        return f"On this reference, harm {tells} function cuts from fidelity cuts"
    if len(candidates) == 1 and len(heads):
        row = heads.iloc[0]
        return (
            f"{row['name']} differs at {wording.number('disagreement', row['x'])} of positions "
            f"({row['register']}), and each difference costs {row['y']:.2f} acceptances lost"
        )
    return "Harm per disagreement against disagreement"


def _notes(summary: Summary | None) -> list[str]:
    if summary is None:
        return ["No yardsticks of this reference: the line is the published rule's, which is "
                "known not to hold on every head."]  # fmt: skip
    return [wording.rule_check(r) for r in summary.rules if r.name in ("harm", "published harm")]


def _plane(heads: pd.DataFrame, yards: pd.DataFrame, threshold: float) -> Plane:
    low, high = span([heads, yards], "y")
    x = (0.0, padded(0.0, span([heads, yards], "x")[1], 0.08)[1])
    return Plane(x, padded(min(low, 0.0, threshold), max(high, threshold)), WIDTH, HEIGHT)


def _line_box(plane: Plane, y: float) -> Box:
    up = plane.pixel(0.0, y)[1]
    return 0.0, up - 1, plane.width, up + 1


def _regions(yards: pd.DataFrame, plane: Plane) -> list[alt.Chart]:
    """A box round each family of cuts: where its yardsticks lie on this reference."""
    boxes, colours = [], []
    for family, members in yards.groupby("family"):
        if family in ("fidelity", "function") and len(members) > 1:
            dx, dy = 0.012 * (plane.x[1] - plane.x[0]), 0.02 * (plane.y[1] - plane.y[0])
            boxes.append(
                {
                    "x": max(plane.x[0], members["x"].min() - dx), "x2": members["x"].max() + dx,
                    "y": members["y"].min() - dy, "y2": members["y"].max() + dy,
                }
            )  # fmt: skip
            colours.append(FAMILY[str(family)])
    return [
        base(pd.DataFrame([box])).mark_rect(opacity=0.12, fill=colour)
        .encode(x="x:Q", x2="x2:Q", y="y:Q", y2="y2:Q")
        for box, colour in zip(boxes, colours, strict=True)
    ]  # fmt: skip


def _yard_layer(yards: pd.DataFrame, families: Sequence[str]) -> alt.Chart:
    tips = [alt.Tooltip("label:N", title="cut"), alt.Tooltip("x:Q", title="D", format=".2%"),
            alt.Tooltip("y:Q", title="H", format=".2f")]  # fmt: skip
    points: alt.Chart = (
        base(yards).mark_point(filled=True, size=42, opacity=0.9)
        .encode(x="x:Q", y="y:Q", color=family_colour(families), tooltip=tips)
    )  # fmt: skip
    return points


def _head_layers(heads: pd.DataFrame, families: Sequence[str]) -> list[alt.Chart]:
    tips = [alt.Tooltip("name:N", title="head"), alt.Tooltip("register:N"),
            alt.Tooltip("x:Q", title="D", format=".2%"),
            alt.Tooltip("y:Q", title="H", format=".2f")]  # fmt: skip
    points = base(heads).mark_point(filled=True, size=110, opacity=1)
    return [
        *interval_layers(heads, PINK),
        points.encode(
            x="x:Q", y="y:Q", color=family_colour(families), tooltip=tips,
            shape=register_shape(heads),
        ),
    ]  # fmt: skip


def _told(heads: pd.DataFrame, yards: pd.DataFrame, threshold: float, holds: bool) -> str:
    parts = [
        f"{row['name']}, {row['register']}: D {wording.number('disagreement', row['x'])}, "
        f"H {row['y']:.2f}"
        for _, row in heads.iterrows()
    ]
    for family, members in yards.groupby("family"):
        parts.append(
            f"{len(members)} {family} yardsticks: D {100 * members['x'].min():.1f} to "
            f"{100 * members['x'].max():.1f} %, H {members['y'].min():.2f} to "
            f"{members['y'].max():.2f}"
        )
    return "; ".join([*parts, _rule_label(threshold, holds)]) + "."


def _data(heads: pd.DataFrame, yards: pd.DataFrame) -> pd.DataFrame:
    named = heads.assign(label=heads["name"] + ", " + heads["register"])
    data = pd.concat([frame for frame in (yards, named) if len(frame)], ignore_index=True)
    columns = {"label": "head", "family": "family", "x": "disagreement", "y": "harm"}
    return data[list(columns)].rename(columns=columns)
