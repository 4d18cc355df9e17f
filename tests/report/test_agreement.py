"""One run in all formats: the same sentences and numbers, and the documents that read back."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from rich.console import Console

from audit.records import Run
from audit.report.content import report_of
from audit.report.formats import FORMATS, render
from audit.report.schema import DIALECT, run_schema
from audit.report.terminal import show_run
from audit.report.wording import clean, number
from tests.conftest import Golden
from tests.report.made import candidate, gate, limit, plain, run, runs
from tests.report.readers import github, page_of, squeezed

ROOT = Path(__file__).resolve().parents[2]


def shown(found: Run, format_: str) -> str:
    """A format's text as its reader sees it."""
    if format_ == "terminal":
        console = Console(width=200, record=True, file=io.StringIO())
        show_run(found, console)
        return squeezed(console.export_text())
    text = render(found, format_)
    if format_ in ("markdown", "card"):
        return squeezed(github(text).text)
    return squeezed(page_of(text).text) if format_ == "html" else squeezed(text)


@pytest.mark.parametrize("format_", ["terminal", "markdown", "html", "junit", "card"])
def test_the_sentences_are_the_same_everywhere(golden: Golden, format_: str) -> None:
    seen = shown(golden.run, format_)
    told = report_of(golden.run).candidates
    for one in told:
        assert one.verdict == clean(one.record.verdict.sentence) and one.verdict in seen
        assert all(sentence in seen for sentence in one.predictions)
    assert [len(one.predictions) for one in told] == [2, 2, 0]  # none for a trimmed head


@pytest.mark.parametrize("format_", ["markdown", "html"])
def test_every_number_of_the_terminal_is_in_the_long_formats(golden: Golden, format_: str) -> None:
    seen = page_of(render(golden.run, "html")) if format_ == "html" else None
    cells = seen.cells if seen else github(render(golden.run, "markdown")).cells
    for one in report_of(golden.run).candidates:
        for row in one.estimates.rows:
            assert set(row) - {" "} <= set(map(squeezed, cells))


def test_numbers_come_from_the_run_alone(golden: Golden) -> None:
    """Each shown estimate is the run's own, in the unit of its measure."""
    for one, judged in zip(golden.run.candidates, report_of(golden.run).candidates, strict=True):
        values = {number(e.measure, e.value) for e in one.estimates}
        assert {row[2] for row in judged.estimates.rows} <= values


def test_the_document_is_the_run_and_of_the_published_schema(golden: Golden) -> None:
    document = json.loads(render(golden.run, "json"))
    assert Run.model_validate(document) == golden.run
    validator = jsonschema.Draft202012Validator(run_schema())
    validator.validate(document)
    kept = json.loads((golden.ledger / "runs" / golden.run.run / "run.json").read_text())
    validator.validate(kept)
    broken = [
        {**document, "extra": 1},
        {key: value for key, value in document.items() if key != "calibration"},
        {**document, "traces": [{}]},
        {**document, "schema": "one"},
    ]
    for one in broken:
        assert not validator.is_valid(one)
    judged = run(candidate(gate=gate("fail", limit())))
    validator.validate(json.loads(render(judged, "json")))


def test_the_published_schema_is_current() -> None:
    """Written by `audit report --schema -o docs/run.schema.json`."""
    published = json.loads((ROOT / "docs" / "run.schema.json").read_text(encoding="utf-8"))
    assert published == run_schema() and published["$schema"] == DIALECT
    jsonschema.Draft202012Validator.check_schema(published)
    estimate = published["$defs"]["Estimate"]
    assert set(estimate["required"]) == set(estimate["properties"])


@settings(max_examples=25)
@given(runs())
def test_documents_of_whatever_a_run_holds_are_valid(found: Run) -> None:
    text = render(found, "json")
    text.encode()
    jsonschema.Draft202012Validator(run_schema()).validate(json.loads(text))


@settings(max_examples=25)
@given(runs(plain))
def test_odd_numbers_are_shown_as_numbers(found: Run) -> None:
    """None, tiny, negative and huge values: never nan, inf, None, or hundreds of digits."""
    for format_ in FORMATS:
        if format_ == "html":
            continue  # the same cells; charts would draw for minutes
        text = render(found, format_)
        assert not re.search(r"(?i)(?<![\w.-])[-+]?(nan|inf|infinity)(?![\w-])", text)
        if format_ != "json":
            assert "None" not in text and not re.search(
                r"\d{20}", re.sub(r"[0-9a-f]{32,}", "", text)
            )


def test_huge_and_tiny_numbers() -> None:
    assert number("retention", 1.7e308) == "1.70e+310 %"
    assert number("harm", -1e308) == "-1.00e+308"
    assert number("kl_nats", 5e-324) == "0.0000" and number("shift_tax", -1e-12) == "0.0 pt"
    assert number("positions", 4000.0) == "4,000" and number("disagreement", None) == "–"


def test_a_run_where_only_some_were_judged_has_failed() -> None:
    both = run(candidate("a", "a" * 64, gate=gate("pass", limit(outcome="pass"))), candidate())
    report = report_of(both)
    assert report.outcome == "fail"
    assert report.headline == "fail: 1 of 2 candidates passes, 1 not judged"
    assert report_of(run()).outcome is None
    two = [candidate(d, d * 64, gate=gate("undecided")) for d in "ab"]
    assert report_of(run(*two)).headline == "undecided: 2 of 2 candidates are undecided"


@pytest.mark.parametrize(
    "module", ["audit.cli.report", "audit.report.formats", "audit.report.html"]
)
def test_nothing_heavy_is_loaded_before_it_is_needed(module: str) -> None:
    code = f"import sys, {module}; sys.exit(bool({{'torch', 'altair'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
