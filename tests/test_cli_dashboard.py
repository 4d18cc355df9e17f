"""`audit dashboard`: what it hands to Streamlit, what it refuses, how it ends."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from streamlit import config

from audit.cli.dashboard import _flags, _own_settings
from audit.cli.main import group

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "audit" / "dashboard" / "config.toml"


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def refused(*args: str) -> dict[str, str]:
    done = CliRunner().invoke(group, ["dashboard", *args, "--json"])
    assert done.exit_code == 2, done.output
    error: dict[str, str] = json.loads(done.stdout)["error"]
    assert error["hint"]
    return error


def test_a_port_that_is_taken_is_one_sentence(taken: int) -> None:
    error = refused("--port", str(taken))
    assert f"port {taken} can not be used" in error["message"] and "--port" in error["hint"]


def test_without_streamlit_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "streamlit" else real(name)
    )
    error = refused()
    assert error["kind"] == "missing_extra" and "head-audit[dashboard]" in error["hint"]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert "no such folder" in refused("--files", str(tmp_path / "none"))["message"]


def test_a_ledger_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "ledger").write_text("no folder")
    assert "can not be read" in refused("--ledger", str(tmp_path / "ledger"))["message"]


@pytest.mark.parametrize("name", ["X Bad: y", "X-User:", "", "Ä", "X-User\nX"])
def test_a_header_that_none_can_be(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no header is called" in refused("--user-header", name)["message"]
    if name:
        monkeypatch.setenv("AUDIT_USER_HEADER", name)
        assert "no header is called" in refused()["message"]


def test_every_setting_is_one_that_streamlit_knows() -> None:
    """As options they must read as the file does: lists as JSON, truth as a word."""
    settings = tomllib.loads(CONFIG.read_text())
    flags = dict(flag[2:].split("=", 1) for flag in _flags(settings))
    known = {option.key: option for option in config._config_options_template.values()}
    assert set(flags) <= set(known) and not any(known[key].sensitive for key in flags)
    colours = settings["theme"]["chartCategoricalColors"]
    assert json.loads(flags["theme.chartCategoricalColors"]) == colours and len(colours) > 3
    assert flags["browser.gatherUsageStats"] == "false"
    assert flags["theme.dark.backgroundColor"] == settings["theme"]["dark"]["backgroundColor"]
    own = dict(flag[2:].split("=", 1) for flag in _flags(_own_settings(8600, True)))
    assert set(own) <= set(known)
    assert own["server.address"] == "127.0.0.1" and own["server.headless"] == "true"
    assert "server.headless" not in dict(
        flag[2:].split("=", 1) for flag in _flags(_own_settings(8600, False))
    )


def started(tmp_path: Path) -> tuple[subprocess.Popen[str], int]:
    """The command at work, and its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "audit", "dashboard", "--port", str(port), "--no-browser",
               "--ledger", "here"]  # fmt: skip
    server = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, start_new_session=True,
        # A shell's background job ignores it, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert server.stdout is not None
    line = server.stdout.readline()
    assert line == f"dashboard of here at http://127.0.0.1:{port} · Ctrl-C stops it\n"
    return server, port


def test_killed_it_leaves_nobody_at_the_port(tmp_path: Path) -> None:
    server, port = started(tmp_path)
    server.kill()
    server.wait()
    for _ in range(200):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=2).close()
        except OSError:
            break
        time.sleep(0.1)
    else:
        pytest.fail("Streamlit lives on")
    for stream in (server.stdout, server.stderr):
        assert stream is not None
        stream.close()


def test_it_serves_from_any_folder_until_ctrl_c(tmp_path: Path) -> None:
    server, port = started(tmp_path)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/new_audit", timeout=20) as page:
        assert b"<title>" in page.read()
    os.killpg(server.pid, signal.SIGINT)
    out, err = server.communicate(timeout=30)
    assert (server.returncode, out) == (130, "") and "Traceback" not in err
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2)
    assert list(tmp_path.iterdir()) == [], "looking makes no ledger"
