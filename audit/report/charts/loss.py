"""Disagreement in distribution against loss under shift: what was lost, and what is foretold.

The fits are those that predictions are read from (`prediction.monotone_fit`), one per kind of
yardstick, each with the interval of one more cut of its kind.
"""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from audit.calibration import NOISE_LIKE
from audit.prediction import Fit, monotone_fit
from audit.records import Candidate
from audit.report import wording
from audit.report.calibrated import Summary
from audit.report.charts.base import (
    BLUE,
    HEIGHT,
    PINK,
    RED,
    WIDTH,
    Drawing,
    base,
    drawing,
    family_colour,
    nothing,
    padded,
    percent_axis,
    shape_by,
)
from audit.report.charts.labels import Plane
from audit.report.charts.points import (
    axes_layer,
    interval_layers,
    label_layers,
    marks,
    short,
    span,
    yard_row,
)
from audit.report.tables import pooled

NAME = "disagreement-against-shift-loss"
_X = "disagreement D in distribution, % of positions"
_Y = "shift loss, points of retention"
_SHAPES = {"measured": "circle", "predicted": "diamond"}
_APART = 5.0
"""Pixels between what was measured and what was predicted of one head, whose D is the same."""


def disagreement_against_loss(
    candidates: Sequence[Candidate], summary: Summary | None = None
) -> Drawing:
    """Yardsticks, the monotone fits with their intervals, heads as predicted and as measured."""
    heads = marks(_head_rows(candidates))
    yards = marks(_yard_rows(summary))
    title = _finding(summary, heads)
    if heads.empty and yards.empty:
        return nothing(NAME, title, "no loss under shift was measured or predicted")
    fits = _fits(yards)
    plane = _plane(heads, yards)
    families = [*dict.fromkeys(yards["family"]), *(["candidate"] * bool(len(heads)))]
    apart = _apart(heads, plane)
    layers = [
        axes_layer(plane, percent_axis(_X), percent_axis(_Y, signed=True)),
        *(layer for fit, colour in fits for layer in _fit_layers(fit, colour)),
        base(yards).mark_point(filled=True, size=42, opacity=0.9).encode(
            x="x:Q", y="y:Q", color=family_colour(families), tooltip=_tips("cut")
        ),
        *interval_layers(apart[apart["register"] == "measured"], PINK),
        *interval_layers(apart[apart["register"] == "predicted"], PINK, dash=(3, 3)),
        base(apart).mark_point(filled=True, size=110, opacity=1).encode(
            x="x:Q", y="y:Q", color=family_colour(families), tooltip=_tips("head"),
            shape=shape_by("register", _SHAPES, apart["register"]),
        ),
        *label_layers(apart, yards, plane),
    ]  # fmt: skip
    told = f"{title}. {_told(heads, yards)}"
    return drawing(NAME, title, layers, told, _data(heads, yards), _notes(summary, fits))


def _head_rows(candidates: Sequence[Candidate]) -> list[dict[str, object]]:
    """Two marks per head at its disagreement in distribution: measured, and predicted."""
    rows: list[dict[str, object]] = []
    for candidate in candidates:
        inside = pooled(candidate.estimates, "disagreement", "in_distribution")
        if inside is None:
            continue
        found = {
            "measured": pooled(candidate.estimates, "shift_loss", "domain_shift"),
            "predicted": wording.predictions_of(candidate).get("shift_loss"),
        }
        label = short(candidate.head.name)
        for word, loss in found.items():
            if loss is None or loss.value is None:
                continue
            rows.append(
                {
                    "x": inside.value, "y": loss.value, "y_low": loss.low, "y_high": loss.high,
                    "name": wording.clean(candidate.head.name), "register": word, "label": label,
                    "family": "candidate", "kind": "candidate",
                }
            )  # fmt: skip
            label = ""
    return rows


def _yard_rows(summary: Summary | None) -> list[dict[str, object]]:
    return [
        yard_row(yard, yard.at("in_distribution").disagreement, yard.shift_loss)
        for yard in (summary.yardsticks if summary else ())
    ]


