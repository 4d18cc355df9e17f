"""The charts of a study: what each yardstick keeps, and the noise ladder beside the cuts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from audit.calibration import Calibration, Ladder, Yardstick, ladder_distance
from audit.records import Candidate
from audit.report import wording
from audit.report.calibrated import Summary, Yard
from audit.report.charts.base import (
    FAMILY,
    FAMILY_WORDS,
    GREY,
    HEIGHT,
    WIDTH,
    Drawing,
    base,
    drawing,
    family_colour,
    finite_rows,
    nothing,
    padded,
    percent_axis,
    shape_by,
    span_scale,
)
from audit.report.charts.labels import Plane
from audit.report.charts.points import axes_layer, label_layers, marks, short, span, yard_row
from audit.report.tables import pooled

_ROW_HEIGHT, _FRAME = 24, 24
_MADE = {"made without data": "circle", "fitted to text in distribution": "diamond"}
"""The ladder's rule tells these two apart: damage hides from the text that a cut was fitted to."""
_PLACES = {"in distribution": "circle", "domain shift": "triangle-up"}


def yardstick_retention(calibration: Calibration) -> Drawing:
    """What each yardstick keeps in distribution and under shift; the line between is the tax."""
    name, title = "yardstick-retention", "What known cuts of this reference keep"
    rows = _retention_rows(calibration.yardsticks)
    if rows.empty:
        return nothing(name, title, "no yardstick has a retention in distribution and under shift")
    worst = rows.iloc[int(rows["tax"].argmax())]
    told = wording.number("shift_tax", worst["tax"])
    title = f"{worst['label']} hides most from text in distribution: a shift tax of {told}"
    order = alt.Y("label:N", sort=list(rows["label"]), axis=alt.Axis(title=None, labelLimit=220))
    long = rows.melt(
        ["label", "kind"], ["inside", "shifted"], var_name="place", value_name="retention"
    )
    words = {"inside": "in distribution", "shifted": "domain shift"}
    long["place"] = long["place"].map(words)
    colour = family_colour(list(dict.fromkeys(rows["family"])))
    shape = shape_by("place", _PLACES, _PLACES)
    ends = [*rows["inside"], *rows["shifted"], *rows["low"], *rows["high"], 1.0]
    scale = span_scale(padded(min(ends), max(ends)))
    axis = percent_axis("retention R, % of the reference's acceptance")
    tips = [alt.Tooltip("label:N", title="cut"), alt.Tooltip("place:N"),
            alt.Tooltip("retention:Q", format=".1%")]  # fmt: skip
    layers = [
        base(pd.DataFrame({"x": [1.0]})).mark_rule(color=GREY).encode(x="x:Q"),
        base(rows).mark_rule(strokeWidth=1, opacity=0.6).encode(
            x="low:Q", x2="high:Q", y=order, color=colour),
        base(rows).mark_rule(strokeWidth=4, opacity=0.5).encode(
            x="inside:Q", x2="shifted:Q", y=order, color=colour),
        base(long).mark_point(filled=True, size=70, opacity=1).encode(
            x=alt.X("retention:Q", scale=scale, axis=axis), y=order, color=colour, shape=shape,
            tooltip=tips),
    ]  # fmt: skip
    words_ = "; ".join(
        f"{row['label']} {100 * row['inside']:.1f} % and {100 * row['shifted']:.1f} %"
        for _, row in rows.iterrows()
    )
    alternative = f"{title}. Retention in distribution and under shift: {words_}."
    notes = [
        "Thick: from text in distribution to text under shift. Thin: the interval under shift."
    ]
    height = _ROW_HEIGHT * len(rows) + _FRAME
    return drawing(name, title, layers, alternative, rows.drop(columns="kind"), notes, height)


def _retention_rows(yardsticks: Sequence[Yardstick]) -> pd.DataFrame:
    """One row per yardstick, the largest loss first."""
    rows: list[dict[str, Any]] = []
    for yard in yardsticks:
        inside = pooled(yard.estimates, "retention", "in_distribution")
        shifted = pooled(yard.estimates, "retention", "domain_shift")
        if inside is None or shifted is None or inside.value is None or shifted.value is None:
            continue
        known = shifted.low is not None and shifted.high is not None
        rows.append(
            {
                "label": short(yard.cut), "family": yard.family, "kind": FAMILY_WORDS[yard.family],
                "inside": inside.value, "shifted": shifted.value,
                "low": shifted.low if known else shifted.value,
                "high": shifted.high if known else shifted.value,
                "tax": inside.value - shifted.value,
            }
        )  # fmt: skip
    needed = ("inside", "shifted", "low", "high", "tax")
    frame = finite_rows(rows, needed, ("label", "family", "kind", *needed))
    return frame.drop_duplicates("label").sort_values("shifted").reset_index(drop=True)


