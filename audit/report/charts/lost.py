"""In which classes of tokens acceptance was lost: what the reference had right, and lost of it.

Counts gains too, or a class of many near-ties would look damaged: the bar is what is lost net.
"""

from __future__ import annotations

import altair as alt
import pandas as pd

from audit.report import wording
from audit.report.charts.base import (
    GREEN,
    RED,
    Drawing,
    base,
    drawing,
    nothing,
    padded,
    percent_axis,
    span_scale,
)
from audit.report.charts.points import LABEL
from audit.table import Frame
from audit.words import some

NAME = "lost-by-class"
NEEDED = ("oracle_class", "ref_accepts", "cand_accepts")
"""Columns of the position table that the chart reads."""
_ROW_HEIGHT, _FRAME = 24, 24
_ROOM = 0.25
"""Share of the axis for the words after the longest bar."""
_FEWEST = 5
"""Acceptances of the reference that a class needs for a share to mean anything."""


def lost_by_class(positions: Frame) -> Drawing:
    """Share of the reference's acceptances that is lost, per class of the verifier's token.

    Args:
        positions: the rows of one candidate.
    """
    title = "In which classes of tokens acceptance is lost"
    known = positions[positions["oracle_class"].notna()]
    if known.empty:
        return nothing(NAME, title, "no tokenizer was known, so tokens have no class")
    rows = _rows(known)
    few = list(rows.loc[rows["had"] < _FEWEST, "class"])
    rows = rows[rows["had"] >= _FEWEST].reset_index(drop=True)
    if rows.empty:
        return nothing(NAME, title, f"the reference was right {_FEWEST} times in no class")
    worst = rows.iloc[0]
    title = f"Nothing is lost of {worst['class']} tokens, nor of any other class"
    if worst["lost"] > 0:
        title = f"Most is lost of {worst['class']} tokens: {worst['told']}"
    low, high = min(0.0, rows["share"].min()), max(0.0, rows["share"].max())
    left, right = padded(low, high, _ROOM)
    domain = (left if low < 0 else 0.0, right)
    order = alt.Y("class:N", sort=list(rows["class"]), axis=alt.Axis(title=None, grid=False))
    across = alt.X("share:Q", scale=span_scale(domain), axis=percent_axis(
        "lost, % of the reference's acceptances of the class"))  # fmt: skip
    tips = [alt.Tooltip("class:N"), alt.Tooltip("told:N", title="lost")]
    bars = base(rows).mark_bar().encode(
        x=across, x2="zero:Q", y=order, color=alt.Color("colour:N", scale=None), tooltip=tips
    )  # fmt: skip
    words = base(rows).mark_text(align="left", dx=5, fontSize=10, color=LABEL).encode(
        x="end:Q", y=order, text="told:N"
    )  # fmt: skip
    notes = [f"Left out, with fewer than {_FEWEST} acceptances: {some(few)}."] if few else []
    told = "; ".join(f"{row['class']} {row['told']}" for _, row in rows.iterrows())
    data = rows[["class", "had", "lost", "share"]]
    height = _ROW_HEIGHT * len(rows) + _FRAME
    return drawing(NAME, title, [bars, words], f"{title}. {told}.", data, notes, height)


def _rows(known: Frame) -> pd.DataFrame:
    """One row per class, the largest share lost first."""
    sums = known.groupby(known["oracle_class"].astype("str"))[["ref_accepts", "cand_accepts"]].sum()
    had = sums["ref_accepts"].astype("int64")
    lost = had - sums["cand_accepts"].astype("int64")
    share = lost / had.clip(lower=1)
    rows = pd.DataFrame(
        {
            "class": [wording.clean(name) for name in sums.index],
            "had": had.to_numpy(), "lost": lost.to_numpy(), "share": share.to_numpy(float),
            "zero": 0.0, "end": share.clip(lower=0.0).to_numpy(float),
        }
    )  # fmt: skip
    rows["colour"] = [RED if value > 0 else GREEN for value in rows["lost"]]
    rows["told"] = [
        f"{n:,} of {of:,}, {wording.number('retention', value)}"
        for n, of, value in zip(rows["lost"], rows["had"], rows["share"], strict=True)
    ]
    return rows.sort_values(["share", "class"], ascending=[False, True]).reset_index(drop=True)
