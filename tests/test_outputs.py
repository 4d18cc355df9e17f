"""Where results go: tried before the work, never over anything else, and cleared by any signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from audit.atomic import atomic_path
from audit.cli import main
from audit.errors import BadUsageError
from audit.files.made import is_forged
from audit.outputs import unwritable
from tests.audit_files import head_weight, make_trace, write_head


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("AUDIT_TRACES", "AUDIT_LEDGER"):
        monkeypatch.delenv(name, raising=False)
    write_head(tmp_path / "ref.safetensors", head_weight())
    make_trace(tmp_path / "code.trace.safetensors", head_weight())
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("words")
    return tmp_path


def audit(*args: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    assert isinstance(stop.value.code, int)
    return stop.value.code


def refused(capsys: pytest.CaptureFixture[str], words: str, *args: str) -> None:
    assert audit(*args, "--json") == 2
    captured = capsys.readouterr()
    error = json.loads(captured.out)["error"]
    assert words in error["message"] and error["hint"] and "Traceback" not in captured.err


def contents(place: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}


IMPOSSIBLE = [
    ("folder", "this is a folder"),
    ("file/x", "file is not a folder"),
    ("/proc/x", "No such file"),
    ("a/b/" + "n" * 300, "too long"),
]


@pytest.mark.parametrize(("name", "words"), IMPOSSIBLE)
def test_places_where_nothing_can_be_written(place: Path, name: str, words: str) -> None:
    before = sorted(place.rglob("*"))
    path = Path(name) if name == "folder" else Path(f"{name}.safetensors")
    assert words in unwritable(path)
    assert sorted(place.rglob("*")) == before
    if path.suffix:
        with pytest.raises((BadUsageError, OSError)), atomic_path(path) as temporary:
            temporary.write_text("words")
    assert not [found for found in place.rglob("*") if ".part" in found.name]


def test_places_where_it_can(place: Path) -> None:
    for name in ("new", "a/b/new", "file", "n" * 250):
        assert unwritable(Path(name)) == ""
        assert not Path(name).exists() or name == "file"
    assert not Path("a").exists() and Path("file").read_text() == "words"
    with atomic_path(Path("n" * 250)) as temporary:  # the temporary name is no longer
        temporary.write_text("words")
    assert Path("n" * 250).read_text() == "words"


@pytest.mark.parametrize(("name", "words"), IMPOSSIBLE)
def test_forge_tries_its_output_first(
    place: Path, name: str, words: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("audit.pair.load_ref", lambda *args: pytest.fail("it was loaded"))
    path = name if name == "folder" else f"{name}.safetensors"
    refused(capsys, words, "forge", "ref.safetensors", "--cut", "f16", "-o", path)


def test_capture_tries_its_output_first(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "audit.traces.verifier.load_verifier", lambda *args: pytest.fail("it was loaded")
    )
    for name in ("/proc/x.trace.safetensors", "n" * 300 + ".trace.safetensors"):
        refused(capsys, "cannot be written", "capture", "m", "--text", "file", "-o", name)


@pytest.mark.parametrize("command", ["study", "compare"])
def test_a_ledger_is_tried_first(
    place: Path, command: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name in ("audit.study.run_study", "audit.run.audit_heads"):
        monkeypatch.setattr(name, lambda *args: pytest.fail("it was run"))
    files = ["ref.safetensors"] + ["ref.safetensors"] * (command == "compare")
    for ledger in ("/proc/foo", "file/ledger"):
        refused(capsys, "the ledger can not be written", command, *files, "--ledger", ledger)


def test_a_studys_report_is_tried_first(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("audit.study.run_study", lambda *args: pytest.fail("it was run"))
    for name in ("/proc/x.html", "file/x.md"):
        words = "the report can not be written"
        refused(capsys, words, "study", "ref.safetensors", "--report", name)


def test_forge_replaces_only_what_it_made(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card = place / "ranks.txt"
    card.write_text("\n".join(map(str, range(50))))
    os.link(place / "ref.safetensors", place / "linked.safetensors")
    before = contents(place)
    common = ("forge", "ref.safetensors", "--cut", "noise:0.1")
    for name, words in (
        ("ref.safetensors", "what the cut is made from"),
        ("linked.safetensors", "what the cut is made from"),
        ("code.trace.safetensors", "what the cut is made from"),
    ):
        for force in ((), ("--force",)):
            more = ("--trace", "code.trace.safetensors", "-o", name, *force)
            refused(capsys, words, *common, *more)
    refused(capsys, "made from", "forge", "ref.safetensors", "--cut", f"trim:{card}",
            "-o", card)  # fmt: skip
    refused(capsys, "did not make it", *common, "-o", "file")
    refused(capsys, "not a regular file", *common, "-o", "/dev/null", "--force")
    write_head(place / "other.safetensors", head_weight(3))
    refused(capsys, "did not make it", *common, "-o", "other.safetensors")
    assert contents(place) == before | {
        place / "other.safetensors": (place / "other.safetensors").read_bytes()
    }
    assert audit(*common, "-o", "other.safetensors", "--force") == 0
    assert is_forged(place / "other.safetensors")
    first = (place / "other.safetensors").read_bytes()
    assert audit(*common, "--seed", "1", "-o", "other.safetensors") == 0
    assert (place / "other.safetensors").read_bytes() != first
    assert not is_forged(place / "ref.safetensors") and not is_forged(place / "none")
    assert not is_forged(place / "file")


def test_what_a_file_says_of_itself_is_not_trusted() -> None:
    from audit.files.made import made_by_forge

    for text in ("[1]", "3", "{", "[" * 100_000, None, 7):
        assert made_by_forge({"forge": text}) is None
    assert made_by_forge({}) is None and made_by_forge({"forge": '{"a": 1}'}) == {"a": 1}


_KILLED = """
import os, signal, sys, time
os.fsync = lambda handle: (os.kill(os.getpid(), signal.{name}), time.sleep(60))
from audit.cli import main
main(["forge", "ref.safetensors", "--cut", "f16", "-o", "out.safetensors", *sys.argv[1:]])
"""


@pytest.mark.parametrize(
    ("name", "code", "more"),
    [
        ("SIGTERM", 143, "--json"),
        ("SIGTERM", 143, "-q"),
        ("SIGHUP", 129, "-q"),
        ("SIGINT", 130, "-q"),
    ],
)
def test_a_signal_leaves_nothing_half_written(place: Path, name: str, code: int, more: str) -> None:
    """It comes when all is written and not yet renamed."""
    before = sorted(place.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-c", _KILLED.format(name=name), more],
        cwd=place, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr and sorted(place.rglob("*")) == before
    said = json.loads(done.stdout)["error"]["message"] if more == "--json" else done.stderr
    assert "nothing half-written was left" in said


def test_handlers_are_put_back_and_ignored_signals_stay_ignored(place: Path) -> None:
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert audit("--version") == 0
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
