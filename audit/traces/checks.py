"""What every trace must satisfy, checked once when it is read and once before it is written."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from audit.errors import UnreadableError

CORE_TENSORS = ("hidden", "token", "oracle", "sequence", "position")
MARKS = ("generated", "counted")
"""Columns that a trace may hold beside them."""
_STATE_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_ROWS_PER_CHECK = 1 << 14
_NAMED_ROWS = 5


def check_trace(
    core: Mapping[str, torch.Tensor],
    states: Mapping[str, torch.Tensor],
    marks: Mapping[str, torch.Tensor],
    *,
    where: str,
) -> None:
    """Raise UnreadableError unless the tensors together are a trace.

    Args:
        core: the tensors named in `CORE_TENSORS`; `hidden` [N, d], the others [N].
        states: further states [N, width], by name.
        marks: those of `MARKS` [N] that it holds.
        where: the file, for the message.
    """
    rows = len(core["hidden"]) if core["hidden"].dim() else 0
    for name, tensor in {"hidden": core["hidden"], **states}.items():
        _check_state(name, tensor, rows, where)
    for name in CORE_TENSORS[1:]:
        _check_column(name, core[name], rows, torch.int64, where)
    for name, mark in marks.items():
        _check_column(name, mark, rows, torch.bool, where)
    if rows == 0:
        raise _bad(where, "it holds no positions")
    if "counted" in marks and not bool(marks["counted"].any()):
        raise _bad(where, "`counted` leaves out every position")
    _check_at_least(core["token"], 0, "token", where)
    _check_at_least(core["oracle"], -1, "oracle", where)
    _check_sequences(core["sequence"], core["position"], where)
    for name, tensor in {"hidden": core["hidden"], **states}.items():
        check_finite(tensor, name, where=where)


def check_finite(tensor: torch.Tensor, name: str, *, where: str) -> None:
    """Raise UnreadableError with code NON_FINITE if a row of [N, width] holds NaN or infinity."""
    # By chunks: a mask of everything would double the memory of a large bfloat16 trace.
    starts = range(0, len(tensor), _ROWS_PER_CHECK)
    parts = [tensor[start : start + _ROWS_PER_CHECK].isfinite().all(dim=1) for start in starts]
    finite = torch.cat(parts)
    bad = torch.nonzero(~finite).flatten().tolist()
    if not bad:
        return
    named = ", ".join(str(row) for row in bad[:_NAMED_ROWS])
    more = ", ..." if len(bad) > _NAMED_ROWS else ""
    raise UnreadableError(
        f"{len(bad)}/{len(tensor)} positions of `{name}` hold NaN or infinity (rows {named}{more})",
        hint="the model overflowed; capture again with --dtype float32 or bfloat16",
        where=where,
        code="NON_FINITE",
    )


def _check_state(name: str, tensor: torch.Tensor, rows: int, where: str) -> None:
    if tensor.dim() != 2 or tensor.shape[1] == 0:
        raise _bad(where, f"`{name}` has the shape {list(tensor.shape)}, not [positions, width]")
    if tensor.dtype not in _STATE_DTYPES:
        raise _bad(where, f"`{name}` is {_name(tensor.dtype)}, not float32, bfloat16 or float16")
    if len(tensor) != rows:
        raise _bad(where, f"`{name}` has {len(tensor)} rows, `hidden` has {rows}")


def _check_column(
    name: str, tensor: torch.Tensor, rows: int, dtype: torch.dtype, where: str
) -> None:
    if tensor.dim() != 1:
        raise _bad(where, f"`{name}` has the shape {list(tensor.shape)}, not [positions]")
    if tensor.dtype != dtype:
        raise _bad(where, f"`{name}` is {_name(tensor.dtype)}, not {_name(dtype)}")
    if len(tensor) != rows:
        raise _bad(where, f"`{name}` has {len(tensor)} rows, `hidden` has {rows}")


def _check_at_least(column: torch.Tensor, lowest: int, name: str, where: str) -> None:
    bad = torch.nonzero(column < lowest).flatten()
    if len(bad):
        row = int(bad[0])
        raise _bad(where, f"`{name}` is {int(column[row])} at row {row}, below {lowest}")


def _check_sequences(sequence: torch.Tensor, position: torch.Tensor, where: str) -> None:
    """Sequence ids 0, 1, 2 ... in contiguous runs, positions 0, 1, 2 ... within each."""
    if int(sequence[0]) != 0:
        raise _bad(where, f"`sequence` starts with {int(sequence[0])}, not 0")
    step = sequence.diff()
    bad = torch.nonzero((step != 0) & (step != 1)).flatten()
    if len(bad):
        row = int(bad[0]) + 1
        raise _bad(
            where,
            f"`sequence` goes from {int(sequence[row - 1])} to {int(sequence[row])} at row {row}",
        )
    lengths = torch.unique_consecutive(sequence, return_counts=True)[1]
    starts = (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
    expected = torch.arange(len(sequence)) - starts
    bad = torch.nonzero(position != expected).flatten()
    if len(bad):
        row = int(bad[0])
        raise _bad(
            where, f"`position` is {int(position[row])} at row {row}, not {int(expected[row])}"
        )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _bad(where: str, reason: str) -> UnreadableError:
    return UnreadableError(
        f"{where} is not a usable trace: {reason}",
        hint="capture it anew, or repair the program that wrote it (see the trace format)",
        where=where,
    )
