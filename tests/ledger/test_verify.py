"""Damage is found, named and mended where nothing is lost by it; nothing else is touched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from audit.errors import NotFoundError, UnreadableError
from audit.ledger import Ledger, Verification, describe, open_ledger, verify
from tests.ledger.made import (
    POLICY,
    TABLE,
    a_calibration,
    a_candidate,
    a_gate,
    a_review,
    a_run,
    a_waiver,
)


def kinds(found: Verification) -> list[str]:
    return [problem.kind for problem in found.problems]


@pytest.fixture
def full(ledger: Ledger) -> Ledger:
    """A sound ledger with one of each."""
    policy = ledger.save_policy(POLICY)
    gate = a_gate("fail", ("kl", "fail", None), policy=policy)
    run = ledger.save_run(a_run(0, a_candidate(gate=gate)), [TABLE])
    ledger.save_run(a_run(1), [TABLE])
    ledger.save_calibration(a_calibration())
    ledger.add_review(a_review(run, gate), [a_waiver("kl")])
    return ledger


def test_a_sound_ledger(full: Ledger) -> None:
    found = verify(full)
    assert found.sound and found.problems == () and found.counts == {
        "runs": 2, "calibrations": 1, "policies": 1, "reviews": 1, "waivers": 1, "judgements": 1,
    }  # fmt: skip
    facts = describe(full)
    assert facts.counts == found.counts and facts.schema_version == 1 and facts.unreadable == {}
    assert facts.newest == full.resolve_id("latest") and facts.id


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("runs/{run}/run.json", "run"), ("runs/{run}/positions.parquet", "run"),
        ("policies/*.toml", "policy"), ("calibrations/*.json", "calibration"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("how", ["bit", "cut", "gone"])
def test_a_changed_file(full: Ledger, tmp_path: Path, place: str, kind: str, how: str) -> None:
    run = full.resolve_id("latest")
    (path,) = (tmp_path / "ledger").glob(place.format(run=run))
    content = path.read_bytes()
    half = len(content) // 2
    if how == "gone":
        path.unlink()
    elif how == "cut":
        path.write_bytes(content[:half])
    else:
        path.write_bytes(content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :])
    before = sorted((tmp_path / "ledger").rglob("*"))
    if how == "gone" and kind == "calibration":
        assert verify(full).sound
        return
    if how == "gone" and place.endswith("run.json"):
        kind = "index"  # nobody spoke of this run; its table stays where it is
    for repair in (False, True):
        found = verify(full, repair=repair, stale_seconds=0)
        assert kinds(found) == [kind] and found.sound == (kind == "index" and repair)
        if repair:
            assert sorted((tmp_path / "ledger").rglob("*")) == before


@pytest.mark.parametrize(
    ("statement", "kind", "mended"),
    [
        ("UPDATE reviews SET reason = 'bought'", "entry", False),
        ("UPDATE waivers SET expires = '9999-01-01'", "entry", False),
        ("UPDATE judgements SET outcome = 'pass'", "entry", False),
        ("UPDATE candidates SET verdict = 'fidelity' WHERE verdict = 'undecided'", "index", True),
        ("UPDATE runs SET created = '2030-01-01T00:00:00Z'", "index", True),
        ("DELETE FROM candidates", "index", True),
        ("DELETE FROM waivers", "entry", False),
        ("DELETE FROM runs", "index", True),
        ("DELETE FROM judgements", "index", True),
    ],
)
def test_a_changed_row(full: Ledger, statement: str, kind: str, mended: bool) -> None:
    full.index.write(lambda connection: connection.execute(text(statement)))
    found = verify(full)
    assert set(kinds(found)) == {kind} and not found.sound
    assert all(problem.repairable == mended for problem in found.problems)
    assert verify(full, repair=True).sound == mended
    assert verify(full).sound == mended
    if mended:
        assert [row.created for row in full.runs().runs] == ["2026-01-01T00:00:00Z"] * 2
        judged = [row.run for row in full.runs().runs if row.candidates[0].gate == "fail"]
        assert len(judged) == 1 == len(full.judgements_of(judged[0]))


def test_runs_that_the_index_lacks(opened: Callable[[], Ledger]) -> None:
    ledger = opened()
    lacking = {ledger.files.save(a_run(i), [TABLE]).run for i in range(3)}
    found = verify(ledger)
    assert kinds(found) == ["index"] * 3 and not found.sound
    assert {Path(problem.where).name for problem in found.problems} == lacking
    assert verify(ledger, repair=True).sound and verify(opened()).problems == ()


def test_runs_whose_files_are_gone(full: Ledger, tmp_path: Path) -> None:
    """One that someone spoke of is damage for good; one of which nobody did is forgotten."""
    reviewed = next(row for row in full.runs().runs if row.candidates[0].reviews)
    other = next(row for row in full.runs().runs if row.run != reviewed.run)
    for row in (reviewed, other):
        shutil.move(tmp_path / "ledger/runs" / row.run, tmp_path / row.run)
    found = verify(full, repair=True)
    assert sorted((p.kind, p.repaired) for p in found.problems) == [("index", True), ("run", False)]
    assert [row.run for row in full.runs().runs] == [reviewed.run]
    full.index.write(lambda connection: connection.execute(text("DELETE FROM runs")))
    assert kinds(verify(full)) == ["run"], "the review remembers it"
    assert len(full.reviews_of(reviewed.run)) == 1
    for row in (reviewed, other):
        shutil.move(tmp_path / row.run, tmp_path / "ledger/runs" / row.run)
    assert verify(full, repair=True).sound and len(full.runs().runs) == 2


def test_what_killed_writers_left(full: Ledger, tmp_path: Path) -> None:
    """Removed once it is old; what a person put there stays."""
    place = tmp_path / "ledger"
    (place / "runs/.writing-abc").mkdir()
    (place / "runs/.writing-abc/positions.parquet").write_bytes(b"half")
    (place / "runs/0123456789abcdef").mkdir()
    (place / "policies/.x.toml.k2.part").write_bytes(b"half")
    mine = [place / "runs/README", place / "runs/mine/notes", place / "runs/fedcba9876543210/x"]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    assert verify(full).problems == () and len(full.runs().runs) == 2
    for path in place.rglob("*"):
        os.utime(path, (0, 0))
    found = verify(full)
    assert kinds(found) == ["leftover"] * 3 and not found.sound
    assert verify(full, repair=True).sound and verify(full).problems == ()
    assert all(path.exists() for path in mine) and not (place / "runs/.writing-abc").exists()


def test_a_policy_that_judged_and_is_not_kept(ledger: Ledger) -> None:
    run = ledger.save_run(a_run(), [TABLE])
    ledger.add_judgement(run.run, "c" * 64, a_gate("pass"))
    found = verify(ledger, repair=True)
    assert kinds(found) == ["policy"] and not found.sound


def test_a_damaged_database_file(tmp_path: Path) -> None:
    from audit.ledger import open_ledger

    ledger = open_ledger(tmp_path)
    for seed in range(40):
        ledger.save_run(a_run(seed), [TABLE])
    path = tmp_path / "index.sqlite"
    content = bytearray(path.read_bytes())
    for start in range(4096 * 3, len(content) - 512, 4096):
        content[start : start + 512] = b"\xff" * 512
    path.write_bytes(content)
    try:
        found = verify(open_ledger(tmp_path))
    except UnreadableError as error:
        assert "malformed" in error.message or "can not be used" in error.message
    else:
        assert "database" in kinds(found) and not found.sound


def test_no_ledger_is_not_a_sound_one(tmp_path: Path) -> None:
    for place in (tmp_path / "typo", tmp_path):
        with pytest.raises(NotFoundError, match="there is no ledger here"):
            verify(open_ledger(place))
    assert not (tmp_path / "typo").exists()


def test_an_index_that_was_lost_is_told_once(tmp_path: Path) -> None:
    """Reading indexes the runs again; what people said is gone, and no reading hides that."""
    ledger = open_ledger(tmp_path / "mine")
    run = ledger.save_run(a_run(0), [TABLE])
    policy = ledger.save_policy(POLICY)
    ledger.add_judgement(run.run, "c" * 64, a_gate("pass", policy=policy))
    assert verify(open_ledger(tmp_path / "mine")).sound
    for path in (tmp_path / "mine").glob("index.sqlite*"):
        path.unlink()
    for expected in (["database", "index"], ["database"]):
        found = verify(open_ledger(tmp_path / "mine"))
        assert not found.sound and kinds(found) == expected
        assert "come back from a copy only" in found.problems[0].sentence
        assert len(open_ledger(tmp_path / "mine").runs().runs) == 1
    mended = verify(open_ledger(tmp_path / "mine"), repair=True)
    assert mended.sound and kinds(mended) == ["database"]
    assert verify(open_ledger(tmp_path / "mine")).problems == ()
