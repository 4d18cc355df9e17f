"""Sequences of a dump, one after the other, into the columns of one trace.

Each sequence is checked as it comes and copied out of its file; when all are there, they are moved
into one tensor and let go of one by one, so that the states are held once and not twice.
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
    """bool [N]: the loss mask marks the next token (the last row's own, where there is none)."""
    claimed: Stage | None
    files: int
    findings: list[Finding]

    def sha256(self) -> str:
        """Hash of the texts, as token ids by sequence."""
        lengths = torch.bincount(self.sequence).numpy().astype("<i8")
        digest = hashlib.sha256(lengths.tobytes())
        digest.update(self.token.numpy().astype("<i8").tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """One sequence, cut to what is wanted."""

    body: DumpSequence
    following: Tensor
    marked: Tensor | None


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
    parts: list[_Part] = []
    rows = empty = files = 0
    for path in reader.files:
        report("read the dump", files, len(reader.files))
        files += 1
        for raw in reader.read(path):
            sequence = checked(raw if keep_further else replace(raw, further=()))
            if len(sequence.token) == 0:
                empty += 1
                continue
            left = len(sequence.token) if max_positions is None else max_positions - rows
            parts.append(_cut(sequence, left))
            _check_alike(parts[0].body, parts[-1].body)
            rows += len(parts[-1].body.token)
            _check_memory(parts[-1].body, rows, reader)
            if rows == max_positions:
                break
        if rows == max_positions:
            break
    report("read the dump", len(reader.files), len(reader.files))
    if not parts:
        raise UnreadableError(
            f"{reader.dump} holds no position",
            hint="every text in it is empty",
            where=reader.dump,
        )
    if empty:
        reader.note("EMPTY_TEXTS", f"{empty} texts without any token were left out")
    return _merge(parts, files, reader.findings)


def _cut(sequence: DumpSequence, left: int) -> _Part:
    """At most `left` rows, copied so that the file can be let go of."""
    following = torch.cat([sequence.token[1:], torch.tensor([-1])])
    mask = sequence.mask
    marked = None if mask is None else torch.cat([mask[1:], mask[-1:]])
    body = DumpSequence(
        sequence.where,
        sequence.token[:left].clone(),
        sequence.hidden[:left].clone(memory_format=torch.contiguous_format),
        tuple(
            state[:left].clone(memory_format=torch.contiguous_format) for state in sequence.further
        ),
        None if mask is None else mask[:left].clone(),
        sequence.claimed,
    )
    return _Part(body, following[:left], None if marked is None else marked[:left])


def _merge(parts: list[_Part], files: int, findings: list[Finding]) -> Collected:
    lengths = torch.tensor([len(part.body.token) for part in parts])
    rows, first = int(lengths.sum()), parts[0].body
    hidden = first.hidden.new_empty(rows, first.hidden.shape[1])
    further = tuple(state.new_empty(rows, state.shape[1]) for state in first.further)
    token = torch.cat([part.body.token for part in parts])
    following = torch.cat([part.following for part in parts])
    masks = [part.marked for part in parts if part.marked is not None]
    start = 0
    parts.reverse()
    while parts:
        body = parts.pop().body
        stop = start + len(body.token)
        hidden[start:stop] = body.hidden
        for whole, state in zip(further, body.further, strict=True):
            whole[start:stop] = state
        start = stop
    return Collected(
        token=token,
        hidden=hidden,
        further=further,
        sequence=torch.arange(len(lengths)).repeat_interleave(lengths),
        position=torch.cat([torch.arange(int(length)) for length in lengths]),
        following=following,
        marked=torch.cat(masks) if masks else None,
        claimed=first.claimed,
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
