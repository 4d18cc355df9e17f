"""Which target id each row of a trimmed head stands for.

Two encodings share one tensor name in the wild: *offset* (target = row + d2t[row]: SafeAILab,
SpecForge, speculators, ModelOpt) and *absolute* (target = d2t[row]: llama.cpp, memra, ranks
cards). A map read the wrong way loads without a word, so whatever can not be decided is refused.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from audit.errors import BadUsageError, MismatchError, NotFoundError, UnreadableError, first_line
from audit.words import count

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_LARGEST = np.iinfo(np.int64).max
Convention = Literal["auto", "offset", "absolute"]


@dataclass(frozen=True, slots=True)
class VocabMap:
    """Target id per row, int64 [rows], and how it was come by."""

    ids: Tensor
    source: str
    is_zero: bool = False
    """It is all zeros and fewer than the ids: perhaps a buffer that was never filled."""


def resolve_d2t(
    d2t: Tensor, vocabulary: int, t2d: Tensor | None, convention: Convention, where: Path
) -> VocabMap:
    """Read a `d2t` tensor of unstated encoding.

    Args:
        d2t: int64 [rows].
        vocabulary: number of target ids.
        t2d: bool [vocabulary], the kept ids, when the file has it: then it decides.
        convention: forced by the user, or `auto`.
        where: file named in errors.

    Raises:
        MismatchError: MAP_RANGE when no reading gives distinct ids in range, or disagrees with
            t2d; MAP_AMBIGUOUS when both readings fit; MAP_ZERO for an all-zero map of a smaller
            head.
    """
    readings = {"offset": d2t + torch.arange(len(d2t)), "absolute": d2t}
    if convention != "auto":
        ids = check_ids(readings[convention], vocabulary, where)
        empty = len(d2t) < vocabulary and not bool(d2t.any())
        return VocabMap(ids, f"d2t read as {convention}, as asked", is_zero=empty)
    if t2d is not None and bool(t2d.any()) and not bool(t2d.all()):
        return _decide_by_mask(readings, t2d, where)
    if len(d2t) < vocabulary and not bool(d2t.any()):
        raise MismatchError(
            f"d2t is all zeros for {len(d2t)} rows of {vocabulary} ids: "
            "a buffer that was never filled, or the first ids",
            hint="if the rows really are the first ids, say --d2t-convention offset",
            where=where,
            code="MAP_ZERO",
        )
    fits = {name: ids for name, ids in readings.items() if _fits(ids, vocabulary)}
    if len(fits) == 1 or (len(fits) == 2 and torch.equal(*fits.values())):
        name = next(iter(fits))
        return VocabMap(fits[name], f"d2t read as {name}, the only reading that fits")
    if not fits:
        check_ids(readings["absolute"], vocabulary, where)
    raise MismatchError(
        "d2t fits both as offsets and as absolute ids",
        hint="say which with --d2t-convention offset or --d2t-convention absolute",
        where=where,
        code="MAP_AMBIGUOUS",
    )


def check_ids(ids: Tensor, vocabulary: int, where: Path) -> Tensor:
    """Refuse ids out of range or named twice, naming the first offenders."""
    outside = ((ids < 0) | (ids >= vocabulary)).nonzero().squeeze(1)
    if len(outside):
        row = int(outside[0])
        raise MismatchError(
            f"{len(outside)} of {len(ids)} map entries are outside 0..{vocabulary - 1}, "
            f"the first at row {row}: {int(ids[row])}",
            hint="is this the map of another model, or an offset map read as absolute ids?",
            where=where,
            code="MAP_RANGE",
        )
    values, counts = ids.unique(return_counts=True)
    repeated = values[counts > 1]
    if len(repeated):
        raise MismatchError(
            f"{count(len(repeated), 'target id')} named by more than one row, "
            f"the first is {int(repeated[0])}",
            hint="each row of a trimmed head must stand for one id",
            where=where,
            code="MAP_RANGE",
        )
    return ids


def read_id_list(path: Path) -> Tensor:
    """Ids from a ranks card (.txt), JSON, .npy, safetensors or .pt file, int64, as they stand.

    Raises:
        NotFoundError, UnreadableError: no such file, or not a list of whole numbers.
        BadUsageError: a suffix that is not known.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise BadUsageError(
            f"an id list is read from {', '.join(_READERS)}, not from {path.suffix or 'this'}",
            where=path,
        )
    if path.is_dir():
        raise _not_a_list(path, "it is a folder")
    if not path.is_file():
        raise NotFoundError("there is no such id list", where=path)
    try:
        values = np.asarray(reader(path))
    except _NoListError as error:
        raise _not_a_list(path, str(error)) from error
    except Exception as error:  # each reader has its own error types
        why = first_line(error)[:120]
        raise _not_a_list(path, f"it can not be read as {path.suffix} ({why})") from error
    if values.size == 0:
        raise _not_a_list(path, "it is empty")
    if values.ndim != 1:
        raise _not_a_list(path, f"it is a table of shape {list(values.shape)}")
    if not np.issubdtype(values.dtype, np.integer) or int(values.max()) > _LARGEST:
        raise _not_a_list(path, "it holds something else than ids")
    return torch.from_numpy(values.astype(np.int64))


