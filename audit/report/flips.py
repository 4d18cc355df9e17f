"""The costliest flips: where the reference was right and sure, and the candidate was not."""

from __future__ import annotations

from audit.report.wording import clean
from audit.table import Frame

HEADER = (
    "candidate", "corpus", "sequence", "position", "token", "oracle", "ref", "cand", "ref margin",
)  # fmt: skip


def costliest_flips(frame: Frame, limit: int) -> tuple[tuple[str, ...], list[list[str]]]:
    """Rows of the `limit` disagreements with the largest reference margin where acceptance was
    lost, as text; all ids are target ids."""
    lost = frame[frame["disagree"] & frame["ref_accepts"]]
    worst = lost.nlargest(limit, "ref_margin")
    columns = ["candidate", "corpus", "sequence", "position", "token", "oracle", "ref", "cand"]
    lines = [
        [*(clean(str(row[name])) for name in columns), f"{row['ref_margin']:.2f}"]
        for _, row in worst.iterrows()
    ]
    return HEADER, lines
