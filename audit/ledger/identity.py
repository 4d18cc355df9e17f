"""Files and database know each other, so that a database never mixes the runs of two ledgers.

The name is in the file `ledger-id` and in the database. AUDIT_DB_URL may be set while another
folder is named, a share may not be mounted: both would else look like lost runs.
"""

from __future__ import annotations

import uuid

from sqlalchemy import Connection, select

from audit.errors import MismatchError
from audit.ledger import schema
from audit.ledger.database import ENVIRONMENT, Database, insert_new
from audit.ledger.keep import CALIBRATIONS, POLICIES
from audit.ledger.runs import FOLDER, RunFiles
from audit.ledger.store import Store

FILE = "ledger-id"


def identify(database: Database, store: Store, *, writes: bool) -> bool:
    """Check that database and files are of one ledger; name both when they have no name yet.

    Args:
        writes: whether names may be given.

    Returns:
        Whether both bear the same name now.

    Raises:
        MismatchError: they are of two ledgers.
    """
    here, there = _file(store), database.read(_row)
    if here is None and there is not None and not _holds_runs_of(database, store):
        here = _file(store)  # another program may have written it just now
        if here is None:
            raise _mismatch(database)
    if here is not None and there is not None and here != there:
        raise _mismatch(database)
    if here is not None and here == there:
        return True
    if not writes:
        return False
    wanted = here or there or uuid.uuid4().hex

    def agree(connection: Connection) -> str:
        insert_new(connection, schema.identity, [{"place": 1, "ledger": wanted}])
        return str(connection.execute(select(schema.identity.c.ledger)).scalar_one())

    # Of several programs that start a ledger, one names it; a crash before the file is written
    # leaves a database without runs, which the next program takes over.
    name = database.write(agree)
    if here is None:
        store.write(FILE, f"{name}\n".encode())
    elif here != name:
        raise _mismatch(database)
    return True


def is_started(store: Store) -> bool:
    """Whether a ledger is there: its name, or files of one that has no database yet."""
    folders = (FOLDER, CALIBRATIONS, POLICIES)
    return _file(store) is not None or any(store.children(folder) for folder in folders)


def lost_index(database: Database, store: Store) -> bool:
    """Whether the ledger has a name that its database does not know: it is not the one it had."""
    return _file(store) is not None and database.read(_row) is None


def _file(store: Store) -> str | None:
    try:
        return store.read(FILE).decode(errors="replace").strip() or None
    except (FileNotFoundError, NotADirectoryError):
        return None


def _row(connection: Connection) -> str | None:
    return connection.execute(select(schema.identity.c.ledger)).scalar()


def _holds_runs_of(database: Database, store: Store) -> bool:
    """Whether the store has any run of the database, or the database has nothing to have."""
    tables = (schema.runs, schema.reviews, schema.waivers, schema.judgements)

    def work(connection: Connection) -> tuple[set[str], bool]:
        known = set(connection.execute(select(schema.runs.c.id)).scalars().all())
        used = any(connection.execute(select(t.c.id).limit(1)).first() for t in tables)
        return known, used

    known, used = database.read(work)
    files = RunFiles(store)
    return not used or any(files.has(run) for run in files.names() if run in known)


def _mismatch(database: Database) -> MismatchError:
    return MismatchError(
        "this database is the index of another ledger",
        hint=f"give each ledger a database of its own: {ENVIRONMENT} is for one of them",
        where=database.shown,
    )
