"""Which files of the server may be named: what lies below one configured folder, and nothing else.

A name is relative to that folder, as the listing tells it. Links may point around inside, never
out: everything is resolved before it is used, also what an audit reads along with the file that is
named (`along`). A link elsewhere in the folder is nobody's concern.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from audit.errors import BadUsageError, NotFoundError
from audit.jobs.along import INDEX, PART, TRACE, Kind, read_along

_SUFFIXES: dict[str, Kind] = {
    TRACE: "trace", ".safetensors": "head", INDEX: "head", ".gguf": "head",
    ".txt": "ranks", ".toml": "policy",
}  # fmt: skip
_MODEL_FILES = ("config.json", "adapter_config.json")
_DEPTH = 6
_LISTED = 2000
"""The most files that are listed, and folders that are looked into."""


@dataclass(frozen=True, slots=True)
class ServedFile:
    """One file or folder that may be chosen."""

    name: str
    """Relative to the served folder, with `/`."""
    kind: Kind


class ServedFiles:
    """The files below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def listing(self) -> list[ServedFile]:
        """What may be chosen, sorted by name: files by suffix, folders of models and of traces.

        Raises:
            NotFoundError: the folder is not there.
        """
        if not self.folder.is_dir():
            raise NotFoundError(
                "the folder of files to audit is not there",
                hint="name another: audit dashboard --files DIR",
                where=self.folder,
            )
        root = self.folder.resolve()
        found = [one for folder in _folders(root) for one in self._inside(root, folder)]
        return sorted(found[:_LISTED], key=lambda one: one.name)

    def path(self, name: str, kind: Kind = "head", *, finds_traces: bool = False) -> Path:
        """The absolute path of a listed name.

        Args:
            kind: what it shall serve as.
            finds_traces: it is a reference whose traces are looked for beside it.

        Raises:
            BadUsageError: it leads out of the served folder.
            NotFoundError: there is nothing of that name.
        """
        root = self.folder.resolve()
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts or "\0" in name or "\\" in name:
            raise _outside(name)
        wanted = root.joinpath(*parts)
        if not _stays(wanted, root):
            raise _outside(name)
        if not wanted.exists():
            raise NotFoundError(
                f"there is no {name!r} among the files to audit",
                hint="reload the page: it may have been moved",
            )
        for path in read_along(wanted, kind, finds_traces=finds_traces):
            if not _stays(path, root):
                raise BadUsageError(
                    f"{path.name!r}, which belongs to {name!r}, is a link that leads out of the "
                    "folder of files to audit",
                    hint="put the file itself there",
                )
        return wanted

    def _inside(self, root: Path, folder: Path) -> Iterator[ServedFile]:
        names = {path.name: path for path in _entries(folder) if _stays(path, root)}
        for name, path in names.items():
            for kind in kind_of(name) if path.is_file() else ():
                yield ServedFile(path.relative_to(root).as_posix(), kind)
        if folder == root:
            return
        own = folder.relative_to(root).as_posix()
        if any(name in names for name in _MODEL_FILES):
            yield ServedFile(own, "head")
        if any(name.endswith(TRACE) for name in names):
            yield ServedFile(own, "trace")


def kind_of(name: str) -> tuple[Kind, ...]:
    """What a file is for, by its name; nothing for part of a set that another file names."""
    if (part := PART.search(name)) and (part["suffix"] != "gguf" or part["number"] != "00001"):
        return ()
    return tuple(kind for suffix, kind in _SUFFIXES.items() if name.endswith(suffix))[:1]


def _folders(root: Path) -> Iterator[Path]:
    """The folder and those below it, links not followed, level by level."""
    level, seen = [root], 0
    for _ in range(_DEPTH):
        below: list[Path] = []
        for folder in level:
            seen += 1
            if seen > _LISTED:
                return
            yield folder
            inside = (path for path in _entries(folder) if not path.is_symlink())
            below += [path for path in inside if path.is_dir()]
        level = below


def _entries(folder: Path) -> list[Path]:
    """What lies in a folder, without hidden entries; nothing where it may not be read."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return []


def _stays(path: Path, root: Path) -> bool:
    """Whether a path, with all links followed, is below the root."""
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):
        return False


def _outside(name: str) -> BadUsageError:
    return BadUsageError(
        f"{name!r} is not among the files to audit", hint="choose one of those that are listed"
    )