def drop_duplicates(ids: Tensor) -> Tensor:
    """The ids in their order, each kept where it first stands (FR-Spec lists repeat stop ids)."""
    unique, first = np.unique(ids.numpy(), return_index=True)
    return torch.from_numpy(unique[np.argsort(first)])


def _decide_by_mask(readings: dict[str, Tensor], t2d: Tensor, where: Path) -> VocabMap:
    kept = t2d.nonzero().squeeze(1)
    for name, ids in readings.items():
        if torch.equal(ids.sort().values, kept):
            return VocabMap(ids, f"d2t read as {name}, which t2d confirms")
    raise MismatchError(
        f"d2t agrees with t2d neither as offsets nor as absolute ids "
        f"({len(readings['absolute'])} rows, {len(kept)} ids kept)",
        hint="the two were saved from different trainings: export the head again",
        where=where,
        code="MAP_RANGE",
    )


def _fits(ids: Tensor, vocabulary: int) -> bool:
    inside = bool(((ids >= 0) & (ids < vocabulary)).all())
    return inside and len(ids.unique()) == len(ids)


def _not_a_list(path: Path, why: str) -> UnreadableError:
    hint = "one whole number per line in .txt, or one flat list of whole numbers"
    return UnreadableError(f"this is not a list of ids: {why}", hint=hint, where=path)


class _NoListError(ValueError):
    """What is wrong with a list, in our own words."""


def _read_text(path: Path) -> list[int]:
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1):
        for word in line.split():
            if not _WHOLE.fullmatch(word):
                raise _NoListError(f"line {number} holds {word[:40]!r}, which is no id")
            found.append(int(word))
    return found


def _read_json(path: Path) -> list[Any]:
    content = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(content, dict):
        lists = [value for value in content.values() if isinstance(value, list)]
        if len(lists) != 1:
            raise _NoListError(f"it is an object with {len(lists)} lists in it")
        content = lists[0]
    return list(content)


def _read_safetensors(path: Path) -> np.ndarray[Any, Any]:
    from safetensors.numpy import load_file

    tensors = load_file(path)
    if len(tensors) != 1:
        raise _NoListError(f"it holds {len(tensors)} tensors, not one")
    return np.asarray(next(iter(tensors.values())))


def _read_torch(path: Path) -> np.ndarray[Any, Any]:
    # weights_only: a list from a stranger must not be able to run code.
    content = torch.load(path, map_location="cpu", weights_only=True)
    return np.asarray(content)


_READERS = {
    ".txt": _read_text,
    ".json": _read_json,
    ".npy": lambda path: np.load(path, allow_pickle=False),
    ".safetensors": _read_safetensors,
    ".pt": _read_torch,
}
