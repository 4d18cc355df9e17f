"""How KL and flip margins are spread over positions: aggregated before anything is drawn.

A mean hides whether all positions move a little or a few move far; these two show which.
"""

from __future__ import annotations

import math

import altair as alt
import numpy as np
import pandas as pd

from audit.report import wording
from audit.report.charts.base import (
    GREY,
    PINK,
    REGISTERS,
    Drawing,
    base,
    drawing,
    nothing,
)
from audit.stats import Floats
from audit.table import Frame

_POINTS = 200
_SMALLEST = 1e-6
"""Nats below which a divergence is rounding."""
_BINS = 40
_DASHES = {"in distribution": [1, 0], "same register": [6, 3], "domain shift": [2, 2]}
NEEDED = ("register", "kl_nats", "ref_margin", "disagree")
"""Columns of the position table that these charts read."""


def kl_spread(positions: Frame) -> Drawing:
    """Share of positions with at most so much KL, per register, on a logarithmic axis.

    Args:
        positions: the rows of one candidate.
    """
    name, title = "kl-spread", "How KL(ref || cand) is spread over positions"
    curves, parts = [], []
    word, middle = "", 0.0
    for register in positions["register"].unique():
        values = _numbers(positions.loc[positions["register"] == register, "kl_nats"])
        if len(values):
            word = wording.REGISTER_WORDS[register]
            curves.append(_curve(values).assign(register=word))
            middle, tail = np.quantile(values, [0.5, 0.99])
            small = 100 * float((values < _SMALLEST).mean())
            told = f", {small:.1f} % of positions under a millionth" if small else ""
            parts.append(f"{word}: median {middle:.2g} nats, 99 % below {tail:.2g}{told}")
    if not curves:
        return nothing(name, title, "KL was not measured; audit compare --kl measures it")
    frame = pd.concat(curves, ignore_index=True)
    title = f"Half of the positions ({word}) have a KL above {middle:.2g} nats"
    decades = _decades(frame["kl"])
    axes = {
        "x": alt.X("kl:Q", scale=alt.Scale(type="log", domain=[decades[0], decades[-1]]),
                   axis=alt.Axis(title="KL(ref || cand), nats", format="~g", values=decades)),
        "y": alt.Y("share:Q", scale=alt.Scale(domain=[0, 1]),
                   axis=alt.Axis(title="share of positions with at most this KL", format="%")),
    }  # fmt: skip
    shown = [word for word in REGISTERS if word in set(frame["register"])]
    scale = alt.Scale(domain=shown, range=[_DASHES[word] for word in shown])
    dash = alt.StrokeDash("register:N", scale=scale, legend=alt.Legend(title=None))
    line = (
        base(frame).mark_line(interpolate="step-after", color=PINK).encode(**axes, strokeDash=dash)
    )
    return drawing(name, title, [line], f"{title}. {'; '.join(parts)}.", frame, parts)


def _curve(values: Floats) -> pd.DataFrame:
    """The empirical distribution function at evenly spaced shares, with both its ends."""
    ordered = np.sort(np.maximum(values, _SMALLEST))
    places = np.unique(np.linspace(0, len(ordered) - 1, _POINTS).astype(int))
    # At ties the function takes its upper value.
    share = np.searchsorted(ordered, ordered[places], side="right") / len(ordered)
    return pd.DataFrame({"kl": ordered[places], "share": share})


def _decades(values: pd.Series[float]) -> list[float]:
    """Powers of ten round the values."""
    low, high = math.log10(float(values.min())), math.log10(float(values.max()))
    return [10.0**power for power in range(math.floor(low), math.ceil(high + 0.01) + 1)]


def flip_margins(positions: Frame) -> Drawing:
    """Where on the reference's margin the flips lie, beside the agreements.

    Args:
        positions: the rows of one candidate.
    """
    name, title = "flip-margins", "The reference's margin at flips and at agreements"
    flips = positions["disagree"].to_numpy(bool)
    margins = {
        "flips": _numbers(positions.loc[flips, "ref_margin"]),
        "agreements": _numbers(positions.loc[~flips, "ref_margin"]),
    }
    if not len(margins["flips"]):
        reason = "the reference's margins are not known" if flips.any() else "there is no flip"
        return nothing(name, title, reason)
    halves = {word: float(np.median(found)) for word, found in margins.items() if len(found)}
    title = f"Half of the {len(margins['flips']):,} flips have a margin below {halves['flips']:.2g}"
    if "agreements" in halves:
        title += f"; half of the agreements, below {halves['agreements']:.2g}"
    frame = _histogram(margins)
    colour = alt.Color(
        "where:N", scale=alt.Scale(domain=["flips", "agreements"], range=[PINK, GREY]),
        legend=alt.Legend(title=None),
    )  # fmt: skip
    across = "reference's best minus second logit; the last bin holds all beyond"
    axes = {
        "x": alt.X("low:Q", scale=alt.Scale(nice=False), axis=alt.Axis(title=across)),
        "x2": "high:Q",
        "y": alt.Y("share:Q", axis=alt.Axis(title="share of its positions per bin", format="%")),
    }  # fmt: skip
    bars = base(frame).mark_rect(opacity=0.55).encode(
        **axes, y2=alt.value("height"), color=colour
    )  # fmt: skip
    note = "Near-ties flip by rounding; flips at large margins are what compression broke."
    return drawing(name, title, [bars], f"{title}. {note}", frame, [note])


def _histogram(margins: dict[str, Floats]) -> pd.DataFrame:
    """Share of each group per bin; the last bin holds everything beyond."""
    together = np.concatenate(list(margins.values()))
    edges = np.linspace(0.0, float(np.quantile(together, 0.98)) or 1.0, _BINS + 1)
    frames = []
    for word, found in margins.items():
        if len(found):
            counts, _ = np.histogram(np.clip(found, edges[0], edges[-1]), edges)
            share = counts / len(found)
            frames.append(
                pd.DataFrame({"low": edges[:-1], "high": edges[1:], "share": share, "where": word})
            )
    return pd.concat(frames, ignore_index=True)


def _numbers(column: pd.Series[float]) -> Floats:
    """The finite values as float64; empty where nothing was measured."""
    values = pd.to_numeric(column, errors="coerce").to_numpy(np.float64)
    kept: Floats = values[np.isfinite(values)]
    return kept
