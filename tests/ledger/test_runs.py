"""Runs kept and read again: content ids, half-written runs, changed files, older and newer."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from audit.errors import BadUsageError, NotFoundError, UnreadableError
from audit.ledger import Ledger, content_id, open_ledger
from tests.ledger.made import TABLE, a_run


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return open_ledger(tmp_path)


def test_saved_and_read_again(ledger: Ledger) -> None:
    saved = ledger.save_run(a_run(), [TABLE])
    assert saved.run == content_id(saved) and saved.positions_sha256
    assert ledger.load_run(saved.run) == saved
    assert ledger.load_positions(saved)["cand"].tolist() == [1, 3]
    assert list(ledger.load_positions(saved, ["cand", "ref"]).columns) == ["cand", "ref"]
    assert ledger.load_positions(saved)["kl_nats"].isna().all()


def test_the_same_content_is_one_run(ledger: Ledger, tmp_path: Path) -> None:
    first, again = (ledger.save_run(a_run(), [TABLE]) for _ in range(2))
    other = ledger.save_run(a_run(seed=1), [TABLE])
    assert first == again and ledger.run_ids() == sorted([first.run, other.run])
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ledger.run_ids()
    assert [row.run for row in ledger.runs().runs] == [other.run, first.run]


def test_a_run_is_readable_by_others(ledger: Ledger, tmp_path: Path) -> None:
    saved = ledger.save_run(a_run(), [TABLE])
    assert stat.S_IMODE((tmp_path / "runs" / saved.run).stat().st_mode) == 0o755


def test_a_run_without_its_document_is_completed(ledger: Ledger, tmp_path: Path) -> None:
    saved = ledger.save_run(a_run(), [TABLE])
    (tmp_path / "runs" / saved.run / "run.json").unlink()
    assert ledger.run_ids() == []
    ledger.save_run(a_run(), [TABLE])
    assert ledger.load_run(saved.run) == saved


def test_ids_prefixes_and_near_misses(ledger: Ledger) -> None:
    for wanted in ("latest", "3f9a"):
        with pytest.raises(NotFoundError, match="holds no runs"):
            ledger.resolve_id(wanted)
    names = [ledger.save_run(a_run(seed=i), [TABLE]).run for i in range(40)]
    assert ledger.resolve_id("latest") == names[-1]
    assert ledger.resolve_id(names[0]) == names[0]
    shared = next(n[0] for n in names if sum(m[0] == n[0] for m in names) > 1)
    with pytest.raises(BadUsageError, match="fits"):
        ledger.resolve_id(shared)
    near = names[3][:-1] + ("0" if names[3][-1] != "0" else "1")
    with pytest.raises(NotFoundError) as caught:
        ledger.resolve_id(near)
    assert names[3] in caught.value.hint
    for hostile in ("../" + names[0], "", "/", "../../etc"):
        with pytest.raises(NotFoundError):
            ledger.resolve_id(hostile)


def test_latest_is_the_newest_by_what_runs_say(ledger: Ledger) -> None:
    newer = ledger.save_run(a_run(created="2026-05-01T00:00:00Z"), [TABLE])
    ledger.save_run(a_run(created="2026-04-01T00:00:00Z"), [TABLE])
    assert ledger.resolve_id("latest") == newer.run == ledger.runs().runs[0].run


@pytest.mark.parametrize("file", ["run.json", "positions.parquet"])
def test_a_changed_file_is_noticed(ledger: Ledger, tmp_path: Path, file: str) -> None:
    saved = ledger.save_run(a_run(), [TABLE])
    path = tmp_path / "runs" / saved.run / file
    if file == "run.json":
        path.write_text(path.read_text().replace('"seed": 0', '"seed": 7'))
    else:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UnreadableError, match="changed after it was written"):
        ledger.load_run(saved.run)
    path.unlink()
    if file == "positions.parquet":
        with pytest.raises(UnreadableError, match="missing"):
            ledger.load_run(saved.run)
        with pytest.raises(UnreadableError, match="missing"):
            ledger.load_positions(saved)


def test_newer_and_broken_documents(ledger: Ledger, tmp_path: Path) -> None:
    saved = ledger.save_run(a_run(), [TABLE])
    path = tmp_path / "runs" / saved.run / "run.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"schema": 99}))
    with pytest.raises(UnreadableError, match="schema 99"):
        ledger.load_run(saved.run)
    for text in ("", "[]", "{}", '{"schema": 1, "extra": NaN}', "[" * 100_000, "\udcff"):
        path.write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(UnreadableError, match="not a run document"):
            ledger.load_run(saved.run)


def test_a_failed_write_leaves_nothing(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("audit.ledger.runs.write_positions", fail)
    with pytest.raises(OSError, match="disk full"):
        ledger.save_run(a_run(), [TABLE])
    assert list((tmp_path / "runs").iterdir()) == [] and ledger.runs().runs == ()


def test_a_run_appears_in_one_step(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its files are written before the one rename, and without it there is nothing."""
    seen = []

    def stop(staged: Path, target: Path) -> None:
        seen.extend(sorted(path.name for path in staged.iterdir()))
        assert not target.exists() and ledger.run_ids() == []
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", stop)
    with pytest.raises(KeyboardInterrupt):
        ledger.save_run(a_run(), [TABLE])
    assert seen == ["positions.parquet", "run.json"]
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_ledger_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in ("file", "file/ledger"):
        ledger = open_ledger(tmp_path / place)
        with pytest.raises(BadUsageError, match="can not be written"):
            ledger.save_run(a_run(), [TABLE])
        with pytest.raises(BadUsageError, match="can not be written"):
            ledger.check_writable()
        with pytest.raises(BadUsageError, match="can not be read"):
            ledger.run_ids()


def test_looking_makes_nothing(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path / "none")
    assert ledger.runs().runs == () and ledger.run_ids() == [] and ledger.all_waivers() == []
    assert ledger.reviews_of("x") == [] and ledger.load_calibration("0" * 64) is None
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_that_can_only_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listed from a private copy: what the index holds, and the run that it lacks."""
    ledger = open_ledger(tmp_path)
    known = ledger.save_run(a_run(), [TABLE]).run
    unknown = ledger.files.save(a_run(1), [TABLE]).run
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    ledger = open_ledger(tmp_path)
    assert {row.run for row in ledger.runs().runs} == {known, unknown}
    assert ledger.load_run("latest").run == unknown
    with pytest.raises(BadUsageError, match="can not be written"):
        ledger.check_writable()
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert {path for path in before if before[path] != after.get(path)} <= {tmp_path / "runs"}