def noise_ladder(summary: Summary, candidates: Sequence[Candidate] = ()) -> Drawing:
    """Disagreement in distribution against disagreement under shift: the ladder and the cuts."""
    name, title = "noise-ladder", "What each cut does under shift, beside noise of equal strength"
    yards = marks([_ladder_row(yard) for yard in summary.yardsticks])
    heads = marks([row for c in candidates if (row := _head_row(c)) is not None])
    rungs = yards[yards["family"] == "noise"].sort_values("x")
    if rungs.empty:
        return nothing(name, title, "there is no rung of the noise ladder")
    ladder = Ladder(*(np.array([0.0, *rungs[axis]]) for axis in ("x", "y")))
    beyond = _beyond(pd.concat([f for f in (heads, yards) if len(f)]), ladder)
    if len(beyond) and beyond["beyond"].max() <= 0:
        title = "No cut disagrees more under shift than noise of equal strength"
    elif len(beyond):
        worst = beyond.iloc[int(beyond["beyond"].argmax())]
        title = (
            f"{worst['label']} disagrees {wording.number('shift_tax', worst['beyond'])} more "
            f"under shift than noise of equal strength"
        )
    cuts = yards[yards["family"] != "noise"]
    families = [*dict.fromkeys(yards["family"]), *(["candidate"] * bool(len(heads)))]
    right, high = (span([yards, heads], axis)[1] for axis in ("x", "y"))
    plane = Plane((0.0, padded(0, right, 0.1)[1]), (0.0, padded(0, high)[1]), WIDTH, HEIGHT)
    layers = _ladder_layers(ladder, beyond, yards, heads, families, plane)
    layers += label_layers(heads, cuts, plane)
    rule = summary.rule("ladder distance")
    notes = [wording.rule_check(rule)] if rule else []
    told = "; ".join(f"{row['label']} {100 * row['beyond']:+.1f} points beyond the ladder"
                     for _, row in beyond.iterrows())  # fmt: skip
    return drawing(name, title, layers, f"{title}. {told}.", beyond, notes)


def _ladder_layers(
    ladder: Ladder, beyond: pd.DataFrame, yards: pd.DataFrame, heads: pd.DataFrame,
    families: Sequence[str], plane: Plane,
) -> list[alt.Chart]:  # fmt: skip
    line = pd.DataFrame({"x": ladder.disagreement, "y": ladder.response})
    tips = [alt.Tooltip("label:N", title="cut"), alt.Tooltip("x:Q", title="D in", format=".2%"),
            alt.Tooltip("y:Q", title="D shift", format=".2%")]  # fmt: skip
    colour = family_colour(families)
    is_rung = yards["family"] == "noise"
    rungs, cuts = yards[is_rung], yards[~is_rung]
    across = percent_axis("disagreement D in distribution, % of positions")
    return [
        axes_layer(plane, across, percent_axis("disagreement D under shift, % of positions")),
        base(line).mark_line(color=FAMILY["noise"], strokeWidth=1.5).encode(x="x:Q", y="y:Q"),
        base(beyond).mark_rule(color=GREY, strokeDash=[2, 2]).encode(
            x="x:Q", y="y:Q", y2="ladder:Q"),
        base(rungs).mark_point(filled=True, size=30, opacity=0.9).encode(
            x="x:Q", y="y:Q", color=colour, tooltip=tips),
        base(cuts).mark_point(filled=True, size=60, opacity=0.9).encode(
            x="x:Q", y="y:Q", color=colour, tooltip=tips,
            shape=shape_by("register", _MADE, cuts["register"])),
        base(heads).mark_point(filled=True, size=110, opacity=1).encode(
            x="x:Q", y="y:Q", color=colour, tooltip=tips),
    ]  # fmt: skip


def _ladder_row(yard: Yard) -> dict[str, Any]:
    inside, shifted = yard.at("in_distribution"), yard.at("domain_shift")
    row = yard_row(yard, inside.disagreement, shifted.disagreement)
    return {**row, "register": list(_MADE)[yard.calibrated]}


def _head_row(candidate: Candidate) -> dict[str, Any] | None:
    inside = pooled(candidate.estimates, "disagreement", "in_distribution")
    shifted = pooled(candidate.estimates, "disagreement", "domain_shift")
    if inside is None or shifted is None:
        return None
    label = short(candidate.head.name)
    return {"x": inside.value, "y": shifted.value, "label": label, "name": label,
            "family": "candidate", "kind": FAMILY_WORDS["candidate"]}  # fmt: skip


def _beyond(points: pd.DataFrame, ladder: Ladder) -> pd.DataFrame:
    """Cuts and heads within the ladder's reach, and how far beyond it they lie."""
    rows = []
    for row in points[points["family"] != "noise"].to_dict("records"):
        distance = ladder_distance(row["x"], row["y"], ladder)
        if distance is not None:
            rows.append({**{key: row[key] for key in ("label", "family", "x", "y")},
                         "ladder": row["y"] - distance, "beyond": distance})  # fmt: skip
    return pd.DataFrame(rows, columns=["label", "family", "x", "y", "ladder", "beyond"])
