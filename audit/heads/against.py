"""A candidate's rows beside its reference's: what no cut does, or does without saying.

Codes: SCALE_SUSPECT, OTHER_MODEL, ODD_ROWS, DEAD_ROWS, BLOCK_COLLAPSE, PRUNED_COLUMNS,
FLAT_COLUMNS. The two scans have looked at every weight; only directions are compared on a sample of
rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from audit.heads.head import Head, find_ids
from audit.heads.scan import HeadScan
from audit.heads.told import Found
from audit.words import count, some

_NORM_RATIO = (0.5, 2.0)
"""A cut moves row norms by per cents; outside this a scale was dropped or applied twice."""
_UNLIKE = 0.1
"""Median cosine below which rows share nothing: 2 bits per weight still leave 0.7."""
_SAMPLE = 256
_EMPTY, _FULL = 0.9, 0.1
"""Shares of zero weights: a half that is so empty beside a reference that is so full collapsed."""
_FEW = 0.1
"""Share of rows: a cut changes nearly all of them, a trim none."""
_SHOWN = 5


def check_rows(ref: Head, ref_scan: HeadScan, cand: Head, cand_scan: HeadScan) -> Found:
    """What the rows of `cand` show beside those of `ref`."""
    if cand.adapt is ref.adapt:  # rows of factors or of fewer channels are not comparable
        slot, shared = _shared_rows(ref, cand)
        yield from norm_ratio(ref_scan.norms[slot], cand_scan.norms[shared], "row norms are")
        yield from _directions(ref, cand, slot, shared)
        yield from _odd_rows(ref_scan.norms[slot], cand_scan.norms[shared], cand.ids[shared])
    yield from _dead_rows(ref, ref_scan, cand, cand_scan)
    yield from _columns(ref_scan, cand_scan)


def norm_ratio(before: Tensor, after: Tensor, what: str) -> Found:
    """SCALE_SUSPECT where the norms of rows [n] left the range that a cut leaves them in."""
    alive = (before > 0) & (after > 0)
    if not bool(alive.any()):
        return
    ratio = float((after[alive] / before[alive]).median())
    if not _NORM_RATIO[0] < ratio < _NORM_RATIO[1]:
        yield (
            "SCALE_SUSPECT",
            "warning",
            f"{what} {ratio:.3g} times the reference's in the median: a scale was dropped "
            "or applied twice; one factor for all rows changes no greedy token, but probabilities",
        )


def unlike(before: Tensor, after: Tensor) -> float | None:
    """Median cosine of rows [n, k] where it says that they share nothing; None where they do."""
    cosines = torch.nn.functional.cosine_similarity(before.float(), after.float(), dim=1)
    median = float(cosines.median()) if len(cosines) else 1.0
    return median if median < _UNLIKE else None


def collapsed_half(ref_zeros: Tensor, cand_zeros: Tensor) -> tuple[str, float, float] | None:
    """Which half of the columns rounded to nothing, and the shares of zeros in it, cand and ref.

    Args:
        ref_zeros, cand_zeros: share of zero weights in each column [columns].
    """
    half = len(cand_zeros) // 2
    for name, part in (("first", slice(None, half)), ("second", slice(half, None))):
        if not len(cand_zeros[part]):
            continue
        ours, theirs = float(cand_zeros[part].mean()), float(ref_zeros[part].mean())
        if ours >= _EMPTY and theirs <= _FULL:
            return name, ours, theirs
    return None


def collapse_words(found: tuple[str, float, float], columns: int, where: str = "") -> str:
    """The sentence of BLOCK_COLLAPSE."""
    name, ours, theirs = found
    return (
        f"{100 * ours:.0f} % of the weights in the {name} half of the {columns} columns{where} are "
        f"zero, in the reference {100 * theirs:.0f} %: the quantizer's scale was too coarse for "
        "it; use scales per group, or int8"
    )


def _directions(ref: Head, cand: Head, slot: Tensor, shared: Tensor) -> Found:
    if not len(slot) or ref.rows.columns != cand.rows.columns:
        return
    pick = torch.linspace(0, len(slot) - 1, min(_SAMPLE, len(slot))).long()
    median = unlike(ref.rows.gather(slot[pick]), cand.rows.gather(shared[pick]))
    if median is not None:
        yield (
            "OTHER_MODEL",
            "warning",
            f"its rows have nothing in common with the reference's rows of the same ids (median "
            f"cosine {median:.2f}): another model's tensor, a wrong map, or an inverted sign",
        )


def _odd_rows(before: Tensor, after: Tensor, ids: Tensor) -> Found:
    """ODD_ROWS where nearly all rows kept their norm [n] to the last bit, but a few did not."""
    odd = (before != after) & (after > 0)
    if 0 < int(odd.sum()) <= _FEW * len(ids):
        yield (
            "ODD_ROWS",
            "warning",
            f"of {len(ids):,} rows all but {int(odd.sum())} are the reference's (ids "
            f"{some(ids[odd].tolist(), _SHOWN)} are not): a wrong id in the map, or damage",
        )


def _dead_rows(ref: Head, ref_scan: HeadScan, cand: Head, cand_scan: HeadScan) -> Found:
    slot, shared = _shared_rows(ref, cand)
    new = cand_scan.dead_rows[shared] & ~ref_scan.dead_rows[slot]
    if bool(new.any()):
        ids = cand.ids[shared][new].tolist()
        yield (
            "DEAD_ROWS",
            "warning",
            f"{count(len(ids), 'row')} of zeros where the reference has none "
            f"(ids {some(ids, _SHOWN)}): these tokens win only where all other logits are negative",
        )


def _columns(ref_scan: HeadScan, cand_scan: HeadScan) -> Found:
    columns = len(cand_scan.dead_columns)
    if len(ref_scan.dead_columns) != columns:
        return
    collapsed = collapsed_half(ref_scan.zero_share, cand_scan.zero_share)
    if collapsed:
        yield "BLOCK_COLLAPSE", "warning", collapse_words(collapsed, columns)
        return
    dead = cand_scan.dead_columns & ~ref_scan.dead_columns
    several = len(cand_scan.norms) > 1  # every column of a single row holds one value
    flat = cand_scan.flat_columns & ~ref_scan.flat_columns & ~dead & several
    if bool(dead.any()):
        told = f"{int(dead.sum())} of {columns} columns are zero in every row"
        yield "PRUNED_COLUMNS", "note", told
    if bool(flat.any()):
        yield (
            "FLAT_COLUMNS",
            "warning",
            f"{int(flat.sum())} of {columns} columns hold one value in every row, in the reference "
            "they do not: they add the same to every logit, so what they told is lost",
        )


def _shared_rows(ref: Head, cand: Head) -> tuple[torch.Tensor, torch.Tensor]:
    """Row numbers in ref and in cand of the ids both have."""
    slot, known = find_ids(ref.ids, cand.ids)
    shared = known.nonzero().squeeze(1)
    return slot[shared], shared
