"""The rows of the page Heads: one per candidate, in words of `report.wording`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from audit.dashboard.store import Facts, Loss
from audit.ledger import CandidateRow, RunRow
from audit.prediction import Prediction
from audit.records import Estimate
from audit.report import wording
from audit.report.wording import clean

WAITING, REVIEWED, ALL = "waiting", "reviewed", "all"
COLUMNS = (
    "head", "verdict", "gate", "worst retention", "interval", "on", "predicted loss",
    "measured loss", "size", "saved", "review", "made", "reference", "run",
)  # fmt: skip
NUMBERS = ("worst retention", "size", "saved")
LOSSES = ("predicted loss", "measured loss")
"""Numbers, or the reason why there is none."""
_MINUTES = len("2026-12-31T23:59")
NOT_JUDGED, WAITS = "not judged", "waits"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which candidates of the runs found are listed; runs were filtered before."""

    verdict: str | None
    gate: str | None
    head: str | None
    reviewed: bool | None

    def fits(self, row: CandidateRow) -> bool:
        """Whether this candidate itself is meant, not only another one of its run."""
        return (
            self.verdict in (None, row.verdict)
            and self.gate in (None, row.gate or "none")
            and (self.head is None or self.head.lower() in row.name.lower())
            and self.reviewed in (None, row.reviews > 0)
        )


def listed(runs: Sequence[RunRow], wanted: Wanted) -> list[tuple[RunRow, CandidateRow]]:
    """The candidates that fit, the newest run first."""
    return [(run, one) for run in runs for one in run.candidates if wanted.fits(one)]


def head_frame(
    members: Sequence[tuple[RunRow, CandidateRow]], facts: Callable[[str], Facts]
) -> pd.DataFrame:
    """The table of the page, as text; `facts` tells by a run's id what the index does not."""
    rows = []
    for run, one in members:
        known = facts(run.run)
        found = known.losses.get(one.head_sha256, Loss(None, None))
        rows.append(
            (
                clean(one.name), one.verdict, one.gate or NOT_JUDGED,
                wording.number("retention", one.worst_retention), _interval(one),
                clean(one.worst_corpus or "–"),
                _loss(found.predicted, "no study", "no prediction"),
                _loss(found.measured, "not measured", "not measured"),
                wording.size(one.stored_bytes), saved(one.stored_bytes, known.reference_bytes),
                f"{one.decision} by {clean(one.reviewer or '')}" if one.decision else WAITS,
                clean(run.created)[:_MINUTES].replace("T", " "), clean(run.reference_name),
                clean(run.run) + (" (files missing)" if run.missing else ""),
            )
        )  # fmt: skip
    frame = pd.DataFrame(rows, columns=list(COLUMNS), dtype="str")
    return sortable(frame, (*NUMBERS, *LOSSES))


def sortable(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """With the numbers of these columns equally wide, so that text sorts as they would."""
    padded = {}
    for column in columns:
        cells = list(frame[column])
        widest = max((len(cell) for cell in cells if _is_number(cell)), default=0)
        padded[column] = [cell.rjust(widest) if _is_number(cell) else cell for cell in cells]
    return frame.assign(**padded)


def _is_number(cell: str) -> bool:
    return cell[:1].isdecimal() or cell[:2].strip("-")[:1].isdecimal()


def saved(stored: int | None, whole: int | None) -> str:
    """What share of the reference's bytes the head does without, or how much more it needs."""
    if stored is None or not whole:
        return "–"
    if stored >= 2 * whole:
        return f"none: {stored / whole:.1f} × as large"
    if stored > whole:
        return f"none: {100 * (stored / whole - 1):.0f} % larger"
    return f"{100 * (1 - stored / whole):.0f} %"


def _interval(row: CandidateRow) -> str:
    if row.worst_low is None or row.worst_high is None:
        return "no interval" if row.worst_retention is not None else "–"
    ends = (wording.number("retention", end) for end in (row.worst_low, row.worst_high))
    return " to ".join(ends)


def _loss(found: Prediction | Estimate | None, absent: str, unknown: str) -> str:
    """A loss, or why there is none: it was not asked for, or could not be told."""
    if found is None:
        return absent
    if found.value is None:
        return clean(found.reason or unknown)
    return wording.number("shift_loss", found.value)
