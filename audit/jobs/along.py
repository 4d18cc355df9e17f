"""Which other files an audit opens together with the one that is named.

Told one by one, so that each can be checked before the next: an index is read here to learn what it
lists, and only after whoever asks had it in hand. Other contents are the audit's own matter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

Kind = Literal["head", "trace", "ranks", "policy"]
TRACE = ".trace.safetensors"
INDEX = ".safetensors.index.json"
PART = re.compile(r"-(?P<number>\d{5})-of-(?P<count>\d{5})\.(?P<suffix>gguf|safetensors)$")
_TRACES_FOLDER = "traces"
_SETTINGS = (".json", ".model", ".tiktoken")
_VOCABULARY = ("tokenizer", "vocab", "merges")
_INDEX_LIMIT = 100_000_000


def read_along(wanted: Path, kind: Kind, *, finds_traces: bool = False) -> Iterator[Path]:
    """What is opened for a file or folder of some kind, itself left out.

    Args:
        finds_traces: no traces were named, so those beside it are taken.
    """
    folder = wanted if wanted.is_dir() else wanted.parent
    if kind == "head":
        yield from _model(folder) if wanted.is_dir() else _head(wanted)
    if finds_traces:
        yield folder / _TRACES_FOLDER
        yield from _traces(folder / _TRACES_FOLDER)
    if finds_traces or (kind == "trace" and wanted.is_dir()):
        yield from _traces(folder)


def _model(folder: Path) -> Iterator[Path]:
    """Of a folder: any of its files may be the model, or belong to it."""
    for path in _files(folder):
        if not path.name.endswith(TRACE):
            yield path


def _head(file: Path) -> Iterator[Path]:
    beside = _files(file.parent)
    for path in beside:
        name = path.name.lower()
        of_set = name.endswith(INDEX)
        if not of_set and (path.suffix in _SETTINGS or name.startswith(_VOCABULARY)):
            yield path
    if part := PART.search(file.name):
        stem, end = file.name[: part.start()], f"-of-{part['count']}.{part['suffix']}"
        yield from (one for one in beside if one.name.startswith(stem) and one.name.endswith(end))
    if file.suffix == ".gguf":
        return
    for index in beside:
        if not index.name.endswith(INDEX):
            continue
        yield index
        listed = _listed(index)
        if index == file or file.name in listed:
            yield from (file.parent / name for name in sorted(listed))


def _listed(index: Path) -> set[str]:
    """Names of the files in an index; none of one that can not be read, which the audit refuses."""
    try:
        if index.stat().st_size > _INDEX_LIMIT:
            return set()
        found = json.loads(index.read_bytes())["weight_map"].values()
        return {name for name in found if isinstance(name, str) and "\0" not in name}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return set()


def _traces(folder: Path) -> Iterator[Path]:
    return (path for path in _files(folder) if path.name.endswith(TRACE))


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.is_dir())
    except OSError:
        return []
