"""Files that came through the browser: names made harmless, sizes bounded.

What is in them is not looked at here; the audit reads them as it reads any stranger's file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from audit.errors import BadUsageError
from audit.words import some

UPLOAD_BYTES = 1 << 30
"""The most that one file may have."""
SUFFIXES = (".safetensors", ".gguf", ".toml", ".txt")
FOLDER = "files"
_NAME_LENGTH = 100
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Upload:
    """One file as it arrived."""

    name: str
    """As the browser tells it: anything at all."""
    content: BinaryIO
    """At its beginning."""


def safe_name(name: str) -> str:
    """A plain file name for what a browser calls `name`: no folders, no hidden file, ASCII.

    Raises:
        BadUsageError: a kind of file that no audit takes.
    """
    last = re.split(r"[/\\]", name)[-1]
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", last).lstrip("._-")
    suffix = next((one for one in SUFFIXES if plain.lower().endswith(one)), None)
    if suffix is None or len(plain) == len(suffix):
        raise BadUsageError(
            f"a file called {last[:_NAME_LENGTH]!r} can not be uploaded",
            hint=f"its name must end in {', '.join(SUFFIXES)}",
        )
    stem = plain[: -len(suffix)]
    if suffix == ".safetensors" and stem.lower().endswith(".trace"):
        stem, suffix = stem[: -len(".trace")], ".trace.safetensors"
    return stem[: _NAME_LENGTH - len(suffix)] + suffix.lower()


def safe_names(uploads: Sequence[Upload]) -> list[str]:
    """One name for each. Raises BadUsageError where two would be the same file."""
    names = [safe_name(upload.name) for upload in uploads]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BadUsageError(
            f"two uploads are called {some(twice)}", hint="rename one of them and upload it again"
        )
    return names


def store(uploads: Sequence[Upload], folder: Path, most: int = UPLOAD_BYTES) -> None:
    """Write uploads into a new folder under their harmless names.

    Raises:
        BadUsageError: a file is too large, or none that is taken.
    """
    if not uploads:
        return
    folder.mkdir()
    for upload, name in zip(uploads, safe_names(uploads), strict=True):
        left = most
        with (folder / name).open("xb") as stream:
            while chunk := upload.content.read(_CHUNK_BYTES):
                left -= len(chunk)
                if left < 0:
                    raise BadUsageError(
                        f"{name} is larger than {most >> 20:,} MiB",
                        hint="put it into the folder that the dashboard serves files from",
                    )
                stream.write(chunk)
