"""Where traces are looked for when `audit compare` is not told."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from audit.errors import NotFoundError

SUFFIX = ".trace.safetensors"
VARIABLE = "AUDIT_TRACES"
FOLDER = "traces"


def find_traces(explicit: Sequence[Path], ref: Path) -> list[Path]:
    """Traces to use with the reference `ref`: sorted, each once, from the first place that has any.

    The places, in order: `explicit` (files, or folders of `*.trace.safetensors`); the same listed
    in the environment variable AUDIT_TRACES; `*.trace.safetensors` beside `ref` and in `traces/`
    beside it. A `ref` that is a folder is searched itself.

    Raises:
        NotFoundError: a place that was named is not there or holds no trace, or nothing was found.
    """
    if explicit:
        return _distinct(path for place in explicit for path in _named(place, "--trace"))
    if listed := [part for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]:
        return _distinct(path for part in listed for path in _named(Path(part), VARIABLE))
    folder = ref if ref.is_dir() else ref.parent
    if found := _distinct([*_inside(folder), *_inside(folder / FOLDER)]):
        return found
    raise NotFoundError(
        f"no trace was found: none given, {VARIABLE} is not set, and none is in {folder} "
        f"or {folder / FOLDER}",
        hint=f"make one: {_capture_command(ref, folder)}",
        where=ref,
    )


def _named(place: Path, source: str) -> list[Path]:
    """The traces at a place the user named; `source` is the option or variable that did."""
    if place.is_dir():
        if found := _inside(place):
            return found
        raise NotFoundError(
            f"the folder {place} from {source} holds no *{SUFFIX}",
            hint="name the trace file itself, or another folder",
            where=place,
        )
    if not place.exists():
        raise NotFoundError(
            f"there is no trace at {place}, named by {source}",
            hint="check the path, or make a trace with `audit capture`",
            where=place,
        )
    return [place]


def _inside(folder: Path) -> list[Path]:
    return [path for path in folder.glob(f"*{SUFFIX}") if path.is_file()]


def _distinct(paths: Iterable[Path]) -> list[Path]:
    """Sorted, with one path for each file, however it was spelled."""
    by_file = {path.resolve(): path for path in sorted(paths, reverse=True)}
    return sorted(by_file.values())


def _capture_command(ref: Path, folder: Path) -> str:
    """The command that makes a trace where it is then found; MODEL unless `ref` is inside one."""
    whole = ref if ref.suffix == ".gguf" else folder if (folder / "config.json").exists() else None
    model = shlex.quote(str(whole)) if whole else "MODEL"
    target = shlex.quote(str(folder / f"NAME{SUFFIX}"))
    return f"audit capture {model} --text FILE -o {target}"
