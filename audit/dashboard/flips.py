"""Where two heads disagree, as rows of the page Tokens: filtered, ordered by cost, in their text.

A flip costs most where the reference was right and sure; the order is its margin, as in
`report.flips`. Works on position tables and knows no page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from audit.dashboard.rows import sortable
from audit.report.token_text import TokenReader
from audit.report.wording import clean
from audit.table import Frame

COLUMNS = (
    "candidate", "corpus", "register", "sequence", "position", "token", "oracle", "oracle_class",
    "ref", "cand", "ref_margin", "cand_margin", "disagree", "ref_accepts", "cand_accepts",
    "cand_rank",
)  # fmt: skip
LOST, GAINED, NEITHER, EVERY = "lost", "gained", "neither right", "all flips"
OUTCOMES = {
    LOST: "the reference proposed the verifier's token, the candidate did not",
    GAINED: "the candidate proposed the verifier's token, the reference did not",
    NEITHER: "both proposed something else",
    EVERY: "all positions where the two propose different tokens",
}
NO_CLASS = "unknown"
_CONTEXT, _LONG_CONTEXT = 12, 64
_AHEAD = {"mtp": 2, "eagle3": 2}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which flips are shown; None: any."""

    corpus: str | None
    token_class: str | None
    margin: float
    outcome: str


def flips_of(table: Frame, candidate: str) -> Frame:
    """All flips of one candidate, the costliest first, with their outcome in a word."""
    found = table[(table["candidate"] == candidate) & table["disagree"]]
    ref, cand = (found[f"{side}_accepts"].to_numpy(bool) for side in ("ref", "cand"))
    outcome = np.select([ref & ~cand, cand & ~ref], [LOST, GAINED], NEITHER)
    classes = found["oracle_class"].astype("object")
    found = found.assign(
        outcome=outcome,
        oracle_class=classes.where(classes.notna(), NO_CLASS),
        ref_margin=_numbers(found["ref_margin"]),
        cand_margin=_numbers(found["cand_margin"]),
    )
    return found.sort_values("ref_margin", ascending=False, kind="stable", na_position="last")


def filtered(flips: Frame, wanted: Wanted) -> Frame:
    """The flips that are wanted; those without a margin count only where none is asked for."""
    keep = np.ones(len(flips), bool)
    if wanted.outcome != EVERY:
        keep &= flips["outcome"].to_numpy(object) == wanted.outcome
    if wanted.corpus is not None:
        keep &= (flips["corpus"] == wanted.corpus).to_numpy(bool)
    if wanted.token_class is not None:
        keep &= flips["oracle_class"].to_numpy(object) == wanted.token_class
    if wanted.margin > 0:
        keep &= flips["ref_margin"].to_numpy(float) >= wanted.margin
    return flips[keep]


def most_lost(flips: Frame, table: Frame, candidate: str, limit: int) -> Frame:
    """The verifier's tokens that were lost most often.

    Returns:
        Columns oracle, lost, and reference: how often the reference proposed the token rightly.
    """
    lost = flips.loc[flips["outcome"] == LOST, "oracle"].value_counts()
    right = table.loc[(table["candidate"] == candidate) & table["ref_accepts"], "oracle"]
    had = right.value_counts()
    frame = pd.DataFrame({"oracle": lost.index.to_numpy(), "lost": lost.to_numpy()})
    frame["reference"] = had.reindex(frame["oracle"]).fillna(0).astype("int64").to_numpy()
    order = frame.sort_values(["lost", "reference", "oracle"], ascending=[False, True, True])
    return order.head(limit).reset_index(drop=True)


def flip_frame(page: Frame, table: Frame, kind: str, reader: TokenReader | None) -> pd.DataFrame:
    """Rows of the page as text: the text before, what was wanted, what each head proposed.

    Args:
        page: the rows of `flips_of` to show, few.
        table: the position table they are of, for the text before.
        kind: the head's, which tells how many tokens ahead it proposes.
    """
    say = _saying(reader)
    before = [context(table, row, kind, reader, _CONTEXT) for row in page.to_dict("records")]
    frame = pd.DataFrame(
        {
            "text before": before,
            "verifier wanted": [say(id_) for id_ in page["oracle"]],
            "reference": [say(id_) for id_ in page["ref"]],
            "its margin": [_shown(value) for value in page["ref_margin"]],
            "candidate": [say(id_) for id_ in page["cand"]],
            "margin there": [_shown(value) for value in page["cand_margin"]],
            "outcome": list(page["outcome"]),
            "class": [clean(str(word)) for word in page["oracle_class"]],
            "corpus": [clean(str(word)) for word in page["corpus"]],
            "place": [f"{s}:{p}" for s, p in zip(page["sequence"], page["position"], strict=True)],
        },
        dtype="str",
    )
    return sortable(frame, ("its margin", "margin there"))


def context(
    table: Frame, row: Mapping[Any, Any], kind: str, reader: TokenReader | None, length: int
) -> str:
    """The last tokens that the verifier had read before the token in question."""
    ahead = ahead_of(kind)
    same = (
        (table["candidate"] == row["candidate"])
        & (table["corpus"] == row["corpus"])
        & (table["sequence"] == row["sequence"])
    ).to_numpy(bool)
    place, last = table["position"].to_numpy(), int(row["position"]) + ahead - 1
    near = table[same & (place <= last) & (place > last - length)].sort_values("position")
    ids = [int(id_) for id_ in near["token"]]
    missing = "…" if not len(near) or int(near["position"].iloc[-1]) < last else ""
    text = reader.many(ids) if reader else " ".join(map(str, ids))
    return text + missing


def long_context(
    table: Frame, row: Mapping[Any, Any], kind: str, reader: TokenReader | None
) -> str:
    """More of it, for a single flip."""
    return context(table, row, kind, reader, _LONG_CONTEXT)


def at_position(table: Frame, row: Mapping[Any, Any]) -> Frame:
    """What every candidate of the run proposed at the same position."""
    same = np.ones(len(table), bool)
    for name in ("corpus", "sequence", "position"):
        same &= (table[name] == row[name]).to_numpy(bool)
    return table[same]


def lost_frame(lost: Frame, reader: TokenReader | None) -> pd.DataFrame:
    """The tokens most often lost, as text."""
    say = _saying(reader)
    share = 100 * lost["lost"] / lost["reference"].clip(lower=1)
    frame = pd.DataFrame(
        {
            "verifier's token": [say(id_) for id_ in lost["oracle"]],
            "lost": [f"{n:,}" for n in lost["lost"]],
            "reference had": [f"{n:,}" for n in lost["reference"]],
            "share lost": [f"{value:.1f} %" for value in share],
        },
        dtype="str",
    )
    return sortable(frame, ("lost", "reference had", "share lost"))


def ahead_of(kind: str) -> int:
    """How many tokens ahead of the one just read a head of this kind proposes."""
    name, _, number = kind.partition(":")
    if name == "medusa" and number.isdecimal():
        return int(number) + 2
    return _AHEAD.get(name, 1)


def _saying(reader: TokenReader | None) -> Callable[[int], str]:
    return (lambda id_: reader.one(int(id_))) if reader else (lambda id_: str(int(id_)))


def _shown(value: float) -> str:
    return "–" if not np.isfinite(value) else f"{value:.2f}"


def _numbers(column: pd.Series[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.asarray(pd.to_numeric(column, errors="coerce"), dtype=np.float64)


def classes_of(flips: Frame) -> Sequence[str]:
    """The classes of token that occur, sorted."""
    return sorted({str(word) for word in flips["oracle_class"].unique()})
