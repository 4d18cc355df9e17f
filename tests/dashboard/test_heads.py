"""The landing page: what it lists, its filters in the address, and all its states."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from audit.ledger import open_ledger
from audit.report.wording import clean
from tests.dashboard.conftest import Go, Made, told
from tests.dashboard.made import HOSTILE, large_ledger
from tests.ledger.made import a_run


def rows(at: AppTest) -> list[dict[str, str]]:
    frame = at.dataframe[0].value
    return [{key: cell.strip() for key, cell in row.items()} for row in frame.to_dict("records")]


def test_it_lists_what_waits_the_newest_first(go: Go, made_ledger: Made) -> None:
    at = go(made_ledger.ledger, "heads")
    assert [row["head"] for row in rows(at)] == [
        "other.gguf", "bare.gguf", clean(HOSTILE), "q4_0.gguf", "q8_0.gguf",
    ]  # fmt: skip
    assert {metric.label: metric.value for metric in at.metric} == {
        "waiting for review": "5 of 6", "gate passed": "0", "gate failed": "1",
        "undecided or not judged": "5",
    }  # fmt: skip


def test_a_row_says_what_the_run_says(go: Go, made_ledger: Made) -> None:
    (row,) = rows(go(made_ledger.ledger, "heads", review="reviewed"))
    run = made_ledger.runs["judged"]
    assert row == {
        "head": "prune.gguf", "verdict": "function", "gate": "fail", "worst retention": "74.7 %",
        "interval": "68.7 % to 80.7 %", "on": "german", "predicted loss": "21.0 pt",
        "measured loss": "25.3 pt", "size": "1.0 MiB", "saved": "75 %",
        "review": "reject by Ada", "made": "2026-11-01 09:00", "reference": "ref.safetensors",
        "run": run.run,
    }  # fmt: skip


def test_where_nothing_was_measured_there_is_the_reason(go: Go, made_ledger: Made) -> None:
    row = rows(go(made_ledger.ledger, "heads", head="bare"))[0]
    assert (row["worst retention"], row["interval"]) == ("–", "–")
    assert (row["predicted loss"], row["measured loss"]) == ("no study", "not measured")


@pytest.mark.parametrize(
    ("query", "heads"),
    [
        ({"review": "all", "gate": "fail"}, ["prune.gguf"]),
        ({"verdict": "undecided"}, ["bare.gguf"]),
        ({"head": "Q8"}, ["q8_0.gguf"]),
        ({"reference": "other-ref"}, ["other.gguf"]),
        ({"reference": "f" * 20}, ["other.gguf"]),
        ({"verdict": "function", "head": "q4"}, ["q4_0.gguf"]),
    ],
)
def test_the_address_filters(
    go: Go, made_ledger: Made, query: dict[str, str], heads: list[str]
) -> None:
    at = go(made_ledger.ledger, "heads", **query)
    assert [row["head"] for row in rows(at)] == heads
    assert not at.warning


def test_a_filter_changed_by_hand_changes_the_list(go: Go, made_ledger: Made) -> None:
    at = go(made_ledger.ledger, "heads")
    at.selectbox(key="verdict").set_value("undecided").run()
    assert not at.exception and [row["head"] for row in rows(at)] == ["bare.gguf"]


@pytest.mark.parametrize("query", [{"verdict": "nonsense"}, {"gate": "x"}, {"review": "*b*"}])
def test_an_unknown_value_in_the_address_is_told(
    go: Go, made_ledger: Made, query: dict[str, str]
) -> None:
    at = go(made_ledger.ledger, "heads", **query)
    (name,) = query
    (warning,) = at.warning
    assert f"asks for {name}" in warning.value and "possible: all" in warning.value.replace(
        "waiting, reviewed, ", ""
    )
    assert len(rows(at)) == 5


@pytest.mark.parametrize("page", ["x", "-1", "0", "2", "1.5"])
def test_a_page_that_is_not_there_is_told(go: Go, made_ledger: Made, page: str) -> None:
    at = go(made_ledger.ledger, "heads", page=page)
    (warning,) = at.warning
    assert f"asks for page “{page}”" in warning.value and "possible: 1." in warning.value
    assert len(rows(at)) == 5 and not go(made_ledger.ledger, "heads", page="1").warning


@pytest.mark.parametrize(("page", "name", "known"), [
    ("heads", "heads", "review, verdict"), ("compare", "heads", "head"), ("study", "run", "ref"),
    ("new_audit", "run", "job"), ("methods", "run", "none"), ("head", "head", "run, cand, view"),
    ("review", "head", "run, cand"), ("tokens", "head", "run, cand, outcome"),
])  # fmt: skip
def test_a_parameter_that_no_page_knows_is_told(
    go: Go, made_ledger: Made, page: str, name: str, known: str
) -> None:
    (warning,) = go(made_ledger.ledger, page, **{name: "junk"}).warning
    assert f"asks for parameter “{name}”" in warning.value
    assert f"possible: {known}" in warning.value


def test_a_job_that_is_not_there_is_told(go: Go, made_ledger: Made) -> None:
    (warning,) = go(made_ledger.ledger, "new_audit", job="junk").warning
    assert "asks for job “junk”" in warning.value and "none yet" in warning.value


@pytest.mark.parametrize("page", ["0", "-5", "99", "x"])
def test_a_page_of_flips_that_is_not_there_is_told(go: Go, made_ledger: Made, page: str) -> None:
    at = go(made_ledger.ledger, "tokens", **made_ledger.head("judged", "1"), page=page)
    (warning,) = at.warning
    assert f"asks for page “{page}”" in warning.value
    assert "a whole number from 1 to" in warning.value


def test_a_filter_that_nothing_fits_says_which(go: Go, made_ledger: Made) -> None:
    at = go(made_ledger.ledger, "heads", head="**zzz**", verdict="fidelity")
    (info,) = at.info
    assert info.value == r"No head waits for a review and fits: verdict fidelity, head \*\*zzz\*\*."
    assert not at.dataframe


def test_a_click_on_a_row_opens_its_head(go: Go, made_ledger: Made) -> None:
    at = go(made_ledger.ledger, "heads")
    at.session_state["heads-table"] = {
        "selection": {"rows": [], "columns": [], "cells": [(3, "gate")]}
    }
    at.run()
    assert not at.exception and [title.value for title in at.title] == [r"q4\_0.gguf"]
    assert dict(at.query_params) == made_ledger.head("two", "2")


def test_ticked_rows_lead_to_compare(go: Go, made_ledger: Made) -> None:
    at = go(made_ledger.ledger, "heads")
    at.session_state["heads-table"] = {"selection": {"rows": [3, 4], "columns": [], "cells": []}}
    at.run()
    run = made_ledger.runs["two"].run
    link = at.get("page_link")[-1].proto
    assert link.label == "Compare the 2 heads ticked" and not link.disabled
    assert link.query_string == f"head={run}.{'2' * 12}&head={run}.{'3' * 12}"


def test_no_ledger_and_an_empty_one_name_the_command(go: Go, tmp_path: Path) -> None:
    at = go(tmp_path / "nowhere", "heads")
    assert "There is no ledger here yet" in told(at)
    assert at.code[0].value.startswith("audit compare")
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "empty").mkdir()
    assert "This ledger holds no runs yet" in told(go(tmp_path / "empty", "heads"))


def test_a_run_of_a_newer_schema_is_told_and_hides_no_other(go: Go, tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path / "ledger")
    kept, newer = (ledger.files.save(a_run(seed), [_table()]) for seed in (1, 2))
    place = tmp_path / "ledger" / "runs" / newer.run / "run.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"schema": 99}))
    at = go(ledger, "heads")
    assert newer.run in at.warning[0].value and "schema 99" in at.warning[0].value
    assert [row["run"] for row in rows(at)] == [kept.run]


def test_a_run_whose_files_are_gone_is_listed_as_that(go: Go, tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path / "ledger")
    saved = ledger.save_run(a_run(1), [_table()])
    ledger.runs()
    shutil.rmtree(tmp_path / "ledger" / "runs" / saved.run)
    (row,) = rows(go(ledger, "heads"))
    assert row["run"] == f"{saved.run} (files missing)"


def test_a_database_that_is_away_is_told(
    go: Go, made_ledger: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AUDIT_DB_URL", f"sqlite:///{tmp_path}/no/such/folder/index.sqlite")
    at = go(made_ledger.ledger, "heads")
    assert len(at.error) == 1 and not at.dataframe
    at = go(made_ledger.ledger, "head", **made_ledger.head("judged", "1"))
    assert "Reviews and later judgements can not be shown" in at.warning[0].value
    assert "prune.gguf: function cut" in told(at)


@pytest.mark.parametrize(("name", "digit"), [("judged", "1"), ("two", "2")])
def test_what_a_lost_database_knew_is_unknown_and_not_denied(
    go: Go, made_ledger: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str,
    digit: str,
) -> None:  # fmt: skip
    (tmp_path / "index.sqlite").write_bytes(b"garbage" * 1000)
    monkeypatch.setenv("AUDIT_DB_URL", f"sqlite:///{tmp_path}/index.sqlite")
    at = go(made_ledger.ledger, "head", **made_ledger.head(name, digit), view="Decisions")
    assert "gate: unknown" in told(at) and "review: unknown" in told(at)
    for denied in ("not judged", "waits for", "Nobody decided", "No policy was", "gate: fail"):
        assert denied not in told(at), denied
    assert [one.proto.label for one in at.get("download_button")] == ["Run document, JSON"]


def test_long_lists_are_paged(go: Go, tmp_path: Path) -> None:
    ledger = large_ledger(tmp_path / "ledger", 51, 40, 40)
    first, second = (go(ledger, "heads", page=page) for page in ("1", "2"))
    assert len(rows(first)) == 100 and len(rows(second)) == 2
    assert not {row["run"] for row in rows(first)} & {row["run"] for row in rows(second)}
    assert "51 runs in all" in told(first)


def _table() -> object:
    from tests.ledger.made import TABLE

    return TABLE
