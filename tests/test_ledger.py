"""Runs kept and read again: content ids, half-written runs, changed files, older and newer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from audit.errors import BadUsageError, NotFoundError, UnreadableError
from audit.ledger import content_id, list_ids, load_positions, load_run, resolve_id, save_run
from audit.records import Candidate, Provenance, Run, Verdict
from tests.heads_in_memory import record
from tests.test_estimates import frame

TABLE = frame([1, 2], [1, 3], [1, 2], [0, 0])


def a_run(seed: int = 0) -> Run:
    verdict = Verdict(kind="undecided", sentence="undecided: nothing was measured", evidence=())
    head = record("cand", 4, 4)
    return Run(
        run="",
        reference=record("ref", 4, 4),
        candidates=(Candidate(head=head, estimates=(), verdict=verdict),),
        traces=(),
        preflight=(),
        controls=(),
        provenance=Provenance(
            created="2026-01-01T00:00:00Z", versions={}, measures_version=1,
            platform="x", device="cpu", settings={"seed": seed},
        ),
    )  # fmt: skip


def test_saved_and_read_again(tmp_path: Path) -> None:
    saved = save_run(a_run(), [TABLE], tmp_path)
    assert saved.run == content_id(saved) and saved.positions_sha256
    assert load_run(saved.run, tmp_path) == saved
    assert load_positions(saved, tmp_path)["cand"].tolist() == [1, 3]
    assert load_positions(saved, tmp_path)["kl_nats"].isna().all()


def test_the_same_content_is_one_run(tmp_path: Path) -> None:
    first, again = (save_run(a_run(), [TABLE], tmp_path) for _ in range(2))
    other = save_run(a_run(seed=1), [TABLE], tmp_path)
    assert first == again and sorted(list_ids(tmp_path)) == sorted([first.run, other.run])


def test_ids_prefixes_and_near_misses(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="holds no runs"):
        resolve_id("latest", tmp_path)
    names = [save_run(a_run(seed=i), [TABLE], tmp_path).run for i in range(40)]
    assert resolve_id("latest", tmp_path) == names[-1]
    assert resolve_id(names[0], tmp_path) == names[0]
    shared = next(n[0] for n in names if sum(m[0] == n[0] for m in names) > 1)
    with pytest.raises(BadUsageError, match="fits"):
        resolve_id(shared, tmp_path)
    near = names[3][:-1] + ("0" if names[3][-1] != "0" else "1")
    with pytest.raises(NotFoundError) as caught:
        resolve_id(near, tmp_path)
    assert names[3] in caught.value.hint
    with pytest.raises(NotFoundError):
        resolve_id("../" + names[0], tmp_path)


@pytest.mark.parametrize("file", ["run.json", "positions.parquet"])
def test_a_changed_file_is_noticed(tmp_path: Path, file: str) -> None:
    saved = save_run(a_run(), [TABLE], tmp_path)
    path = tmp_path / "runs" / saved.run / file
    if file == "run.json":
        path.write_text(path.read_text().replace('"seed": 0', '"seed": 7'))
    else:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UnreadableError, match="changed after it was written"):
        load_run(saved.run, tmp_path)


def test_newer_and_broken_documents(tmp_path: Path) -> None:
    saved = save_run(a_run(), [TABLE], tmp_path)
    path = tmp_path / "runs" / saved.run / "run.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"schema": 99}))
    with pytest.raises(UnreadableError, match="schema 99"):
        load_run(saved.run, tmp_path)
    for text in ("", "[]", "{}", '{"schema": 1, "extra": NaN}'):
        path.write_text(text)
        with pytest.raises(UnreadableError, match="not a run document"):
            load_run(saved.run, tmp_path)


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("audit.ledger.write_positions", fail)
    with pytest.raises(OSError, match="disk full"):
        save_run(a_run(), [TABLE], tmp_path)
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_ledger_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadUsageError, match="can not be written"):
        save_run(a_run(), [TABLE], tmp_path / "file")
