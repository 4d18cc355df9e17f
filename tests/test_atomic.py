"""Files that appear whole or not at all: exceptions, kills at any moment, two writers at once."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from audit.atomic import atomic_path, remove_leftovers

WRITER = """
import sys, time
from pathlib import Path
from audit.atomic import atomic_path
with atomic_path(Path(sys.argv[1])) as temporary:
    (temporary.parent / "library's own").write_text("x")
    temporary.write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


def start_writer(path: Path) -> subprocess.Popen[str]:
    """A process that is in the middle of writing `path` when this returns."""
    command = [sys.executable, "-c", WRITER, str(path)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None and writer.stdout.readline() == "writing\n"
    return writer


def end(writer: subprocess.Popen[str], how: signal.Signals) -> None:
    writer.send_signal(how)
    writer.wait(timeout=30)
    assert writer.stdout is not None
    writer.stdout.close()


def test_the_file_appears_at_the_end_with_an_ordinary_mode(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    with atomic_path(path) as temporary:
        temporary.touch(0o600)
        temporary.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole" and list(path.parent.iterdir()) == [path]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_leaves_what_was_there(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(error), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise error
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]


def test_the_next_writer_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    path = tmp_path / "file"
    end(start_writer(path), signal.SIGKILL)
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".file.") and left.name.endswith(".part")
    with atomic_path(path) as temporary:
        temporary.write_text("whole")
    assert list(tmp_path.iterdir()) == [path]


def test_a_living_writer_is_left_alone_and_other_files_too(tmp_path: Path) -> None:
    path = tmp_path / "file"
    (tmp_path / ".file.mine").write_text("x")
    (tmp_path / ".other.abc.part").mkdir()
    before = {found.name for found in tmp_path.iterdir()}
    writer = start_writer(path)
    try:
        assert len({found.name for found in tmp_path.iterdir()} - before) == 1
        with atomic_path(path) as temporary:
            temporary.write_text("second")
        assert len({found.name for found in tmp_path.iterdir()} - before - {"file"}) == 1
    finally:
        end(writer, signal.SIGKILL)
    remove_leftovers(path)
    assert {found.name for found in tmp_path.iterdir()} == before | {"file"}


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    end(start_writer(tmp_path / "file"), signal.SIGINT)
    assert list(tmp_path.iterdir()) == []


def test_removing_leftovers_where_nothing_is(tmp_path: Path) -> None:
    remove_leftovers(tmp_path / "none" / "file")
    assert not (tmp_path / "none").exists()


def test_many_writers_and_sweepers_at_once_never_lose_a_file(tmp_path: Path) -> None:
    """Each of several processes writes and sweeps the same file over and over."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom audit.atomic import atomic_path\n"
        "for i in range(100):\n"
        "    with atomic_path(Path(sys.argv[1])) as t: t.write_text('x' * 1000)\n"
    )
    path = tmp_path / "file"
    racers = [subprocess.Popen([sys.executable, "-c", code, str(path)]) for _ in range(3)]
    until = time.monotonic() + 120
    codes = [racer.wait(timeout=max(1, until - time.monotonic())) for racer in racers]
    assert codes == [0, 0, 0]
    assert path.read_text() == "x" * 1000 and list(tmp_path.iterdir()) == [path]
