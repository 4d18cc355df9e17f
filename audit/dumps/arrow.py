"""Rows of a Hugging Face data set on disk: Arrow streams named by `state.json`.

Only `input_ids`, `loss_mask` and `seq_len` are looked at, through pyarrow; the library `datasets`
is not needed. The files are mapped, and offsets are checked before a row is taken.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from audit.errors import MismatchError, UnreadableError, first_line

_IDS, _MASK, _LENGTH = "input_ids", "loss_mask", "seq_len"


class DataSet:
    """The rows, by number."""

    def __init__(self, table: Any, where: Path) -> None:
        self._table, self.where = table, where

    def row(self, number: int, states: Path) -> tuple[Tensor, Tensor | None]:
        """Token ids int64 [S] and loss mask [S] or None of one row.

        Raises:
            MismatchError: there is no such row, or its length is not what it says (LENGTHS).
        """
        if number >= len(self._table):
            raise MismatchError(
                f"{states} is of row {number}, but the data set {self.where} has "
                f"{len(self._table)} rows",
                hint="the states are of another version of the data set",
                where=states,
            )
        ids = self._cell(_IDS, number)
        names = self._table.column_names
        length = self._table[_LENGTH][number].as_py() if _LENGTH in names else len(ids)
        if length != len(ids):
            raise MismatchError(
                f"row {number} of {self.where} says it has {length} tokens and has {len(ids)}",
                hint="prepare the data set again",
                where=self.where,
                code="LENGTHS",
            )
        return ids, self._cell(_MASK, number) if _MASK in names else None

    def _cell(self, name: str, number: int) -> Tensor:
        values = getattr(self._table[name][number], "values", None)
        numbers = None if values is None else values.to_numpy(zero_copy_only=False)
        if numbers is None or numbers.dtype.kind not in "iub":
            raise UnreadableError(
                f"{name} of row {number} of {self.where} is no list of whole numbers",
                hint="prepare the data set again",
                where=self.where,
            )
        return torch.from_numpy(numbers.astype(np.int64))


def open_data_set(folder: Path) -> DataSet | None:
    """The data set in `folder`, None when there is none.

    Raises:
        UnreadableError: it is cut or malformed, or its rows were reordered by an indices file.
    """
    state = folder / "state.json"
    if not state.is_file():
        return None
    names = _file_names(state)
    try:
        table = pa.concat_tables([_read_stream(folder / name) for name in names])
        wanted = [name for name in (_IDS, _MASK, _LENGTH) if name in table.column_names]
        table = table.select(wanted)
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _bad(state, f"its Arrow files can not be read: {first_line(error)[:160]}") from error
    if _IDS not in wanted:
        raise _bad(state, f"it has no column {_IDS}")
    return DataSet(table, folder)


def _read_stream(path: Path) -> Any:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_stream(source).read_all()


def _file_names(state: Path) -> list[str]:
    try:
        content = json.loads(state.read_bytes())
        names = [entry["filename"] for entry in content["_data_files"]]
    except (OSError, ValueError, RecursionError, KeyError, TypeError) as error:
        raise _bad(state, "it does not name its Arrow files") from error
    if content.get("_indices_data_files"):
        raise _bad(state, "its rows were reordered; save it flattened (flatten_indices)")
    if not names or not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise _bad(state, "it names files outside its folder, or none")
    return names


def _bad(state: Path, why: str) -> UnreadableError:
    return UnreadableError(
        f"the data set of {state} can not be used: {why}",
        hint="save it again with datasets' save_to_disk, or move the states to a folder of "
        "their own to go without the loss mask",
        where=state,
    )
