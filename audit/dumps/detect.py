"""Which tool wrote a dump: by what is stored, never by the folder's name.

The first files of each kind are looked at; a dump that fits no tool or several is refused with the
list of tools.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from audit.dumps.listing import Stored, kind_of, list_files, safe_look
from audit.dumps.llamacpp import LlamaCppReader
from audit.dumps.reader import Reader
from audit.dumps.speculators import OldSpeculatorsReader, SpeculatorsReader
from audit.dumps.training import EagleReader, ModelOptReader, SpecForgeReader
from audit.dumps.vllm import VllmReader
from audit.errors import AuditError, BadUsageError, UnsupportedFormatError

READERS: dict[str, type[Reader]] = {
    reader.name: reader
    for reader in (
        SpeculatorsReader, OldSpeculatorsReader, VllmReader, SpecForgeReader, EagleReader,
        ModelOptReader, LlamaCppReader,
    )
}  # fmt: skip
_LOOKED_AT = 3
"""Files of each kind; what does not fit beyond them is refused when it is read."""


def open_dump(
    dump: Path, wanted: str = "auto", tokens: Path | None = None, limit: int | None = None
) -> Reader:
    """The reader of a dump, with its files.

    Args:
        dump: a folder or one file.
        wanted: a name of `READERS`, or `auto`.
        tokens: token ids for states that came without them.
        limit: use only this many files, the first ones.

    Raises:
        NotFoundError: there is nothing.
        UnsupportedFormatError: no tool fits; or the file holds logits only.
        BadUsageError: several tools fit (AMBIGUOUS).
    """
    files = list_files(dump)
    looks = _first_looks(files)
    found = _found(looks) if wanted == "auto" else _wanted(looks, READERS[wanted])
    if len(found) > 1:
        raise BadUsageError(
            f"{dump} holds files of several tools: {', '.join(found)}",
            hint=f"choose one: --format {' or '.join(found)}; or name a folder that holds only one",
            where=dump,
            code="AMBIGUOUS",
        )
    if not found:
        raise _none_fits(dump, looks, wanted)
    name, kind = next(iter(found.items()))
    return READERS[name](dump, _of_kind(files, kind)[:limit], tokens)


Looks = Sequence[tuple[Path, Stored | AuditError | None]]


def _first_looks(files: Sequence[Path]) -> Looks:
    counts: dict[str | None, int] = {}
    looks = []
    for path in files:
        kind = kind_of(path)
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] <= _LOOKED_AT:
            looks.append((path, safe_look(path)))
    return looks


def _found(looks: Looks) -> dict[str, str]:
    """Kind of file by tool: of the tools that fit a file the first counts, the most special."""
    found = {}
    for path, stored in looks:
        fitting = [
            name
            for name, reader in READERS.items()
            if isinstance(stored, Stored) and reader.fits(path, stored)
        ]
        if fitting and isinstance(stored, Stored):
            found[fitting[0]] = kind_of(path) or stored.kind
    return found


def _wanted(looks: Looks, reader: type[Reader]) -> dict[str, str]:
    for path, stored in looks:
        if isinstance(stored, Stored) and reader.fits(path, stored):
            return {reader.name: kind_of(path) or stored.kind}
    return {}


def _of_kind(files: Sequence[Path], kind: str) -> list[Path]:
    """All files of the kind, so that one that does not fit is refused and not left out."""
    same = [path for path in files if (kind_of(path) or kind) == kind]
    if kind == "binary":
        return [path for path in same if path.stem.endswith("-embeddings")]
    return same


def _none_fits(dump: Path, looks: Looks, wanted: str) -> AuditError:
    """Why nothing fits: a file's own error where there is one, else what was found."""
    for _, stored in looks:
        if isinstance(stored, AuditError):
            return stored
    if any(isinstance(stored, Stored) and stored.kind == "logits" for _, stored in looks):
        return UnsupportedFormatError(
            f"{dump} holds logits of llama-perplexity and no states, so it can not be a trace",
            hint="give the dump of the states, and this file with --oracle-from",
            where=dump,
            code="NO_STATES",
        )
    path, stored = looks[0]
    held = stored.says() if isinstance(stored, Stored) else "nothing that was recognised"
    tool = "any known tool" if wanted == "auto" else f"{wanted} ({READERS[wanted].holds})"
    tools = "; ".join(f"{name}: {reader.holds}" for name, reader in READERS.items())
    return UnsupportedFormatError(
        f"{dump} is not a dump of {tool}: {path.name} holds {held}",
        hint=f"read are {tools}",
        where=path,
    )
