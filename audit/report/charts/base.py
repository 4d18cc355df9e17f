"""What all charts share: colours, the finished figure, and rows that may be drawn.

A chart is a pure function from records or frames to a `Drawing`. The finding is its title, the text
alternative says the same with its numbers, and where there is nothing to show there is a reason
instead of a chart. Colours fit light and dark grounds and differ for colour-blind eyes (Okabe and
Ito's), and shape or text repeats what they say. No theme is set, so that a page's own applies.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from audit.records import Outcome
from audit.report import wording

BLUE, RED, GREEN, PINK, GREY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#808080"
FAMILY = {"fidelity": BLUE, "function": RED, "noise": GREY, "candidate": PINK}
FAMILY_WORDS = {
    "fidelity": "fidelity yardstick",
    "function": "function yardstick",
    "noise": "noise ladder",
    "candidate": "candidate",
}
OUTCOME: dict[Outcome | None, str] = {
    "pass": GREEN, "fail": RED, "undecided": PINK, None: BLUE,
}  # fmt: skip
REGISTERS = tuple(wording.REGISTER_WORDS.values())
REGISTER_SHAPES = dict(zip(REGISTERS, ("circle", "square", "triangle-up"), strict=True))
WIDTH, HEIGHT = 640, 340
MAX_MARKS = 5_000
_TITLE_WIDTH = 84
_PLAUSIBLE = 1e6
"""No rate, ratio or loss of a real audit is larger; what is comes from a spoiled file."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart with its finding, or the reason why there is none."""

    name: str
    """Short and unique, for links and file names."""
    title: str
    """The finding, or what the chart would have been about."""
    chart: alt.LayerChart | alt.FacetChart | None
    alternative: str
    """The same in words, for those who can not see it."""
    reason: str = ""
    """Why there is no chart; empty when there is one."""
    notes: tuple[str, ...] = ()
    """What stands under the title: the rule's own check, what was left out."""
    data: pd.DataFrame | None = None
    """The rows drawn, for a download."""


def nothing(name: str, title: str, reason: str) -> Drawing:
    """No chart, and why."""
    return Drawing(name, title, None, f"{title}: {reason}", reason)


def drawing(
    name: str,
    title: str,
    layers: Sequence[alt.Chart],
    alternative: str,
    data: pd.DataFrame,
    notes: Sequence[str] = (),
    height: int = HEIGHT,
) -> Drawing:
    """A finished chart from its layers, the lowest first; an empty one would spoil the layout."""
    chart = alt.layer(*(layer for layer in layers if len(layer.data))).properties(
        width=WIDTH,
        height=height,
        title=alt.TitleParams(
            text=textwrap.wrap(title, _TITLE_WIDTH),
            subtitle=[line for note in notes for line in textwrap.wrap(note, _TITLE_WIDTH + 16)],
            anchor="start",
        ),
        description=alternative,
    )
    return Drawing(name, title, chart, alternative, notes=tuple(notes), data=data)


def finite_rows(rows: Sequence[Row], needed: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    """The rows whose `needed` columns are numbers that can be drawn, as a frame.

    NaN, infinity and the implausibly large count as missing in every column.
    """
    known = [
        {key: None if isinstance(value, float) and not drawable(value) else value
         for key, value in row.items()}
        for row in rows
    ]  # fmt: skip
    kept = [row for row in known if all(drawable(row.get(column)) for column in needed)]
    frame = pd.DataFrame(kept, columns=list(columns))
    return frame.astype(dict.fromkeys(needed, "float64"))


def drawable(value: Any) -> bool:
    """Whether this is a number that a chart may hold."""
    return isinstance(value, int | float) and math.isfinite(value) and abs(value) < _PLAUSIBLE


def base(frame: pd.DataFrame) -> alt.Chart:
    """A chart over a frame, which must stay small: aggregate before drawing.

    Columns with holes are left out: what a layer draws is there in every row.
    """
    if len(frame) > MAX_MARKS:
        raise ValueError(f"{len(frame)} marks; aggregate to at most {MAX_MARKS} before drawing")
    return alt.Chart(frame.dropna(axis="columns"))


def padded(low: float, high: float, share: float = 0.06) -> tuple[float, float]:
    """A domain with some room on both sides, never empty."""
    room = (high - low) * share or 0.01
    return low - room, high + room


def span_scale(domain: tuple[float, float]) -> alt.Scale:
    """Exactly this domain, which need not hold zero."""
    return alt.Scale(domain=list(domain), nice=False, zero=False)


def percent_axis(title: str, *, signed: bool = False) -> alt.Axis:
    """An axis of fractions shown in per cent, or in points where `signed`."""
    label = "format(100 * datum.value, '.4~g') + ' pt'" if signed else (
        "format(100 * datum.value, '.4~g') + ' %'"
    )  # fmt: skip
    return alt.Axis(title=title, labelExpr=label, tickCount=7, grid=True)


def family_colour(present: Sequence[str]) -> alt.Color:
    """Colour by family, with a legend of those that are there."""
    shown = [family for family in FAMILY if family in present]
    scale = alt.Scale(
        domain=[FAMILY_WORDS[family] for family in shown],
        range=[FAMILY[family] for family in shown],
    )
    return alt.Color("kind:N", scale=scale, legend=alt.Legend(title=None, symbolOpacity=1))


def shape_by(column: str, shapes: Mapping[str, str], present: Iterable[str]) -> alt.Shape:
    """Shape by the words of a column, with a legend of those that are there."""
    found = set(present)
    shown = [word for word in shapes if word in found]
    scale = alt.Scale(domain=shown, range=[shapes[word] for word in shown])
    return alt.Shape(f"{column}:N", scale=scale, legend=alt.Legend(title=None))


def register_shape(frame: pd.DataFrame) -> alt.Shape:
    """Shape by register, the same shape everywhere."""
    return shape_by("register", REGISTER_SHAPES, frame["register"])