def _finding(summary: Summary | None, heads: pd.DataFrame) -> str:
    if summary is not None and summary.spearman_loss is not None and summary.spearman_loss_p:
        ranks = "ranks" if summary.spearman_loss_p <= 0.05 else "does not rank"
        return (
            f"Disagreement in distribution {ranks} the loss under shift on this reference "
            f"(Spearman {summary.spearman_loss:.2f}, exact p {summary.spearman_loss_p:.2g})"
        )
    measured = heads[heads["register"] == "measured"]
    if len(measured) == 1:
        row = measured.iloc[0]
        loss = wording.number("shift_loss", row["y"])
        inside = wording.number("disagreement", row["x"])
        return f"{row['name']} loses {loss} under shift at D {inside} in distribution"
    return "Loss under shift against disagreement in distribution"


def _notes(summary: Summary | None, fits: Sequence[tuple[Fit, str]]) -> list[str]:
    if summary is None:
        return ["No yardsticks of this reference, so no loss is predicted."]
    notes = [wording.ranking_check("tax", summary.spearman_tax, summary.spearman_tax_p)]
    if fits:
        levels = " and ".join(f"{100 * fit.level:.0f} %" for fit, _ in fits)
        notes.append(f"Lines: monotone fits per kind of yardstick; bands hold one more cut of the "
                     f"kind at {levels}.")  # fmt: skip
    return notes


def _fits(yards: pd.DataFrame) -> list[tuple[Fit, str]]:
    """The monotone fit of each kind of yardstick that has enough of them."""
    out = []
    for families, colour in ((NOISE_LIKE, BLUE), (("function",), RED)):
        kind = yards[yards["family"].isin(families)]
        fit = monotone_fit(list(zip(kind["x"], kind["y"], strict=True)))
        if fit is not None:
            out.append((fit, colour))
    return out


def _fit_layers(fit: Fit, colour: str) -> list[alt.Chart]:
    frame = pd.DataFrame({"x": fit.x, "y": fit.y})
    frame = frame.assign(low=fit.y - fit.slack, high=fit.y + fit.slack)
    return [
        base(frame).mark_area(opacity=0.1, color=colour, clip=True).encode(
            x="x:Q", y="low:Q", y2="high:Q"
        ),
        base(frame).mark_line(color=colour, strokeWidth=1.5, opacity=0.8).encode(x="x:Q", y="y:Q"),
    ]  # fmt: skip


def _plane(heads: pd.DataFrame, yards: pd.DataFrame) -> Plane:
    low, high = span([heads, yards], "y")
    right = span([heads, yards], "x")[1]
    return Plane((0.0, padded(0.0, right, 0.08)[1]), padded(min(low, 0.0), high), WIDTH, HEIGHT)


def _apart(heads: pd.DataFrame, plane: Plane) -> pd.DataFrame:
    """The measured mark a little to the left of the predicted one."""
    shift = _APART / plane.width * (plane.x[1] - plane.x[0])
    side = heads["register"].map({"measured": -shift, "predicted": shift}).astype("float64")
    return heads.assign(x=heads["x"] + side)


def _tips(what: str) -> list[alt.Tooltip]:
    field = "label:N" if what == "cut" else "name:N"
    return [alt.Tooltip(field, title=what), alt.Tooltip("x:Q", title="D", format=".2%"),
            alt.Tooltip("y:Q", title="loss", format=".1%")]  # fmt: skip


def _told(heads: pd.DataFrame, yards: pd.DataFrame) -> str:
    parts = [
        f"{row['name']}, {row['register']}: {wording.number('shift_loss', row['y'])} at D "
        f"{wording.number('disagreement', row['x'])}"
        for _, row in heads.iterrows()
    ]
    parts += [
        f"{len(members)} {family} yardsticks: {100 * members['y'].min():.1f} to "
        f"{100 * members['y'].max():.1f} points lost"
        for family, members in yards.groupby("family")
    ]
    return "; ".join(parts) + "."


def _data(heads: pd.DataFrame, yards: pd.DataFrame) -> pd.DataFrame:
    named = heads.assign(label=heads["name"])
    data = pd.concat([frame for frame in (yards, named) if len(frame)], ignore_index=True)
    columns = {"label": "head", "family": "family", "register": "how", "x": "disagreement",
               "y": "shift_loss"}  # fmt: skip
    return data[list(columns)].rename(columns=columns)
