"""`audit dashboard`: open the app in which people look at audits and decide on heads.

Streamlit runs as a child process: it takes the signals of its process for itself, and would end a
Ctrl-C with 0. It ends with us even when we are killed (`audit.dashboard.__main__`). Its settings
are handed over, so that no file of the working folder is needed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import socket
import subprocess
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from audit.cli.frame import INTERRUPTED, Ended, Shared, shared_options
from audit.errors import AuditError, BadUsageError, MissingExtraError

_HOST = "127.0.0.1"
_USER_HEADER = "AUDIT_USER_HEADER"
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.2

_EPILOG = """\b
It listens on 127.0.0.1 only and knows no passwords. Behind a proxy that does, --user-header names
the header in which the proxy tells who signs; without one, reviews are recorded as unauthenticated.
Whoever reaches the port without the proxy can write that header, so let nobody else on the machine.
Audits that were started here go on when it is closed, and are shown when it is opened again.

\b
Examples:
  audit dashboard
  audit dashboard --ledger team/ledger --files /srv/heads --port 8600 --no-browser
  audit dashboard --user-header X-Forwarded-User
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--files", "folder", type=click.Path(path_type=Path), metavar="DIR",
    help="Audits may be started of files below this folder; else AUDIT_FILES, else of none.",
)  # fmt: skip
@click.option("--port", type=click.IntRange(1, 65535), default=8501, show_default=True)
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
@click.option(
    "--reviewer", metavar="NAME", help="Who signs here; else AUDIT_REVIEWER, else the user's name."
)
@click.option(
    "--user-header", metavar="NAME",
    help="Header in which a proxy names who signs; else AUDIT_USER_HEADER.",
)  # fmt: skip
@shared_options
def dashboard(
    shared: Shared, folder: Path | None, port: int, no_browser: bool, **who: str | None
) -> int:
    """Serve the dashboard until Ctrl-C."""
    from audit.jobs.process import own_environment, python_module

    if importlib.util.find_spec("streamlit") is None:
        raise MissingExtraError(
            "the dashboard needs Streamlit, which is not installed",
            hint="pip install 'head-audit[dashboard]'",
        )
    if folder is not None and not folder.is_dir():
        raise BadUsageError(
            "there is no such folder of files to audit", hint="--files DIR", where=folder
        )
    _check_header(who["user_header"])
    opened = shared.open_ledger()
    opened.store.children("runs")  # refuses what is no folder
    ledger = opened.where
    _check_port(port)
    own = Path(str(files("audit") / "dashboard"))
    settings = tomllib.loads((own / "config.toml").read_text(encoding="utf-8"))
    command = python_module(
        "audit.dashboard", "run", str(own / "start" / "app.py"), *_flags(settings)
    )
    command += [*_flags(_own_settings(port, no_browser)), "--"]
    for option, value in (
        ("--ledger", shared.ledger_at), ("--files", folder), ("--reviewer", who["reviewer"]),
        ("--user-header", who["user_header"]),
    ):  # fmt: skip
        command += [f"{option}={value}"] if value else []
    with _running(command, own_environment()) as server:
        _wait_until_it_answers(server, port)
        address = f"http://{_HOST}:{port}"
        if shared.as_json:
            shared.print_json({"url": address, "ledger": ledger})
        elif shared.quiet < 2:
            click.echo(f"dashboard of {ledger} at {address} · Ctrl-C stops it")
        try:
            code = server.wait()
        except KeyboardInterrupt:  # the way to close it, not an error; and one document was told
            return INTERRUPTED
        except Ended as ended:
            return ended.exit_code
    raise AuditError(f"the dashboard ended by itself, with exit code {code}", hint="start it again")


def _own_settings(port: int, no_browser: bool) -> dict[str, Any]:
    """What depends on the options. Without a display Streamlit opens no browser by itself."""
    from audit.jobs.uploads import UPLOAD_BYTES

    server: dict[str, Any] = {
        "address": _HOST, "port": port, "maxUploadSize": UPLOAD_BYTES >> 20,
        "showEmailPrompt": False,
    }  # fmt: skip
    headless = {"headless": True} if no_browser else {}
    return {"server": server | headless, "logger": {"level": "warning"}}


def _flags(settings: dict[str, Any], before: str = "--") -> list[str]:
    """Settings as options of `streamlit run`; it reads a list as JSON."""
    out: list[str] = []
    for name, value in settings.items():
        if isinstance(value, dict):
            out += _flags(value, f"{before}{name}.")
        elif isinstance(value, list):
            out.append(f"{before}{name}={json.dumps(value)}")
        else:
            out.append(f"{before}{name}={str(value).lower() if value in (True, False) else value}")
    return out


def _check_header(given: str | None) -> None:
    """Refuse a name that no header can have: nobody could ever sign."""
    name = os.environ.get(_USER_HEADER) or None if given is None else given
    if name is not None and not _HEADER.fullmatch(name):
        raise BadUsageError(
            f"no header is called {name!r}",
            hint="give its name alone, for instance --user-header X-Forwarded-User",
        )


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        # As the server does: a port that was closed a moment ago is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError as error:
            raise BadUsageError(
                f"port {port} can not be used: {error.strerror}",
                hint="choose another with --port; a dashboard may be open there already",
            ) from error


@contextmanager
def _running(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The server; whatever ends the block ends the server too."""
    server = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment
    )
    try:
        yield server
    finally:
        server.terminate()
        try:
            server.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        finally:
            assert server.stdin is not None
            server.stdin.close()


def _wait_until_it_answers(server: subprocess.Popen[bytes], port: int) -> None:
    waited = 0.0
    while server.poll() is None and waited < _START_SECONDS:
        try:
            with urllib.request.urlopen(f"http://{_HOST}:{port}/_stcore/health", timeout=2):
                return
        except OSError:
            waited += _POLL_SECONDS
            try:
                server.wait(_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                continue
    raise AuditError("the dashboard did not start", hint="what Streamlit said of it stands above")
