"""What a trace file says of itself, read and validated without reading any state.

Leaves out the tensors (`trace`, `checks`): what is already there must be told from thousands of
positions in no time (`suite`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError
from safetensors import SafetensorError, safe_open

from audit.errors import NotFoundError, UnreadableError, first_wrong
from audit.records import SCHEMA_VERSION, TraceInfo

METADATA_KEY = "trace"
"""The one metadata key: with several, safetensors writes them in an order that varies."""


def is_trace(path: Path) -> bool:
    """Whether the file claims to be a trace; never raises for what it holds."""
    if not path.is_file():
        return False
    try:
        with safe_open(path, framework="numpy") as stored:
            return METADATA_KEY in (stored.metadata() or {})
    except (SafetensorError, OSError):
        return False


def read_info(path: Path) -> TraceInfo:
    """A trace's description. The file's length is checked, its tensors are not.

    Raises:
        NotFoundError: there is no such file.
        UnreadableError: it is cut or is no trace.
    """
    check_place(path)
    try:
        with safe_open(path, framework="numpy") as stored:
            metadata = stored.metadata()
    except (SafetensorError, OSError, ValueError) as error:
        raise not_safetensors(path, error) from error
    return parse_info(metadata, path)


def check_place(path: Path) -> None:
    """Raise NotFoundError or UnreadableError unless there is a file."""
    if not path.exists():
        raise NotFoundError(
            f"there is no trace at {path}", hint="make one with `audit capture`", where=path
        )
    if path.is_dir():
        raise UnreadableError(
            f"{path} is a folder, not a trace", hint="name the file inside it", where=path
        )


def not_safetensors(path: Path, error: Exception) -> UnreadableError:
    """The error for a file that the safetensors library refuses."""
    return UnreadableError(
        f"{path} cannot be read as a safetensors file: {error}",
        hint="the file is cut or is something else; copy it again or capture it anew",
        where=path,
    )


def parse_info(metadata: Mapping[str, str] | None, path: Path) -> TraceInfo:
    """The description in a file's metadata. Raises UnreadableError where missing or invalid."""
    if METADATA_KEY not in (metadata or {}):
        raise UnreadableError(
            f"{path} is a safetensors file but not a trace: its metadata has no key "
            f"`{METADATA_KEY}`",
            hint="a trace is what `audit capture` writes; is this a file of weights?",
            where=path,
        )
    try:
        fields = json.loads((metadata or {})[METADATA_KEY], parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise bad_metadata(path, str(error)) from error
    if not isinstance(fields, dict):
        raise bad_metadata(path, "it is not a JSON object")
    version: Any = fields.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise UnreadableError(
            f"{path} has trace schema {version}, newer than {SCHEMA_VERSION}, "
            "the newest this version reads",
            hint="upgrade head-audit",
            where=path,
        )
    try:
        return TraceInfo.model_validate(fields)
    except ValidationError as error:
        raise bad_metadata(path, first_wrong(error, "the whole")) from error


def bad_metadata(path: Path, reason: str) -> UnreadableError:
    """The error for a description that no trace can have."""
    return UnreadableError(
        f"the trace metadata of {path} is invalid: {reason}",
        hint="capture the trace anew; its metadata was not written by `audit capture`",
        where=path,
    )


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
