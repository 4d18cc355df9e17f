"""The position table: one row per position and candidate, and its sums per sequence.

A pandas frame, so that what only judges or shows needs no torch. Booleans and ids are exact;
margins and KL are float32 as measured. A column that could not be measured is None throughout
(proposals from elsewhere have no margins), never NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from audit.atomic import atomic_path
from audit.catalogue import COUNTS
from audit.errors import UnreadableError, first_line

COLUMNS: dict[str, str] = {
    "candidate": "string",
    "corpus": "string",
    "register": "string",
    "sequence": "int64",
    "position": "int64",
    "token": "int64",
    "oracle": "int64",
    "generated": "bool",
    "oracle_class": "string",
    "ref": "int64",
    "cand": "int64",
    "ref_margin": "float32",
    "cand_margin": "float32",
    "ref_tied": "bool",
    "cand_tied": "bool",
    "ref_rank": "int64",
    "cand_rank": "int64",
    "oracle_in_vocabulary": "bool",
    "ref_in_vocabulary": "bool",
    "tie_flip": "bool",
    "disagree": "bool",
    "ref_accepts": "bool",
    "cand_accepts": "bool",
    "kl_nats": "float32",
}
"""Column -> Arrow type. `ref` and `cand` are the proposed target ids; ranks are 1 for the best id,
0 where the head has no row for the oracle, null when unknown. `oracle_class` is one of
`catalogue.TOKEN_CLASSES`, null where no tokenizer is known. `generated`: the oracle answers to a
token that the model itself wrote; null where the trace does not mark them."""

Frame = pd.DataFrame


def position_frame(columns: dict[str, Any]) -> Frame:
    """Build the table of one candidate on one trace from its measured columns.

    Args:
        columns: every column of COLUMNS except the derived ones, arrays [N], scalars, or None.

    Derived: `disagree` (different ids and no tie flip), `ref_accepts`, `cand_accepts`. On a tie
    flip the candidate counts as accepting when the reference does: which of two equal ids wins is
    chance, and acceptance must differ only where the heads disagree, so that
    a_ref - a_cand = D H holds exactly.
    """
    ref, cand = np.asarray(columns["ref"]), np.asarray(columns["cand"])
    oracle, tie_flip = np.asarray(columns["oracle"]), np.asarray(columns["tie_flip"])
    ref_accepts = ref == oracle
    derived = {
        "disagree": (ref != cand) & ~tie_flip,
        "ref_accepts": ref_accepts,
        "cand_accepts": np.where(tie_flip, ref_accepts, cand == oracle),
    }
    data = {name: derived.get(name, columns.get(name)) for name in COLUMNS}
    return pd.DataFrame(data, index=pd.RangeIndex(len(ref)))


def sums_by_sequence(frame: Frame) -> Frame:
    """Counts of one candidate on one trace, one row per unit of `units_of`, columns COUNTS."""
    return _counts(frame).groupby(units_of(frame)).sum()


def units_of(frame: Frame) -> np.ndarray[Any, np.dtype[np.int64]]:
    """What is resampled: the number of each position's sequence, int64 [n]; of sequences that hold
    the same tokens at the same positions, the number of the first.

    The sequence is the resampling unit everywhere, and this function alone says what it is. A text
    that is there ten times is read once: its copies are drawn together.
    """
    sequence = frame["sequence"].to_numpy(np.int64)
    numbers, place = np.unique(sequence, return_inverse=True)
    # One number for each position and token; their sum does not depend on the order of rows.
    pairs = frame[["position", "token"]].astype("int64")
    prints = np.zeros(len(numbers), np.uint64)
    np.add.at(prints, place, pd.util.hash_pandas_object(pairs, index=False).to_numpy(np.uint64))
    _, first, same = np.unique(prints, return_index=True, return_inverse=True)
    return np.asarray(numbers[first][same][place], np.int64)


def sums_by_class(frame: Frame) -> dict[str, Frame]:
    """The same per class of the oracle token, for every class that occurs, in order of name.

    Each table has a row for every unit of the trace, zeros where it has none of the class: the
    draws are those of the whole trace.
    """
    classes = frame["oracle_class"].to_numpy(object)
    known = ~pd.isna(classes)
    if not known.any():
        return {}
    unit = units_of(frame)
    sums = _counts(frame)[known].groupby([classes[known], unit[known]]).sum()
    every = np.unique(unit)
    names = sorted(set(sums.index.get_level_values(0)))
    return {str(name): sums.loc[name].reindex(every, fill_value=0.0) for name in names}


def _counts(frame: Frame) -> Frame:
    """What each position adds to the counts, [n] rows, columns COUNTS."""
    covered = frame["ref_in_vocabulary"].to_numpy(bool)
    disagree = frame["disagree"].to_numpy(bool)
    accepts = {side: frame[f"{side}_accepts"].to_numpy(bool) for side in ("ref", "cand")}
    per_position = {
        "positions": np.ones(len(frame)),
        "disagreements": disagree,
        "ref_accepted": accepts["ref"],
        "cand_accepted": accepts["cand"],
        "in_vocabulary": frame["oracle_in_vocabulary"].to_numpy(bool),
        "covered": covered,
        "covered_disagreements": disagree & covered,
        "covered_ref_accepted": accepts["ref"] & covered,
        "covered_cand_accepted": accepts["cand"] & covered,
        "flip_margin": np.where(disagree, _numbers(frame["ref_margin"]), 0.0),
        "kl_nats": _numbers(frame["kl_nats"]),
    }
    return pd.DataFrame({name: np.asarray(per_position[name], float) for name in COUNTS})


def write_positions(frame: Frame, path: Path) -> None:
    """Write the table as Parquet, atomically."""
    schema = pa.schema([(name, _arrow_type(kind)) for name, kind in COLUMNS.items()])
    table = pa.Table.from_pandas(frame[list(COLUMNS)], schema=schema, preserve_index=False)
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def read_positions(
    source: Path | BinaryIO, columns: Sequence[str] | None = None, where: str | Path = ""
) -> Frame:
    """Read the table, or some columns of it.

    Args:
        where: what to call a `source` that is no path.

    Raises:
        UnreadableError: the file is missing, damaged or has other columns.
    """
    try:
        wanted = None if columns is None else list(columns)
        frame: Frame = pq.read_table(source, columns=wanted).to_pandas()
    except (OSError, pa.ArrowException) as error:
        raise UnreadableError(
            f"the table of positions can not be read: {first_line(error)}",
            hint="run the audit again",
            where=where or str(source),
        ) from error
    return frame


def _numbers(column: pd.Series[Any]) -> np.ndarray[Any, Any]:
    """float64 values; zeros when the column was not measured (the estimate then says so)."""
    if column.isna().all():
        return np.zeros(len(column))
    return column.to_numpy(np.float64)


def _arrow_type(kind: str) -> pa.DataType:
    return pa.bool_() if kind == "bool" else getattr(pa, kind)()
