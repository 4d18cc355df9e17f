"""Yardsticks and candidates as points of a plane: the rows that several charts draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from audit.records import Candidate, LimitResult
from audit.report import wording
from audit.report.calibrated import Yard
from audit.report.charts.base import (
    FAMILY_WORDS,
    base,
    drawable,
    finite_rows,
    span_scale,
)
from audit.report.charts.labels import CHARACTER, LINE, Box, Plane, obstacles_of, place_labels
from audit.report.tables import pooled

LABEL = "#757575"
"""Colour of labels: as readable on white as on near black; a page may replace it."""
_LONGEST = 30
_COLUMNS = (
    "x", "x_low", "x_high", "y", "y_low", "y_high", "name", "label", "register", "family", "kind",
)  # fmt: skip


def short(name: str) -> str:
    """A name that fits beside a mark: without the kind of file, and cut where it is long."""
    name = wording.clean(name.removesuffix(".safetensors").removesuffix(".gguf"))
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def yard_row(yard: Yard, x: float | None, y: float | None) -> dict[str, Any]:
    """One yardstick's mark."""
    kind = FAMILY_WORDS[yard.family]
    return {"x": x, "y": y, "label": short(yard.cut), "family": yard.family, "kind": kind}


def candidate_rows(
    candidates: Sequence[Candidate], x_measure: str, y_measure: str
) -> list[dict[str, Any]]:
    """One mark per candidate and register with the intervals of both measures, where known."""
    rows = []
    for candidate in candidates:
        for register in wording.REGISTER_WORDS:
            x, y = (pooled(candidate.estimates, m, register) for m in (x_measure, y_measure))
            if x is None or y is None:
                continue
            word = wording.REGISTER_WORDS[register]
            rows.append(
                {
                    "x": x.value, "x_low": x.low, "x_high": x.high,
                    "y": y.value, "y_low": y.low, "y_high": y.high,
                    "name": wording.clean(candidate.head.name),
                    "label": short(candidate.head.name) if len(candidates) > 1 else word,
                    "register": word,
                    "family": "candidate", "kind": FAMILY_WORDS["candidate"],
                }
            )  # fmt: skip
    return rows


def thresholds_of(limits: Sequence[LimitResult]) -> list[float]:
    """The different bounds of limits, ascending."""
    return sorted(
        {x.threshold for x in limits if x.threshold is not None and drawable(x.threshold)}
    )


def marks(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """The rows that have both places, with the columns of all marks."""
    return finite_rows(rows, ("x", "y"), _COLUMNS)


def with_interval(frame: pd.DataFrame, axis: str) -> pd.DataFrame:
    """The rows whose interval on one axis is known."""
    low, high = frame[f"{axis}_low"], frame[f"{axis}_high"]
    known = low.map(drawable).astype(bool) & high.map(drawable).astype(bool)
    ends = [f"{axis}_low", f"{axis}_high"]
    return frame[known].astype(dict.fromkeys(ends, "float64"))


def axes_layer(plane: Plane, x: alt.Axis, y: alt.Axis) -> alt.Chart:
    """The axes of a plane, on a mark that is not seen, so that any other layer may be empty."""
    corner = pd.DataFrame({"x": [plane.x[0]], "y": [plane.y[0]]})
    layer: alt.Chart = base(corner).mark_point(opacity=0, size=0).encode(
        x=alt.X("x:Q", axis=x, scale=span_scale(plane.x)),
        y=alt.Y("y:Q", axis=y, scale=span_scale(plane.y)),
    )  # fmt: skip
    return layer


def interval_layers(frame: pd.DataFrame, colour: str, dash: Sequence[int] = ()) -> list[alt.Chart]:
    """A bar for each interval that is known, on both axes."""
    across = base(with_interval(frame, "x")).mark_rule(color=colour, strokeWidth=1.5)
    up = base(with_interval(frame, "y")).mark_rule(
        color=colour, strokeWidth=1.5, strokeDash=list(dash) or [1, 0]
    )
    return [
        across.encode(x="x_low:Q", x2="x_high:Q", y="y:Q"),
        up.encode(x="x:Q", y="y_low:Q", y2="y_high:Q"),
    ]


def label_layers(
    heads: pd.DataFrame, yards: pd.DataFrame, plane: Plane, obstacles: Sequence[Box] = ()
) -> list[alt.Chart]:
    """Labels beside their marks, where they find room: of the heads first, and bold.

    The noise ladder's marks are not labelled, but not covered either.
    """
    cuts = yards[yards["family"] != "noise"]
    frames = [frame for frame in (heads, cuts) if len(frame)] or [heads]
    named = pd.concat([frame[["x", "y", "label", "family"]] for frame in frames])
    boxes = [*obstacles, *obstacles_of(heads, plane), *obstacles_of(yards, plane)]
    placed = place_labels(named, plane, boxes)
    own = placed["family"] == "candidate"
    return [
        base(placed[own]).mark_text(fontSize=10, color=LABEL, fontWeight="bold").encode(**_PLACED),
        base(placed[~own]).mark_text(fontSize=10, color=LABEL).encode(**_PLACED),
    ]


_PLACED = {"x": "lx:Q", "y": "ly:Q", "text": "label:N"}


def text_box(plane: Plane, x: float, y: float, text: str) -> Box:
    """The room of a text that ends at x and stands on y."""
    right, foot = plane.pixel(x, y)
    return right - CHARACTER * len(text), foot - 1, right, foot + LINE + 2


def span(frames: Sequence[pd.DataFrame], axis: str) -> tuple[float, float]:
    """Lowest and highest value to be drawn on an axis, intervals included."""
    columns = (axis, f"{axis}_low", f"{axis}_high")
    found = (value for frame in frames for column in columns for value in frame[column])
    values = [value for value in found if drawable(value)]
    return min(values), max(values)
