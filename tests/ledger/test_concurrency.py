"""Several pipelines write one ledger at once, and some are killed: nothing is lost, nothing is
half there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from audit.ledger import Ledger, RunFilter, verify

ROOT = Path(__file__).resolve().parents[2]
RUNS = int(os.environ.get("AUDIT_TEST_WRITES", "15"))
"""Runs that each of two processes writes."""
KILLS = int(os.environ.get("AUDIT_TEST_KILLS", "50"))


def start(tmp_path: Path, database_url: str | None, *task: object) -> subprocess.Popen[str]:
    place = str(tmp_path / "ledger")
    command = ["-m", "tests.ledger.writers", place, database_url or "-", *map(str, task)]
    return subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def test_two_writers_at_once(
    opened: Callable[[], Ledger], tmp_path: Path, database_url: str | None
) -> None:
    """Each writes its own runs, and both the same ten: no loss, no duplicate."""
    ours = [start(tmp_path, database_url, "write", first, RUNS) for first in (0, RUNS)]
    ours += [start(tmp_path, database_url, "write", 10**6, 10) for _ in range(2)]
    for process in ours:
        process.communicate()
    assert [process.returncode for process in ours] == [0] * 4
    ledger = opened()
    rows = ledger.runs(RunFilter(limit=None)).runs
    seeds = [ledger.load_run(row.run).provenance.settings["seed"] for row in rows]
    assert sorted(seeds) == [*range(2 * RUNS), *range(10**6, 10**6 + 10)]
    reasons = [review.reason for row in rows for review in ledger.reviews_of(row.run)]
    assert sorted(reasons) == sorted(f"run {seed}" for seed in seeds)
    found = verify(ledger)
    assert found.problems == () and found.counts["judgements"] == found.counts["reviews"]
    assert found.counts["runs"] == 2 * RUNS + 10 and found.counts["policies"] == 3


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_killed_writers_leave_a_ledger_that_verifies(
    opened: Callable[[], Ledger], tmp_path: Path, database_url: str | None
) -> None:
    """50 writers are killed at random points. After each, every run that is visible is whole."""
    visible, checked = [], set()
    with start(tmp_path, database_url, "die", KILLS, 7) as process:
        for line in process.stdout or ():
            visible.append(int(line))
            ledger = opened()
            for run in set(ledger.run_ids()) - checked:
                assert ledger.load_run(run).run == run
                checked.add(run)
    assert process.returncode == 0 and len(visible) == KILLS and visible[-1] >= KILLS
    ledger = opened()
    found = verify(ledger, stale_seconds=0)
    assert {problem.kind for problem in found.problems} <= {"leftover", "index"}
    assert "leftover" in {problem.kind for problem in found.problems}, "no kill hit a write"
    assert verify(ledger, repair=True, stale_seconds=0).sound
    after = verify(opened(), stale_seconds=0)
    assert after.problems == () and after.counts["runs"] == visible[-1]
    assert {row.run for row in opened().runs(RunFilter(limit=None)).runs} == set(ledger.run_ids())
