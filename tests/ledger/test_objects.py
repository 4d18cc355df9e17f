"""Ledgers that are no folder: an object store in memory, places that do not exist, no database."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from audit.errors import (
    AuditError,
    BadUsageError,
    MissingExtraError,
    NotFoundError,
    UnreadableError,
)
from audit.ledger import Ledger, open_ledger, verify
from tests.ledger.made import POLICY, TABLE, a_calibration, a_gate, a_review, a_run


@pytest.fixture
def url() -> Iterator[str]:
    place = f"memory://{uuid.uuid4().hex}/team ledger"
    yield place
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]


@pytest.fixture
def opened(url: str, tmp_path: Path) -> Any:
    return lambda: open_ledger(url, f"sqlite:///{tmp_path / 'index.sqlite'}")


def put(url: str, name: str, content: bytes) -> None:
    fs, root = fsspec.core.url_to_fs(url)
    fs.pipe_file(f"{root}/{name}", content)


def names(url: str) -> list[str]:
    fs, root = fsspec.core.url_to_fs(url)
    return sorted(path.removeprefix(root + "/") for path in fs.find(root))


def test_round_trip(opened: Any, url: str) -> None:
    ledger: Ledger = opened()
    assert ledger.runs().runs == () and names(url) == []
    ledger.check_writable()
    saved = ledger.save_run(a_run(), [TABLE])
    assert ledger.save_run(a_run(), [TABLE]) == saved
    made = a_calibration()
    ledger.save_calibration(made)
    policy = ledger.save_policy(POLICY)
    gate = ledger.add_judgement(saved.run, "c" * 64, a_gate("pass", policy=policy)).gate
    review = ledger.add_review(a_review(saved, gate))
    again: Ledger = opened()
    assert again.load_run("latest") == saved == again.load_run(saved.run[:6])
    assert again.load_positions(saved)["cand"].tolist() == [1, 3]
    assert list(again.load_positions(saved, ["ref"]).columns) == ["ref"]
    assert again.load_calibration(made.reference) == made
    assert again.policy_text(policy) == POLICY and again.reviews_of(saved.run) == [review]
    assert verify(again).problems == ()
    assert [name for name in names(url) if name.startswith("runs")] == [
        f"runs/{saved.run}/positions.parquet", f"runs/{saved.run}/run.json",
    ]  # fmt: skip


def test_the_document_is_put_last(opened: Any, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that dies after the table leaves no run, and what it left can be removed."""
    ledger: Ledger = opened()
    fs, _ = fsspec.core.url_to_fs(url)
    real = fs.put_file

    def dies(source: str, target: str, **more: object) -> None:
        if target.endswith("run.json"):
            raise KeyboardInterrupt
        real(source, target, **more)

    monkeypatch.setattr(fs, "put_file", dies)
    with pytest.raises(KeyboardInterrupt):
        ledger.save_run(a_run(), [TABLE])
    monkeypatch.undo()
    assert len([name for name in names(url) if name.startswith("runs")]) == 1
    assert ledger.run_ids() == [] and ledger.runs().runs == ()
    assert verify(ledger).sound, "a writer may still be busy"
    found = verify(ledger, repair=True, stale_seconds=0)
    assert [problem.kind for problem in found.problems] == ["leftover"] and found.sound
    assert not [name for name in names(url) if name.startswith("runs")]
    assert ledger.load_run(ledger.save_run(a_run(), [TABLE]).run)


def test_changed_objects_are_noticed(opened: Any, url: str) -> None:
    ledger: Ledger = opened()
    saved = ledger.save_run(a_run(), [TABLE])
    put(url, f"runs/{saved.run}/positions.parquet", b"x")
    with pytest.raises(UnreadableError, match="has changed"):
        ledger.load_run(saved.run)
    assert [problem.kind for problem in verify(ledger, repair=True).problems] == ["run"]


def test_a_database_is_needed(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadUsageError, match="needs a database elsewhere") as caught:
        open_ledger(url)
    assert "AUDIT_DB_URL" in caught.value.hint
    monkeypatch.setenv("AUDIT_DB_URL", f"sqlite:///{tmp_path / 'db.sqlite'}")
    monkeypatch.setenv("AUDIT_LEDGER", url)
    saved = open_ledger().save_run(a_run(), [TABLE])
    assert open_ledger().resolve_id("latest") == saved.run


@pytest.mark.parametrize("place", ["nonsense://x/y", "gopher://x", "s3:/"])
def test_places_that_mean_nothing(place: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    if "://" in place:
        with pytest.raises((BadUsageError, MissingExtraError)):
            open_ledger(place, f"sqlite:///{tmp_path / 'db.sqlite'}")
    else:
        assert open_ledger(place).where == "s3:"


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "s3fs", None)
    with pytest.raises(MissingExtraError, match="not installed") as caught:
        open_ledger("s3://bucket/ledger", "sqlite:///db.sqlite")
    assert "head-audit[s3]" in caught.value.hint


def test_a_store_that_fails_is_told_not_traced(
    opened: Any, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger: Ledger = opened()
    ledger.save_run(a_run(), [TABLE])
    fs, _ = fsspec.core.url_to_fs(url)

    def down(*args: object, **more: object) -> None:
        raise RuntimeError("credentials expired")

    for name, use in (
        ("ls", ledger.run_ids),
        ("put_file", lambda: ledger.save_run(a_run(1), [TABLE])),
        ("pipe_file", ledger.check_writable),
        ("open", lambda: ledger.load_run(ledger.run_ids()[0])),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(fs, name, down)
            with pytest.raises(AuditError, match="credentials expired") as caught:
                use()  # type: ignore[operator]
            assert caught.value.where.startswith("memory://")


def test_a_far_folder_is_made_but_never_its_root(tmp_path: Path) -> None:
    """fsspec's own view of a disk stands for sftp and its like: it has folders, and no renames."""
    root = tmp_path / "share"
    ledger = open_ledger(f"local://{root}", f"sqlite:///{tmp_path / 'index.sqlite'}")
    with pytest.raises(BadUsageError, match="does not exist"):
        ledger.save_run(a_run(), [TABLE])
    with pytest.raises(BadUsageError, match="can not be written"):
        ledger.check_writable()
    root.mkdir()
    saved = ledger.save_run(a_run(), [TABLE])
    assert ledger.load_run("latest") == saved
    with pytest.raises(NotFoundError, match="no policy"):
        ledger.policy_text("0" * 64)


def test_a_file_url_is_a_folder(tmp_path: Path) -> None:
    saved = open_ledger(f"file://{tmp_path}").save_run(a_run(), [TABLE])
    assert open_ledger(tmp_path).load_run(saved.run) == saved
