"""Lists of runs: order, filters, counts, parts; no run is ever hidden."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from audit.errors import BadUsageError, NotFoundError
from audit.ledger import Ledger, RunFilter, open_ledger, verify
from tests.ledger.conftest import empty_database
from tests.ledger.made import TABLE, a_candidate, a_gate, a_review, a_run, a_trace


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def filled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Ledger, dict[str, str]]]:
    """A ledger that no test changes."""
    folder = tmp_path_factory.mktemp("filled")
    if request.param == "sqlite":
        yield fill(open_ledger(folder))
        return
    with empty_database(request.getfixturevalue("postgres_server")) as url:
        yield fill(open_ledger(folder, url))


def fill(ledger: Ledger) -> tuple[Ledger, dict[str, str]]:
    """Four runs: `old`; `two` with two candidates; `judged` by its own audit; `later` judged twice
    and reviewed."""
    gate = a_gate("pass", judged="2026-02-01T00:00:00Z")
    runs = {
        "old": a_run(0, created="2026-01-01T10:00:00Z", traces=(a_trace("code"),)),
        "two": a_run(
            1, a_candidate("Q4_0.gguf", "4" * 64, "fidelity", {"code": 0.99, "de": 0.9}),
            a_candidate("half", "5" * 64, "function", {"code": 1.0}),
            created="2026-02-01T10:00:00Z", traces=(a_trace("code"), a_trace("de")),
        ),
        "judged": a_run(
            2, a_candidate("q4%", "6" * 64, "fidelity", gate=gate), created="2026-03-01T10:00:00Z"
        ),
        "later": a_run(
            3, a_candidate("q8", "8" * 64, "fidelity"), created="2026-04-01T10:00:00Z",
            reference="other",
        ),
    }  # fmt: skip
    ids = {name: ledger.save_run(run, [TABLE]).run for name, run in runs.items()}
    for day, outcome in (("02", "pass"), ("01", "fail")):
        ledger.add_judgement(
            ids["later"], "8" * 64, a_gate(outcome, judged=f"2026-05-{day}T00:00:00Z")
        )
    saved = ledger.load_run(ids["later"])
    for decision in ("reject", "more-data"):
        (newest,) = ledger.answers(saved.run, "8" * 64)
        ledger.add_review(a_review(saved, newest, decision=decision, reviewer=decision))
    return ledger, ids


def test_rows_say_what_runs_and_people_said(filled: tuple[Ledger, dict[str, str]]) -> None:
    ledger, ids = filled
    found = ledger.runs()
    assert [row.run for row in found.runs] == [ids[n] for n in ("later", "judged", "two", "old")]
    later, judged, two, old = found.runs
    (candidate,) = later.candidates
    assert (candidate.gate, candidate.policy) == ("pass", "release")
    assert (candidate.decision, candidate.reviewer) == ("more-data", "more-data")
    assert candidate.reviews == 2 and later.reference_name == "other" and not later.missing
    assert judged.candidates[0].gate == "pass" and judged.candidates[0].decision is None
    assert two.corpora == ("code", "de") and two.positions == 20
    worst, only = two.candidates
    assert (worst.worst_retention, worst.worst_corpus) == (0.9, "de")
    assert (worst.worst_low, worst.worst_high) == (0.9 - 0.01, 0.9 + 0.01)
    assert (only.worst_corpus, only.gate, only.reviews) == ("code", None, 0)
    assert old.candidates[0].worst_retention is None and old.corpora == ("code",)
    assert found.matching == 4 and not found.truncated and found.unreadable == {}
    assert found.counts == {
        "runs": 4,
        "verdicts": {"fidelity": 3, "function": 1, "undecided": 1},
        "gates": {"none": 3, "pass": 2},
        "decisions": {"more-data": 1, "none": 4},
    }


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (RunFilter(verdict="fidelity"), "later judged two"),
        (RunFilter(verdict="identical"), ""),
        (RunFilter(gate="pass"), "later judged"),
        (RunFilter(gate="fail"), ""),
        (RunFilter(gate="none"), "two old"),
        (RunFilter(head="Q4"), "judged two"),
        (RunFilter(head="4%"), "judged"),
        (RunFilter(head="4_"), "two"),
        (RunFilter(head_sha256="55"), "two"),
        (RunFilter(verdict="function", head_sha256="4"), ""),
        (RunFilter(reference="OTHER"), "later"),
        (RunFilter(reference="0000"), "later judged two old"),
        (RunFilter(since="2026-02-01T10:00:00Z"), "later judged two"),
        (RunFilter(until="2026-02-01T10:00:00Z"), "old"),
        (RunFilter(reviewed=True), "later"),
        (RunFilter(reviewed=False, verdict="fidelity"), "judged two"),
        (RunFilter(limit=1), "later"),
        (RunFilter(limit=2, offset=1), "judged two"),
        (RunFilter(limit=None, offset=3), "old"),
        (RunFilter(offset=9), ""),
    ],
    ids=str,
)
def test_filters(filled: tuple[Ledger, dict[str, str]], wanted: RunFilter, names: str) -> None:
    ledger, ids = filled
    found = ledger.runs(wanted)
    shown = [ids[name] for name in names.split()]
    assert [row.run for row in found.runs] == shown and found.counts["runs"] == 4
    cut = wanted.limit == 1 or (wanted.limit, wanted.offset) == (2, 1)
    assert found.truncated == cut
    assert found.matching == (4 if wanted.offset or cut else len(shown))


def test_heads_and_waivers_by_their_beginning(filled: tuple[Ledger, dict[str, str]]) -> None:
    ledger, _ = filled
    assert ledger.find_head("44") == "4" * 64 and ledger.find_head("F" * 64) == "f" * 64
    for wanted in ("9", "", "%", "5" * 63 + "_"):
        with pytest.raises(NotFoundError, match="no head"):
            ledger.find_head(wanted)


def test_a_beginning_that_fits_several_heads(ledger: Ledger) -> None:
    ledger.save_run(a_run(0, a_candidate("x", "4a" * 32), a_candidate("y", "4b" * 32)), [TABLE])
    with pytest.raises(BadUsageError, match="fits 2 heads"):
        ledger.find_head("4")


def test_no_run_is_hidden(opened: Callable[[], Ledger], tmp_path: Path) -> None:
    """Runs that the index lacks, as after a crash or from an older program, are found; those that
    can not be read are told, and disturb no other; those whose files are gone are marked."""
    ledger = opened()
    indexed = ledger.save_run(a_run(0), [TABLE]).run
    gone = ledger.save_run(a_run(1), [TABLE]).run
    lacking = [ledger.files.save(a_run(i), [TABLE]).run for i in range(2, 6)]
    tampered, broken = (ledger.files.save(a_run(i), [TABLE]).run for i in (6, 7))
    folder = tmp_path / "ledger/runs"
    (folder / gone).rename(tmp_path / "gone")
    path = folder / tampered / "run.json"
    path.write_text(path.read_text().replace('"seed": 6', '"seed": 7'))
    (folder / broken / "run.json").write_text("{")
    (folder / "notes.txt").write_text("not a run")
    for _ in range(2):
        found = opened().runs()
        assert {row.run for row in found.runs} == {indexed, gone, *lacking}
        assert {row.run for row in found.runs if row.missing} == {gone}
        assert set(found.unreadable) == {tampered, broken}
    assert "no longer gives its id" in found.unreadable[tampered]
    assert opened().resolve_id(lacking[0][:12]) == lacking[0]
    assert opened().resolve_id("latest") == lacking[-1]


def test_a_folder_of_runs_from_before_there_was_an_index(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("audit.ledger.index._BATCH", 3)
    gate = a_gate("fail", ("x", "fail", None))
    runs = [ledger.files.save(a_run(i, a_candidate(gate=gate)), [TABLE]) for i in range(8)]
    assert not (tmp_path / "ledger/index.sqlite").exists()
    found = ledger.runs(RunFilter(gate="fail", limit=None))
    assert {row.run for row in found.runs} == {run.run for run in runs}
    assert ledger.judgements_of(runs[7].run)[0].gate == gate


def test_numbers_and_names_beyond_all_measure(ledger: Ledger) -> None:
    """One absurd document, put there by someone, must not keep the others from being listed."""
    head = a_candidate("n" * 5000, "h" * 5000).head.model_copy(update={"stored_bytes": 2**70})
    trace = a_trace("code").model_copy(update={"positions": 2**90})
    absurd = a_run(2**80, a_candidate(gate=a_gate("pass")), traces=(trace,), created="9" * 9999)
    how = absurd.provenance.model_copy(update={"measures_version": 2**40})
    candidates = tuple(one.model_copy(update={"head": head}) for one in absurd.candidates)
    update = {"provenance": how, "candidates": candidates}
    ledger.files.save(absurd.model_copy(update=update), [TABLE])
    plain = ledger.save_run(a_run(), [TABLE]).run
    first, second = ledger.runs().runs
    assert second.run == plain and first.candidates[0].stored_bytes == 2**63 - 1
    assert (first.positions, first.measures_version) == (2**63 - 1, 2**31 - 1)
    assert first.candidates[0].gate == "pass" and len(first.candidates[0].name) == 500
    assert [problem.kind for problem in verify(ledger).problems] == ["policy"]


def test_hostile_names_are_kept_as_something_every_database_takes(ledger: Ledger) -> None:
    evil = "a\0b\udcff'; DROP TABLE runs; --"
    trace = a_trace("c\0\udcff")
    run = ledger.save_run(a_run(0, a_candidate(evil), traces=(trace,)), [TABLE])
    (row,) = ledger.runs(RunFilter(head="'; drop")).runs
    assert (
        row.run == run.run and row.candidates[0].name == "a\\u0000b\\\\udcff'; DROP TABLE runs; --"
    )
    assert row.corpora == ("c\0\\udcff",)
