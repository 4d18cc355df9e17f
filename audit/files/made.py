"""What a file says of how `audit forge` made it, under one metadata key, as JSON.

Anybody can write that, so it is a hint on what is meant and never evidence of what is there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from audit.errors import AuditError
from audit.files.gguf_file import read_gguf
from audit.files.paths import file_kind
from audit.files.safetensors_file import read_safetensors

MADE_KEY = "forge"


def made_by_forge(metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a container's metadata says of how it was forged; None where it does not."""
    try:
        about = json.loads(metadata[MADE_KEY])
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return about if isinstance(about, dict) else None


def is_forged(path: Path) -> bool:
    """True for a head that `audit forge` wrote; False for anything else and what is not there."""
    try:
        read = read_gguf if file_kind(path) == "gguf" else read_safetensors
        _, metadata = read(path)
    except (AuditError, OSError):
        return False
    return made_by_forge(metadata) is not None
