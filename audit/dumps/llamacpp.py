"""Per-token embeddings of llama.cpp, written as text or as float32.

`llama-embedding --pooling none` and llama-server print JSON, an array or lines of numbers, and no
tokens: those come from a file beside them (`token_files`). `llama-debug --save-logits --embedding`
writes both. The states are those after the final norm, unless they were normalised (`stage`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from audit.dumps.listing import Stored, read_json
from audit.dumps.reader import Reader
from audit.dumps.sequence import DumpSequence
from audit.dumps.token_files import beside, read_tokens
from audit.errors import MismatchError, NotFoundError, UnreadableError, first_line

_MOST_TEXT, _MOST_JSON = 1 << 30, 1 << 28
_WHAT = "the JSON of llama-embedding or llama-server"


class LlamaCppReader(Reader):
    """Text of llama-embedding or llama-server, or the binary pair of llama-debug."""

    name = "llamacpp"
    holds = "llama-embedding's or llama-server's JSON, array or raw numbers; llama-debug's .bin"
    documented = "post_norm"
    needs_tokens = True

    @classmethod
    def fits(cls, path: Path, stored: Stored) -> bool:
        if stored.kind == "binary":
            return path.stem.endswith("-embeddings") and beside(path) is not None
        return stored.kind in ("json", "numbers")

    def read(self, path: Path) -> Iterator[DumpSequence]:
        tokens = read_tokens(self._token_file(path))
        blocks = [_binary(path, tokens)] if path.suffix == ".bin" else _text_blocks(path)
        for i, (ids, states) in enumerate(_paired(tokens, blocks, path)):
            where = f"{path}#{i + 1}" if len(tokens) > 1 else str(path)
            yield DumpSequence(where, torch.tensor(ids, dtype=torch.int64), states)

    def _token_file(self, path: Path) -> Path:
        found = self.tokens or beside(path)
        if found:
            return found
        stem = path.name.rsplit(".", 1)[0]
        raise NotFoundError(
            f"{path} holds states without their tokens",
            hint="give the ids with --tokens FILE (llama-tokenize --ids prints them), or lay "
            f"{stem}-tokens.txt beside it",
            where=path,
            code="TOKENS_MISSING",
        )


def _binary(path: Path, tokens: list[list[int]]) -> Tensor:
    """[T, width] from float32 without a header: the number of tokens gives the width."""
    count, size = sum(map(len, tokens)), path.stat().st_size
    if size == 0 or size % (4 * count):
        raise MismatchError(
            f"{path} has {size} bytes, which are no whole float32 rows for {count} tokens",
            hint="the file is cut, its tokens are another run's, or it holds logits: dump it with "
            "`llama-debug --save-logits --embedding --pooling none`",
            where=path,
            code="LENGTHS",
        )
    values = np.fromfile(path, dtype="<f4")
    return torch.from_numpy(values.astype(np.float32, copy=False)).view(count, -1)


def _text_blocks(path: Path) -> list[Tensor]:
    """Blocks of rows as the text groups them: one per prompt, or one per row."""
    with path.open("rb") as stream:
        first = stream.read(64).lstrip()[:1]
    if first in (b"[", b"{"):
        return _json_blocks(read_json(path, _WHAT, _MOST_JSON), path)
    if path.stat().st_size > _MOST_TEXT:
        raise _bad(path, "it is more than 1 GiB of text; llama-debug writes binary")
    try:
        values = np.loadtxt(path, dtype=np.float32, ndmin=2)
    except (ValueError, OSError) as error:
        raise _bad(path, first_line(error)) from error
    return [torch.from_numpy(values)]


def _json_blocks(value: Any, path: Path) -> list[Tensor]:
    if isinstance(value, dict):
        value = value.get("data", [value])
    if not isinstance(value, list) or not value:
        raise _bad(path, "it holds no embeddings")
    if all(isinstance(item, dict) for item in value):
        if all(isinstance(item.get("index"), int) for item in value):
            value = sorted(value, key=lambda item: item["index"])
        return [_matrix(item.get("embedding"), path) for item in value]
    return [_matrix(value, path)]


def _matrix(value: Any, path: Path) -> Tensor:
    """[rows, width] float32 from numbers or lists of numbers."""
    try:
        matrix = np.asarray(value, dtype=np.float32)
    except (ValueError, TypeError, OverflowError) as error:
        raise _bad(path, "its embeddings are not numbers, or not all of one width") from error
    matrix = matrix.reshape(1, -1) if matrix.ndim == 1 else matrix
    if matrix.ndim != 2 or matrix.size == 0:
        raise _bad(path, f"an embedding has the shape {list(matrix.shape)}")
    return torch.from_numpy(matrix)


def _paired(
    tokens: list[list[int]], blocks: list[Tensor], path: Path
) -> list[tuple[list[int], Tensor]]:
    """Each sequence's ids with its rows: block by block, or all rows cut by the lists of ids."""
    if len(blocks) == len(tokens):
        return list(zip(tokens, blocks, strict=True))
    if len({block.shape[1] for block in blocks}) > 1:
        raise _bad(path, "its rows are not all of one width")
    rows, count = torch.cat(blocks), sum(map(len, tokens))
    if len(rows) != count:
        raise MismatchError(
            f"{path} holds {len(rows)} states for {count} tokens in {len(tokens)} texts",
            hint="the ids must be those of the same texts, with the same BOS; states of every "
            "token need --pooling none",
            where=path,
            code="LENGTHS",
        )
    return list(zip(tokens, rows.split([len(ids) for ids in tokens]), strict=True))


def _bad(path: Path, why: str) -> UnreadableError:
    return UnreadableError(
        f"{path} is not {_WHAT}: {why}",
        hint="write it with --embd-output-format json and nothing else in the file",
        where=path,
    )
