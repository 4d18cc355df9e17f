"""Several sizes of one trim, measured in one pass over the reference.

A trimmed head's logits are rows of the reference's, so no size costs a product (`compare.parts`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from audit.anchor import check_anchor, settle_anchors
from audit.blocks import BlockHead
from audit.estimates import Facts, estimate_some
from audit.files import row_bytes
from audit.heads import Head
from audit.heads.head import trim_rows
from audit.heads.tokens import Tokens
from audit.measure import Measured, measure_trace, valid_ids
from audit.records import Control, Estimate
from audit.records.base import Record
from audit.stats import Resampling
from audit.traces import Trace
from audit.trims.emitted import Ids

Progress = Callable[[str, int, int], None]
MEASURES = ("vocabulary_ceiling", "acceptance_ref", "acceptance_cand", "retention")


class Size(Record):
    """One size of a trim, and how it fares."""

    name: str
    rows: int
    head_bytes: int
    """Of the projection's rows, in the encoding asked for."""
    row_ratio: float
    """Rows of the reference for each row kept."""
    estimates: list[Estimate]


@dataclass(frozen=True, slots=True)
class Swept:
    """All sizes, and whether the states were the reference's own."""

    sizes: list[Size]
    anchors: list[Control]


def sweep(
    ref: Head,
    trims: Sequence[tuple[str, Ids]],
    traces: Sequence[Trace],
    how: Resampling,
    *,
    encoding: str | None = None,
    tokens: Tokens | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Swept:
    """Measure trims of `ref`.

    Args:
        trims: name and ids, in any order, of each.
        encoding: of the trimmed rows, for their size; by default the reference's.
        tokens: where given, the position tables know the classes of tokens.

    Raises:
        MismatchError: the states are not this head's.
    """
    heads = [trimmed(ref, ids, name) for name, ids in trims]
    measured, anchors = list[Measured](), list[Control]()
    for trace in traces:

        def tick(done: int, total: int, what: str = f"sweep on {trace.info.corpus}") -> None:
            if progress:
                progress(what, done, total)

        result = measure_trace(ref, heads, trace, tokens=tokens, device=device, progress=tick)
        anchors.append(check_anchor(ref, trace, result, valid_ids(ref, trace)))
        measured.append(result)
    valid = min(valid_ids(ref, trace) for trace in traces)
    anchors = settle_anchors(ref, anchors, measured, valid)
    sizes = []
    for i, head in enumerate(heads):
        frames = [result.frames[i] for result in measured]
        estimates = estimate_some(MEASURES, frames, Facts(trimmed=True), how)
        sizes.append(_size(ref, head, encoding, estimates))
    return Swept(sizes, anchors)


def trimmed(ref: Head, ids: Ids, name: str) -> Head:
    """The reference's own rows for `ids`, in memory."""
    record = ref.record.model_copy(update={"name": name, "rows": len(ids)})
    return trim_rows(ref, torch.from_numpy(ids), record)


def head_bytes(ref: Head, rows: int, encoding: str | None) -> int:
    """Bytes of so many rows, in `encoding` or as the reference stores them."""
    if encoding:
        return rows * row_bytes(encoding, ref.rows.columns)
    record = ref.projection if isinstance(ref, BlockHead) else ref.record
    return round((record.stored_bytes or 0) / max(ref.rows.count, 1) * rows)


def _size(ref: Head, head: Head, encoding: str | None, estimates: list[Estimate]) -> Size:
    rows = len(head.ids)
    return Size(
        name=head.record.name,
        rows=rows,
        head_bytes=head_bytes(ref, rows, encoding),
        row_ratio=ref.rows.count / rows,
        estimates=estimates,
    )
