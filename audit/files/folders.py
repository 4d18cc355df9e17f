"""Which file of a folder is the model: an index, one safetensors file, or one GGUF or split set.

Leaves out reading any of them (`opening`). A folder that could mean several models is refused.
"""

from __future__ import annotations

from pathlib import Path

from audit.errors import BadUsageError, NotFoundError
from audit.files.paths import PICKLE_SUFFIXES, check_is_file, pickle_error
from audit.files.shards import INDEX_SUFFIX, read_index, split_name

_SINGLE = "model.safetensors"
_LISTED = 8


def pick_in_folder(folder: Path) -> Path:
    """The path in `folder` that stands for its model.

    Raises BadUsageError when several could, UnsupportedFormatError when there are only pickles,
    NotFoundError when there is nothing.
    """
    files = sorted(p for p in folder.iterdir() if not p.name.startswith(".") and not p.is_dir())
    indexes = [p for p in files if p.name.endswith(INDEX_SUFFIX)]
    tensors = _one_per_set([p for p in files if p.suffix == ".safetensors"])
    ggufs = _one_per_set([p for p in files if p.suffix == ".gguf"])
    if ggufs and (indexes or tensors):
        raise _ambiguous(folder, [*indexes, *tensors, *ggufs])
    if ggufs:
        return _only(folder, ggufs)
    if indexes:
        return _pick_index(folder, indexes, tensors)
    if tensors:
        named = [p for p in tensors if p.name == _SINGLE]
        return _only(folder, named or tensors)
    pickles = [p for p in files if p.suffix in PICKLE_SUFFIXES]
    if pickles:
        raise pickle_error(pickles[0])
    raise NotFoundError(
        f"{folder} holds no safetensors and no GGUF file", hint="name the model file", where=folder
    )


def index_of(path: Path) -> Path | None:
    """The index beside a safetensors file that lists it as one of several, or None."""
    for index in sorted(path.parent.glob(f"*{INDEX_SUFFIX}")):
        check_is_file(index)
        shards = set(read_index(index).values())
        if len(shards) > 1 and path.name in shards:
            return index
    return None


def _pick_index(folder: Path, indexes: list[Path], tensors: list[Path]) -> Path:
    index = _only(folder, [p for p in indexes if p.name == _SINGLE + ".index.json"] or indexes)
    single = folder / _SINGLE
    check_is_file(index)
    # Programs differ in which of the two they load, so neither is a safe guess.
    if single in tensors and single.name not in read_index(index).values():
        raise _ambiguous(folder, [index, single])
    return index


def _one_per_set(paths: list[Path]) -> list[Path]:
    """The paths with each split set reduced to its first member."""
    kept: dict[tuple[str, int] | str, Path] = {}
    for path in paths:
        split = split_name(path)
        kept.setdefault((split.stem, split.count) if split else path.name, path)
    return list(kept.values())


def _only(folder: Path, paths: list[Path]) -> Path:
    if len(paths) > 1:
        raise _ambiguous(folder, paths)
    return paths[0]


def _ambiguous(folder: Path, paths: list[Path]) -> BadUsageError:
    names = [path.name for path in paths]
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return BadUsageError(
        f"{folder} could mean several models: {', '.join(names[:_LISTED])}{more}",
        hint=f"name one of them, for instance {paths[0]}",
        where=folder,
    )
