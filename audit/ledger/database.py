"""One database, SQLite or PostgreSQL: short transactions, writers in turn, every write repeatable.

Each piece of work runs in a transaction of its own and again from the start when another writer was
in the way, so it must do the same when repeated. Connections are not kept: a process may fork, and
a server may restart, at any time. Knows no tables.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import sqlite3
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, make_url
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool, StaticPool

from audit.errors import BadUsageError, MissingExtraError, UnreadableError, first_line

ENVIRONMENT = "AUDIT_DB_URL"
_BUSY_SECONDS = 30
_RETRIES = 12
_LONGEST_WAIT = 2.0
_PASSING = {"40001", "40P01", "55P03"}
"""PostgreSQL's serialization failure, deadlock and lock not available."""
_NETWORKS = re.compile(r"nfs\d?|cifs|smb.*|9p|afs|ceph|lustre|gpfs|glusterfs|fuse\..*|virtiofs")
_DRIVERS = {
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
}
T = TypeVar("T")


class Database:
    """Where reviews and the index are."""

    def __init__(self, url: URL) -> None:
        self.url = url
        self.shown = url.render_as_string(hide_password=True)
        """The URL for people, without its password."""
        self._engine = _engine(url)

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._engine.dialect.name

    def read(self, work: Callable[[Connection], T]) -> T:
        """What `work` returns, in one transaction that sees one state of the database."""
        return self._run(work, "REPEATABLE READ")

    def write(self, work: Callable[[Connection], T], *, isolation: str = "SERIALIZABLE") -> T:
        """What `work` returns, once it is committed.

        Whatever it read to decide what to write still holds then; SQLite's writers are in turn.
        """
        return self._run(work, isolation, writes=True)

    def _run(self, work: Callable[[Connection], T], isolation: str, writes: bool = False) -> T:
        options: dict[str, Any] = {"writes": writes}
        if self.dialect == "postgresql":
            options["isolation_level"] = isolation
        for attempt in count():
            try:
                with self._engine.connect() as plain:
                    connection = plain.execution_options(**options)
                    with connection.begin():
                        return work(connection)
            except DBAPIError as error:
                if attempt == _RETRIES or not _passes(error):
                    raise self._refusal(error) from error
                time.sleep(random.uniform(0, min(_LONGEST_WAIT, 0.02 * 2**attempt)))
        raise AssertionError("count() ended")

    def _refusal(self, error: DBAPIError) -> UnreadableError:
        why = first_line(error.orig) if isinstance(error.orig, Exception) else first_line(error)
        hint = f"check that it is reachable and whole; {ENVIRONMENT} names it"
        if self.dialect == "sqlite" and not os.environ.get(ENVIRONMENT):
            hint = (
                "put a copy of it back; or remove it: runs are indexed again from their files, but "
                "reviews, waivers and judgements are nowhere else"
            )
        return UnreadableError(
            f"the ledger's database can not be used: {why}", hint=hint, where=self.shown
        )


def parse_url(text: str) -> URL:
    """A database's URL as SQLAlchemy writes them, for instance postgresql://user@host/audit.

    Raises:
        BadUsageError: no URL, or neither SQLite nor PostgreSQL.
    """
    try:
        url = make_url(text)
        found = url.set(drivername=_DRIVERS[url.drivername])
        if not found.database or found.database == ":memory:":
            raise ValueError("it names no file, so nothing would be kept")
        return found
    except (ArgumentError, KeyError, ValueError) as error:
        raise BadUsageError(
            "the ledger's database must be sqlite:///FILE or postgresql://USER@HOST/NAME",
            hint=f"set {ENVIRONMENT} so, or leave it out for a file beside the runs",
        ) from error


def sqlite_file(path: Path) -> URL:
    """The URL of a SQLite file, whatever characters its path has."""
    return URL.create("sqlite", database=str(path))


def insert_new(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> int:
    """Insert rows, leaving alone what is there already; return how many were new."""
    if not rows:
        return 0
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(table).on_conflict_do_nothing()
    return sum(connection.execute(statement.values(row)).rowcount for row in rows)


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "postgresql":
        try:
            return create_engine(url, poolclass=NullPool)
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                "PostgreSQL needs psycopg, which is not installed",
                hint="pip install 'head-audit[postgres]'",
            ) from error
    in_memory = url.database in (None, "", ":memory:")
    pool = StaticPool if in_memory else NullPool
    engine = create_engine(url, poolclass=pool, connect_args={"timeout": _BUSY_SECONDS})
    journal = "DELETE" if in_memory or _is_far(Path(url.database or "")) else "WAL"

    @event.listens_for(engine, "connect")
    def on_connect(connection: sqlite3.Connection, record: object) -> None:
        connection.isolation_level = None  # transactions begin where `on_begin` says
        # Where the journal can not be chosen (no shared memory, or just now in use) any will do.
        with contextlib.suppress(sqlite3.OperationalError):
            connection.execute(f"PRAGMA journal_mode={journal}").close()

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        # A writer that first reads would fail, not wait, when another one writes in between.
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _passes(error: DBAPIError) -> bool:
    """Whether another writer was in the way, so that trying again helps."""
    if isinstance(error.orig, sqlite3.OperationalError):
        return "locked" in str(error.orig) or "busy" in str(error.orig)
    return error.connection_invalidated or getattr(error.orig, "sqlstate", None) in _PASSING


def _is_far(path: Path) -> bool:
    """Whether a path lies on a network file system, where SQLite's WAL loses data between hosts."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return False
    return bool(_NETWORKS.fullmatch(file_system(path.absolute().resolve(), mounts)))


def file_system(path: Path, mounts: str) -> str:
    """The type of the file system that holds a path, by the text of /proc/mounts; or ``."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        _, point, found, *_ = [*line.split(" "), "", "", ""]
        place = Path(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), point))
        if path.is_relative_to(place) and len(place.parts) >= best:
            best, kind = len(place.parts), found
    return kind
