"""Sequences of a dump, one after the other, into the columns of one trace.

Each sequence is checked as it comes and copied out of its file into large blocks; when all are
there, the blocks are moved into one tensor and let go of one by one, so that the states are held
once and not twice.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from audit.dumps.reader import Reader
from audit.dumps.sequence import DumpSequence, checked
from audit.errors import BadUsageError, MismatchError, UnreadableError
from audit.records import Finding, Stage

_BLOCK_BYTES = 1 << 26
"""Beyond 32 MiB the C library maps memory anew, and unmaps it when it is freed."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class Collected:
    """What was read, N rows."""

    token: Tensor
    """int64 [N]."""
    hidden: Tensor
    """[N, d]."""
    further: tuple[Tensor, ...]
    """Each [N, width]."""
    sequence: Tensor
    """int64 [N], 0, 1, 2 ..."""
    position: Tensor
    """int64 [N]."""
    following: Tensor
    """int64 [N]: the text's next token, also beyond where the last text was cut; -1 at its end."""
    marked: Tensor | None
    """bool [N]: the loss mask marks the token of this row, as the tools' trainings weigh rows."""
    claimed: Stage | None
    names: tuple[str, ...]
    """The file of each sequence, as messages name it."""
    files: int
    findings: list[Finding]

    def sha256(self) -> str:
        """Hash of the texts, as token ids by sequence."""
        lengths = torch.bincount(self.sequence).numpy().astype("<i8")
        digest = hashlib.sha256(lengths.tobytes())
        digest.update(self.token.numpy().astype("<i8").tobytes())
        return digest.hexdigest()


def collect(
    reader: Reader, max_positions: int | None, keep_further: bool, report: Progress
) -> Collected:
    """Read the dump.

    Args:
        max_positions: stop after exactly this many rows, shortening the last text.
        keep_further: keep the states of earlier layers too.

    Raises:
        MismatchError: sequences of different widths or types (MIXED_WIDTHS), or masks only in some.
        UnreadableError: there is no position; or as `checked` says.
        BadUsageError: more states than fit into memory.
    """
    texts = _Texts()
    empty = files = 0
    for path in reader.files:
        report("read the dump", files, len(reader.files))
        files += 1
        for raw in reader.read(path):
            sequence = checked(raw if keep_further else replace(raw, further=()))
            if len(sequence.token) == 0:
                empty += 1
                continue
            texts.add(sequence, None if max_positions is None else max_positions - texts.rows)
            _check_memory(sequence, texts.rows, reader)
            if texts.rows == max_positions:
                break
        if texts.rows == max_positions:
            break
    report("read the dump", len(reader.files), len(reader.files))
    if texts.first is None:
        raise UnreadableError(
            f"{reader.dump} holds no position",
            hint="every text in it is empty",
            where=reader.dump,
        )
    if empty:
        reader.note("EMPTY_TEXTS", f"{empty} texts without any token were left out")
    return texts.whole(files, reader.findings)


class _Column:
    """Rows of one state, in blocks so large that each goes back to the system when let go of."""

    def __init__(self) -> None:
        self._blocks: list[Tensor] = []
        self._free = 0
        self._rows = 0

    def add(self, rows: Tensor) -> None:
        """Copy [n, width] rows, always of one width and type."""
        while len(rows):
            if self._free == 0:
                self._free = max(1, _BLOCK_BYTES // (rows.shape[1] * rows.element_size()))
                self._blocks.append(rows.new_empty(self._free, rows.shape[1]))
            block, take = self._blocks[-1], min(len(rows), self._free)
            start = len(block) - self._free
            block[start : start + take] = rows[:take]
            self._free -= take
            self._rows += take
            rows = rows[take:]

    def whole(self) -> Tensor:
        """All rows in one tensor; the blocks are gone afterwards."""
        whole = self._blocks[0].new_empty(self._rows, self._blocks[0].shape[1])
        start = 0
        self._blocks.reverse()
        while self._blocks:
            block = self._blocks.pop()
            stop = min(start + len(block), self._rows)
            whole[start:stop] = block[: stop - start]
            start = stop
        return whole


class _Texts:
    """Everything of the sequences read so far."""

    def __init__(self) -> None:
        self.first: DumpSequence | None = None
        self.rows = 0
        self._columns: list[_Column] = []
        self._names: list[str] = []
        self._token: list[Tensor] = []
        self._following: list[Tensor] = []
        self._marked: list[Tensor] = []

    def add(self, sequence: DumpSequence, left: int | None) -> None:
        """Take the first `left` rows of a checked sequence, all of them for None."""
        states = (sequence.hidden, *sequence.further)
        if self.first is None:
            self._columns = [_Column() for _ in states]
            # Without its rows, or its file would stay mapped.
            nothing = tuple(state[:0].clone() for state in states)
            self.first = replace(sequence, hidden=nothing[0], further=nothing[1:])
        _check_alike(self.first, sequence)
        for column, state in zip(self._columns, states, strict=True):
            column.add(state[:left])
        self._names.append(sequence.where)
        self._token.append(sequence.token[:left].clone())
        self._following.append(torch.cat([sequence.token[1:], torch.tensor([-1])])[:left])
        if sequence.mask is not None:
            self._marked.append(sequence.mask[:left].clone())
        self.rows += len(self._token[-1])

    def whole(self, files: int, findings: list[Finding]) -> Collected:
        """The columns of a trace; nothing can be added afterwards."""
        lengths = torch.tensor([len(token) for token in self._token])
        hidden, *further = (column.whole() for column in self._columns)
        return Collected(
            token=torch.cat(self._token),
            hidden=hidden,
            further=tuple(further),
            sequence=torch.arange(len(lengths)).repeat_interleave(lengths),
            position=torch.cat([torch.arange(int(length)) for length in lengths]),
            following=torch.cat(self._following),
            marked=torch.cat(self._marked) if self._marked else None,
            claimed=self.first.claimed if self.first else None,
            names=tuple(self._names),
            files=files,
            findings=findings,
        )


def _check_alike(first: DumpSequence, other: DumpSequence) -> None:
    """Refuse a dump of several models, or of several ways of dumping one."""
    for what, ours, theirs in (
        ("states", _form(first), _form(other)),
        ("loss mask", first.mask is not None, other.mask is not None),
        ("stated stage", first.claimed, other.claimed),
    ):
        if ours != theirs:
            raise MismatchError(
                f"{first.where} and {other.where} differ in their {what}: {_say(ours)} against "
                f"{_say(theirs)}",
                hint="the folder holds dumps of several runs: import them apart",
                where=other.where,
                code="MIXED_WIDTHS" if what == "states" else "MIXED_DUMP",
            )


def _form(sequence: DumpSequence) -> list[str]:
    return [
        f"{state.shape[1]} x {str(state.dtype).removeprefix('torch.')}"
        for state in (sequence.hidden, *sequence.further)
    ]


def _say(value: object) -> str:
    if isinstance(value, list):
        return " + ".join(value)
    return {True: "there", False: "not there"}[value] if isinstance(value, bool) else str(value)


def _check_memory(last: DumpSequence, rows: int, reader: Reader) -> None:
    """Refuse before the machine starts to swap."""
    if not hasattr(os, "sysconf"):
        return
    each = sum(state.shape[1] * state.element_size() for state in (last.hidden, *last.further))
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if rows * each > there // 2:
        raise BadUsageError(
            f"the states of {reader.dump} fill more than half of this machine's memory after "
            f"{rows:,} positions",
            hint="a few thousand positions are enough: --max-positions 20000, or --limit-files",
            where=reader.dump,
        )
