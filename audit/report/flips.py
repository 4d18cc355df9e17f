"""The costliest flips: where the reference was right and sure, and the candidate was not."""

from __future__ import annotations

import numpy as np

from audit.report.tables import Table
from audit.report.token_text import TokenText
from audit.report.wording import clean
from audit.table import Frame

HEADER = (
    "candidate", "corpus", "sequence", "position", "token", "oracle", "ref", "cand", "ref margin",
)  # fmt: skip
_COLUMNS = ["candidate", "corpus", "sequence", "position", "token", "oracle", "ref", "cand"]
_IDS = (4, 5, 6, 7)
"""Places of the token ids."""


def costliest_flips(frame: Frame, limit: int) -> tuple[tuple[str, ...], list[list[str]]]:
    """Rows of the `limit` disagreements with the largest reference margin where acceptance was
    lost, as text; all ids are target ids. Without margins there is no order, so no rows."""
    lost = frame[frame["disagree"] & frame["ref_accepts"]].reset_index(drop=True)
    margins = lost["ref_margin"].astype(np.float64)
    worst = lost.assign(margin=margins)[np.isfinite(margins)].nlargest(limit, "margin")
    lines = [
        [*(clean(str(row[name])) for name in _COLUMNS), f"{row['margin']:.2f}"]
        for row in worst.to_dict("records")
    ]
    return HEADER, lines


def flips_table(frame: Frame, limit: int, text: TokenText | None = None) -> Table:
    """The same as a table of a report, with the tokens' text beside their ids where it is known."""
    header, lines = costliest_flips(frame, limit)
    if text is None:
        return Table(header, tuple(map(tuple, lines)), numbers=(2, 3, *_IDS, 8))
    told = [
        tuple(text(int(cell)) if place in _IDS else cell for place, cell in enumerate(line))
        for line in lines
    ]
    return Table(header, tuple(told), numbers=(2, 3, 8))
