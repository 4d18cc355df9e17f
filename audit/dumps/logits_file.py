"""The verifier's greedy tokens out of a file of `llama-perplexity --kl-divergence-base`.

Layout, little-endian: `_logits_`, int32 context, vocabulary and chunks, the tokens of every chunk,
then for each position of a chunk's second half but its last one row of 16-bit values: float32
scale and smallest log-probability, and one code per id. A code is a rounded logit, so ids with
equal codes can not be told apart (up to half a quantum, 1.2e-4 nats): such positions get no oracle.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from audit.dumps.listing import LOGITS_MAGIC
from audit.errors import MismatchError, NotFoundError, UnreadableError, UnsupportedFormatError
from audit.records import Finding

_HEADER = len(LOGITS_MAGIC) + 12
_KEY = 16
_ROWS = 64
Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class _Counts:
    """What was found while oracles were taken from the file."""

    positions: int = 0
    ties: int = 0
    other_first: set[int] = field(default_factory=set)
    half_quantum: float = 0.0


class LogitsFile:
    """One file, mapped; positions are asked for by their text."""

    def __init__(self, path: Path, valid: int | None = None) -> None:
        """Open and check `path`; ids from `valid` on are padding.

        Raises:
            NotFoundError, UnsupportedFormatError: no such file, or another kind of file.
            UnreadableError: it is cut (FILE_CUT), too long, or its header makes no sense.
        """
        self.path = path
        self.context, vocabulary, chunks = _read_header(path)
        self.first = self.context // 2
        self._count = self.context - 1 - self.first
        self._width = 2 * ((vocabulary + 1) // 2) + 4
        self.valid = min(vocabulary, valid or vocabulary)
        start = _HEADER + 4 * chunks * self.context
        _check_size(path, start + 2 * chunks * self._count * self._width)
        self._tokens = np.fromfile(path, "<i4", chunks * self.context, offset=_HEADER).reshape(
            chunks, self.context
        )
        self._codes = np.memmap(path, "<u2", "r", start, (chunks, self._count, self._width))
        self._chunks: dict[bytes, list[int]] = defaultdict(list)
        for chunk, tokens in enumerate(self._tokens):
            self._chunks[self._key(tokens)].append(chunk)
        self._seen = _Counts()

    def oracle(self, token: Tensor) -> Tensor:
        """Greedy next tokens for one text, int64 [S]; -1 where the file has none.

        The text must be a chunk's from its start. Its first token may differ: the program puts BOS
        there before it runs, and keeps the original id in the file.
        """
        found = torch.full((len(token),), -1, dtype=torch.int64)
        ids = token.numpy().astype("<i4")
        best = (0, -1)
        for chunk in self._chunks.get(self._key(ids), []):
            best = max(best, (_common(ids, self._tokens[chunk]), chunk))
        length, chunk = best
        stop = min(length, self.context - 1)
        if chunk < 0 or stop <= self.first:
            return found
        if ids[0] != self._tokens[chunk][0]:
            self._seen.other_first.add(int(ids[0]))
        for start in range(self.first, stop, _ROWS):
            end = min(start + _ROWS, stop)
            rows = self._codes[chunk, start - self.first : end - self.first]
            found[start:end] = self._greedy(np.asarray(rows))
        return found

    def _key(self, tokens: Array) -> bytes:
        """The first tokens of a text or chunk, but the one that BOS may stand for."""
        return tokens[1 : min(1 + _KEY, self.context)].tobytes()

    def _greedy(self, rows: Array) -> Tensor:
        """Largest code's id for [n, width] rows of 16-bit values, -1 where several share it."""
        scales = np.ascontiguousarray(rows[:, :4]).view("<f4")
        if not np.isfinite(scales).all() or (scales[:, 0] < 0).any():
            raise UnreadableError(
                f"{self.path} holds a scale that is NaN, infinite or negative",
                hint="the model overflowed or the file is damaged: write it again",
                where=self.path,
                code="NON_FINITE",
            )
        codes = rows[:, 4 : 4 + self.valid]
        tied = (codes == codes.max(axis=1, keepdims=True)).sum(axis=1) > 1
        self._seen.ties += int(tied.sum())
        self._seen.positions += int((~tied).sum())
        self._seen.half_quantum = max(self._seen.half_quantum, float(scales[:, 0].max()) / 2)
        return torch.from_numpy(np.where(tied, -1, codes.argmax(axis=1)).astype(np.int64))

    def report(self) -> tuple[dict[str, Any], list[Finding]]:
        """Settings for the trace, and what must be said of this oracle.

        Raises:
            MismatchError: no text of the dump was in the file, or several ids stand where BOS was.
        """
        seen = self._seen
        if seen.positions == 0:
            raise MismatchError(
                f"{self.path.name} has no greedy token for any position of this dump",
                hint=f"its texts must be the chunks of {self.context} tokens that llama-perplexity "
                "ran, token by token; only the second half of each has logits",
                where=self.path,
                code="TOKENS_DIFFER",
            )
        if len(seen.other_first) > 1:
            raise MismatchError(
                f"texts differ from those of {self.path.name} in their first token, and not by one "
                f"BOS: ids {sorted(seen.other_first)[:4]}",
                hint="cut the dump's texts where llama-perplexity cut its chunks",
                where=self.path,
                code="TOKENS_DIFFER",
            )
        bos = next(iter(seen.other_first), None)
        sentence = (
            f"the oracle is from a file of 16-bit logits: {seen.positions:,} positions in the "
            f"second half of each chunk, known up to {seen.half_quantum:.1e} nats; {seen.ties:,} "
            "tied within that have none"
        ) + ("" if bos is None else f"; BOS ({bos}) stands for the first token of its chunks")
        settings = {
            "source": "logits_file",
            "positions": seen.positions,
            "ties": seen.ties,
            "half_quantum_nats": float(f"{seen.half_quantum:.6g}"),
            "bos": bos,
        }
        note = Finding(code="LOGITS_16_BIT", severity="note", subject="dump", sentence=sentence)
        return settings, [note]


