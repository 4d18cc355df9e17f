"""The files of a dump in their natural order, and what is stored in one of them by its first look.

Leaves out which tool wrote them (`detect`) and reading them (one module per tool).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from audit.dumps.torch_file import load_torch
from audit.errors import AuditError, NotFoundError, UnreadableError
from audit.files.paths import check_is_file
from audit.files.safetensors_file import read_safetensors
from audit.traces.find import SUFFIX as TRACE_SUFFIX

LOGITS_MAGIC = b"_logits_"
_KINDS = {
    ".safetensors": "safetensors", ".pt": "torch", ".ckpt": "torch", ".ckpt.gz": "torch",
    ".json": "json", ".txt": "text", ".raw": "text", ".bin": "binary",
}  # fmt: skip
_COMPANIONS = re.compile(
    r"^(\..*|.*-tokens\.(bin|json|txt)|.*-prompt\.txt|vocab_mapping\.pt|token_freq\.pt|"
    r"state\.json|dataset_info\.json|sample_lengths\.json|config\.json)$"
)
"""Files that tools write beside the states: lists, counts and settings."""
_LOOK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Stored:
    """What one file holds, without its values."""

    kind: str
    """`safetensors`, `torch`, `json`, `text`, `numbers`, `binary` or `logits`."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Tensors by name."""
    lists: tuple[str, ...] = ()
    """Names of lists of tensors."""

    def says(self) -> str:
        """In words, for an error."""
        parts = [f"{name} {list(shape)}" for name, shape in list(self.shapes.items())[:4]]
        return ", ".join([*parts, *self.lists]) or self.kind


def list_files(dump: Path) -> list[Path]:
    """Every file of the dump that may hold states, by name with numbers as numbers.

    Raises:
        NotFoundError: there is no such place, or it holds nothing that any tool writes.
    """
    if dump.is_dir():
        found = [
            Path(folder) / name
            for folder, _, names in os.walk(dump)
            for name in names
            if kind_of(Path(name)) and not _COMPANIONS.match(name)
        ]
        found = [path for path in found if not path.name.endswith(TRACE_SUFFIX)]
    else:
        check_is_file(dump)
        found = [dump]
    if not found:
        raise NotFoundError(
            f"{dump} holds no file of a hidden-state dump", hint=_empty_hint(dump), where=dump
        )
    return sorted(
        found, key=lambda path: _natural(path.relative_to(dump) if path != dump else path)
    )


def kind_of(path: Path) -> str | None:
    """What its suffix promises; None for files that no tool writes states into."""
    name = path.name.lower()
    return next((kind for suffix, kind in _KINDS.items() if name.endswith(suffix)), None)


def look(path: Path) -> Stored | None:
    """What the file holds by its header or first bytes; None when it can not be told.

    Raises:
        AuditError: as the readers do, for a cut file or a pickle of objects.
    """
    kind = kind_of(path)
    if _starts(path, LOGITS_MAGIC):
        return Stored("logits")
    if kind == "safetensors":
        entries, _ = read_safetensors(path)
        return Stored(kind, {name: entry.shape for name, entry in entries.items()})
    if kind == "torch":
        content = load_torch(path)
        return Stored(
            kind,
            {name: tuple(v.shape) for name, v in content.items() if isinstance(v, Tensor)},
            tuple(name for name, value in content.items() if isinstance(value, list)),
        )
    return _look_at_text(path, kind)


def _look_at_text(path: Path, kind: str | None) -> Stored | None:
    with path.open("rb") as stream:
        start = stream.read(_LOOK_BYTES)
    if kind == "binary":
        return Stored(kind)
    text = start.decode("utf-8", errors="replace").lstrip()
    if text.startswith("[[") or (text[:1] in ("{", "[") and '"embedding"' in text):
        return Stored("json")
    line = text.split("\n", 1)[0].split()
    # The last number may be cut where the look ends.
    return Stored("numbers") if len(line) > 2 and all(map(_is_number, line[:-1])) else None


def read_json(path: Path, what: str, limit: int) -> Any:
    """A JSON file's value.

    Raises:
        UnreadableError: it is too large, not JSON, or holds NaN (which JSON has not).
    """
    size = path.stat().st_size
    if size > limit:
        raise UnreadableError(
            f"{path} is {size >> 20} MiB of text, more than the {limit >> 20} MiB read as {what}",
            hint="split the texts, or use llama-debug, which writes binary",
            where=path,
        )
    try:
        return json.loads(path.read_bytes(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(
            f"{path} is not {what}: {error}",
            hint="keep only what the tool writes to stdout",
            where=path,
        ) from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _starts(path: Path, magic: bytes) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(magic)) == magic


def _natural(path: Path) -> tuple[list[tuple[int, int | str]], str]:
    """hs_2 before hs_10."""
    parts = re.split(r"(\d+)", str(path))
    keys: list[tuple[int, int | str]] = [
        (0, int(part)) if part.isdigit() else (1, part) for part in parts
    ]
    return keys, str(path)


def _empty_hint(dump: Path) -> str:
    if next(dump.rglob("*.zst"), None):
        return "decompress it first: zstd -d --rm *.zst"
    return "name the folder or file that the tool wrote"


def safe_look(path: Path) -> Stored | AuditError | None:
    """`look`, with the error instead of raising it: one bad file does not hide the others."""
    try:
        return look(path)
    except AuditError as error:
        return error
    except OSError as error:
        return NotFoundError(f"{path} can not be read: {error.strerror}", where=path)
