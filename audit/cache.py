"""Where this program keeps what it can make again: captured traces, drawn text, queues of jobs."""

from __future__ import annotations

import os
from pathlib import Path

ENVIRONMENT = "AUDIT_CACHE"


def cache_folder() -> Path:
    """AUDIT_CACHE, or head-audit in the user's cache folder."""
    given = os.environ.get(ENVIRONMENT)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(base) / "head-audit"
