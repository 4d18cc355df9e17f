"""Size against loss over several heads: what bytes buy, and which heads no other one beats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from audit.records import Candidate, HeadRecord
from audit.report import wording
from audit.report.charts.base import (
    HEIGHT,
    PINK,
    RED,
    WIDTH,
    Drawing,
    base,
    drawing,
    nothing,
    padded,
    percent_axis,
)
from audit.report.charts.labels import Plane
from audit.report.charts.points import (
    LABEL,
    axes_layer,
    interval_layers,
    label_layers,
    marks,
    short,
    span,
    thresholds_of,
)
from audit.report.tables import worst_retention

NAME = "size-against-loss"
_Y = "loss on the worst corpus, points"
_MEBI = 2**20


def size_against_loss(
    candidates: Sequence[Candidate], reference: HeadRecord | None = None
) -> Drawing:
    """One mark per head: its stored size, and what it loses on its worst corpus.

    Args:
        candidates: heads of one reference on the same traces; who calls sees to that.
        reference: drawn where it stands, at no loss.
    """
    title = "Stored size against the loss on the worst corpus"
    heads = marks([row for c in candidates if (row := _row(c)) is not None])
    if heads.empty:
        return nothing(NAME, title, "no head has both a stored size and a retention")
    best = _unbeaten(heads, _size(reference))
    if len(heads) > 1:
        title = "No head is both smaller and better than " + ", ".join(best["label"])
    if best.empty:
        title = "No head is smaller than the reference, which loses nothing"
    held = [limit for c in candidates if c.gate for limit in c.gate.limits]
    limits = thresholds_of([x for x in held if x.measure == "retention" and not x.token_class])
    high = max([span([heads], "y")[1], *(1 - limit for limit in limits)])
    right = max(span([heads], "x")[1], _size(reference) or 0.0)
    low = min(span([heads], "y")[0], 0.0)
    plane = Plane((0.0, padded(0, right, 0.12)[1]), padded(low, high), WIDTH, HEIGHT)
    across = alt.Axis(title="stored size, MiB", format="~g")
    layers = [
        axes_layer(plane, across, percent_axis(_Y, signed=True)),
        *_limit_rules(limits, plane),
        base(best[["x", "y"]]).mark_line(color=PINK, opacity=0.4, interpolate="step-after")
        .encode(x="x:Q", y="y:Q"),
        *_reference_mark(reference),
        *interval_layers(heads, PINK),
        base(heads).mark_point(filled=True, size=110, opacity=1, color=PINK).encode(
            x="x:Q", y="y:Q", tooltip=_TIPS),
        *label_layers(heads, heads.head(0), plane),
    ]  # fmt: skip
    told = "; ".join(
        f"{row['name']}: {row['x']:.1f} MiB, loses {wording.number('shift_loss', row['y'])} on "
        f"{row['register']}"
        for _, row in heads.iterrows()
    )
    data = heads[["name", "kind", "x", "y", "register"]].rename(
        columns={"name": "head", "kind": "stored as", "x": "mebibytes", "y": "loss",
                 "register": "corpus"}
    )  # fmt: skip
    return drawing(NAME, title, layers, f"{title}. {told}.", data)


_TIPS = [alt.Tooltip("name:N", title="head"), alt.Tooltip("kind:N", title="stored as"),
         alt.Tooltip("x:Q", title="MiB", format=",.1f"),
         alt.Tooltip("y:Q", title="loss", format=".1%"),
         alt.Tooltip("register:N", title="worst on")]  # fmt: skip


def _row(candidate: Candidate) -> dict[str, Any] | None:
    worst = worst_retention(candidate.estimates)
    size = _size(candidate.head)
    if worst is None or worst.value is None or size is None:
        return None
    return {
        "x": size, "y": 1 - worst.value,
        "y_low": None if worst.high is None else 1 - worst.high,
        "y_high": None if worst.low is None else 1 - worst.low,
        "name": wording.clean(candidate.head.name), "label": short(candidate.head.name),
        "register": wording.clean(worst.corpus or ""), "family": "candidate",
        "kind": wording.clean(candidate.head.encoding),
    }  # fmt: skip


def _size(head: HeadRecord | None) -> float | None:
    return None if head is None or head.stored_bytes is None else head.stored_bytes / _MEBI


def _unbeaten(heads: pd.DataFrame, reference: float | None) -> pd.DataFrame:
    """Heads that no other one beats in size and loss at once, the smallest first; what is not
    smaller than the reference is beaten by it unless it loses nothing."""
    ordered = heads.sort_values(["x", "y"], kind="stable")
    best = ordered["y"].cummin().shift(fill_value=float("inf"))
    if reference is not None:
        best = best.where(ordered["x"] < reference, best.clip(upper=0.0))
    return ordered[ordered["y"] < best]


def _reference_mark(reference: HeadRecord | None) -> list[alt.Chart]:
    size = _size(reference)
    if size is None:
        return []
    frame = pd.DataFrame({"x": [size], "y": [0.0], "label": ["reference"]})
    return [
        base(frame).mark_point(shape="diamond", filled=True, size=90, color=LABEL)
        .encode(x="x:Q", y="y:Q"),
        base(frame).mark_text(dy=-10, fontSize=10, color=LABEL)
        .encode(x="x:Q", y="y:Q", text="label:N"),
    ]  # fmt: skip


def _limit_rules(limits: Sequence[float], plane: Plane) -> list[alt.Chart]:
    if not limits:
        return []
    frame = pd.DataFrame(
        {"x": plane.x[1], "y": [1 - limit for limit in limits],
         "label": [f"limit: R at least {100 * limit:g} %" for limit in limits]}
    )  # fmt: skip
    return [
        base(frame).mark_rule(color=RED, strokeDash=[5, 3]).encode(y="y:Q"),
        base(frame).mark_text(align="right", dy=-6, fontSize=10, color=LABEL)
        .encode(x="x:Q", y="y:Q", text="label:N"),
    ]  # fmt: skip
