"""Where the jobs of a ledger lie: in its folder, or in a local cache where it is no folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

from audit.cache import cache_folder
from audit.ledger import Ledger
from audit.ledger.store import LocalStore

FOLDER = "jobs"
_HASH_DIGITS = 16


def jobs_folder(ledger: Ledger) -> Path:
    """The folder of this ledger's jobs, absolute; it may not be there yet."""
    if isinstance(ledger.store, LocalStore):
        return (ledger.store.folder / FOLDER).absolute()
    name = hashlib.sha256(ledger.where.encode()).hexdigest()[:_HASH_DIGITS]
    return (cache_folder() / FOLDER / name).absolute()


def ledger_place(ledger: Ledger) -> str:
    """The ledger as `--ledger` takes it, from whatever folder."""
    store = ledger.store
    return str(store.folder.absolute()) if isinstance(store, LocalStore) else ledger.where
