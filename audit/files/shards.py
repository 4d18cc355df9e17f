"""Sets of files that are one model: safetensors indexes, and sets known by their names alone.

Says which files belong together, and checks that what was read from them does. Leaves out reading
them (`opening`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from audit.errors import MismatchError, NotFoundError, UnreadableError
from audit.files.container import TensorEntry
from audit.files.safetensors_file import parse_json_object

INDEX_SUFFIX = ".safetensors.index.json"
_INDEX_LIMIT = 100_000_000
_SPLIT = re.compile(
    r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.gguf|\.safetensors)", re.DOTALL
)


def read_index(path: Path) -> dict[str, str]:
    """Tensor name to shard name, as an index file lists them; all stay inside its folder."""
    if path.stat().st_size > _INDEX_LIMIT:
        raise _bad(path, f"is larger than {_INDEX_LIMIT} bytes")
    weight_map = parse_json_object(path, path.read_bytes(), "content").get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise _bad(path, "has no weight_map")
    for shard in weight_map.values():
        if not isinstance(shard, str) or not _stays_inside(shard):
            raise _bad(path, f"names the shard {ascii(shard)[:80]}, which is not a file beside it")
    return weight_map


def _stays_inside(shard: str) -> bool:
    parts = PurePosixPath(shard).parts
    bad = not shard.isprintable() or "\\" in shard or ":" in shard
    return bool(parts) and not bad and ".." not in parts and not shard.startswith("/")


def check_index(
    path: Path, weight_map: Mapping[str, str], entries: Mapping[str, TensorEntry]
) -> None:
    """Every listed tensor must be in the shard that the index lists for it."""
    for name, shard in weight_map.items():
        if name not in entries or entries[name].path != path.parent / shard:
            raise MismatchError(
                f"{path} lists tensor {name} in {shard}, which does not hold it",
                hint="the index and the shards are from different versions; download both again",
                where=path,
            )


def check_counts(path: Path, shards: Iterable[str]) -> None:
    """The names of an index's shards must say one count, and every number of it be listed.

    A head in a shard that is left out would be taken for a tied one.
    """
    numbers: dict[tuple[str, int], set[int]] = {}
    for shard in shards:
        if split := split_name(Path(shard)):
            numbers.setdefault((split.stem, split.count), set()).add(split.number)
    for (stem, count), found in numbers.items():
        if len(found) < count or len(numbers) > 1:
            missing = next((n for n in range(1, count + 1) if n not in found), None)
            lacks = f", and number {missing} is not" if missing else " beside those of another set"
            raise MismatchError(
                f"{path} lists shards that are named {stem}-*-of-{count:05d}{lacks}",
                hint="the index and the shards are from different versions; download both again",
                where=path,
            )


def merge(shards: list[dict[str, TensorEntry]]) -> dict[str, TensorEntry]:
    """All entries of a set; a tensor in two shards is refused."""
    merged: dict[str, TensorEntry] = {}
    for entries in shards:
        for name, entry in entries.items():
            if name in merged:
                raise MismatchError(
                    f"tensor {name} is in two shards: {merged[name].path} and {entry.path}",
                    hint="remove the shard that does not belong to this model",
                    where=entry.path,
                )
            merged[name] = entry
    return merged


@dataclass(frozen=True, slots=True)
class SplitName:
    """The name of one file of a set: `stem-00002-of-00005.gguf`."""

    stem: str
    number: int
    """From 1."""
    count: int
    suffix: str


def split_name(path: Path) -> SplitName | None:
    """What the name says of the set, or None for the name of a single file."""
    match = _SPLIT.fullmatch(path.name)
    if match is None or not 1 <= int(match["number"]) <= int(match["count"]):
        return None
    return SplitName(match["stem"], int(match["number"]), int(match["count"]), match["suffix"])


def split_paths(path: Path) -> list[Path]:
    """All files of the set that `path` belongs to, in order; NotFoundError names missing ones."""
    split = split_name(path)
    if split is None:
        return [path]
    end = f"of-{split.count:05d}{split.suffix}"
    names = [f"{split.stem}-{n:05d}-{end}" for n in range(1, split.count + 1)]
    present = {item.name for item in path.parent.iterdir()}
    missing = [name for name in names if name not in present]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise NotFoundError(
            f"{path.name} is one of {split.count} shards; missing in {path.parent}: "
            f"{', '.join(missing[:5])}{more}",
            hint="download the other shards into the same folder",
            where=path,
        )
    return [path.parent / name for name in names]


def check_split(paths: list[Path], metadata: list[dict[str, Any]], n_tensors: int) -> None:
    """The shards' own split.no, split.count and split.tensors.count must agree with the set."""
    for position, (path, values) in enumerate(zip(paths, metadata, strict=True)):
        count = values.get("split.count", len(paths) if len(paths) == 1 else None)
        number = values.get("split.no", 0 if len(paths) == 1 else None)
        # A count of 0 is how an unsplit file may say that it is one.
        if (count or 1) != len(paths) or number != position:
            raise MismatchError(
                f"{path} says that it is number {number} (from 0) of {count} shards, its name "
                f"that it is number {position} of {len(paths)}",
                hint="give the files the names that llama-gguf-split gave them",
                where=path,
            )
    total = metadata[0].get("split.tensors.count", n_tensors) if metadata else n_tensors
    if total != n_tensors:
        raise MismatchError(
            f"{paths[0]} says that its set has {total} tensors, its files have {n_tensors}",
            hint="the shards are from different conversions; download all of them again",
            where=paths[0],
        )


def _bad(path: Path, what: str) -> UnreadableError:
    return UnreadableError(f"{path} {what}", hint="download the index again", where=path)
