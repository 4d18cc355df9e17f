"""The queue with the real `audit compare`: a small audit to its run, and one cancelled midway."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit.jobs import JobQueue
from audit.jobs.places import jobs_folder, ledger_place
from audit.ledger import open_ledger, verify
from tests.conftest import SAMPLE
from tests.jobs.fakes import until


def test_an_audit_of_the_sample_is_a_run_of_the_ledger_and_another_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AUDIT_DB_URL", raising=False)
    ledger = open_ledger(tmp_path / "ledger")
    queue = JobQueue(jobs_folder(ledger))
    model, traces = SAMPLE / "model", SAMPLE / "traces"

    def ask(trace: Path, *cands: Path) -> str:
        fields = {
            "ledger": ledger_place(ledger), "ref": str(model), "cands": tuple(map(str, cands)),
            "head": "mtp", "traces": (str(trace),), "kl": len(cands) > 1,
        }  # fmt: skip
        return queue.submit(request=lambda folder: fields)

    done = ask(traces / "german.trace.safetensors", model)
    several = [tmp_path / f"cand{i}" for i in range(4)]  # so that it is not done too soon
    for link in several:
        link.symlink_to(model)
    cancelled = ask(traces, *several)
    try:
        until(lambda: queue.find(cancelled).step, 400)
    finally:
        queue.cancel(cancelled)
    until(lambda: not queue.find(cancelled).is_open, 60)
    state = queue.find(done).state
    assert state is not None and state.status == "done" and state.run is not None
    run = ledger.load_run(state.run)
    assert run.candidates[0].verdict.kind == "identical"
    assert [trace.info.corpus for trace in run.traces] == ["german"]
    assert queue.find(cancelled).status == "cancelled"
    assert ledger.run_ids() == [run.run] and verify(ledger).sound
    assert [path.name for path in (tmp_path / "ledger" / "runs").iterdir()] == [run.run]