def _read_header(path: Path) -> tuple[int, int, int]:
    if not path.is_file():
        raise NotFoundError(
            f"there is no logits file {path}", hint="check --oracle-from", where=path
        )
    with path.open("rb") as stream:
        header = stream.read(_HEADER)
    if not header.startswith(LOGITS_MAGIC):
        raise UnsupportedFormatError(
            f"{path} is not a logits file: it does not start with {LOGITS_MAGIC.decode()}",
            hint="write it with `llama-perplexity --kl-divergence-base FILE`",
            where=path,
        )
    if len(header) < _HEADER:
        raise _cut(path, _HEADER - len(header))
    context, vocabulary, chunks = (int(n) for n in np.frombuffer(header[8:], "<i4"))
    if context < 3 or vocabulary < 2 or chunks < 1:
        raise UnreadableError(
            f"{path} claims a context of {context}, {vocabulary} ids and {chunks} chunks",
            hint="the file is damaged, or its run was stopped before the first chunk",
            where=path,
        )
    return context, vocabulary, chunks


def _check_size(path: Path, wanted: int) -> None:
    size = path.stat().st_size
    if size < wanted:
        raise _cut(path, wanted - size)
    if size > wanted:
        raise UnreadableError(
            f"{path} has {size - wanted} bytes more than its header says",
            hint="write it again",
            where=path,
        )


def _cut(path: Path, missing: int) -> UnreadableError:
    return UnreadableError(
        f"{path} is cut: {missing} bytes are missing",
        hint="copy it again, or let llama-perplexity finish",
        where=path,
        code="FILE_CUT",
    )


def _common(ids: Array, chunk: Array) -> int:
    """Number of leading tokens that agree, the first one taken as agreeing."""
    length = min(len(ids), len(chunk))
    differ = np.flatnonzero(ids[1:length] != chunk[1:length])
    return int(differ[0]) + 1 if len(differ) else length
