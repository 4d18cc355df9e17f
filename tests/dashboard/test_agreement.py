"""One verdict, one sentence: on the page, at the terminal, in the HTML report."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner
from lxml import html

from audit.dashboard.exports import report_text
from audit.dashboard.words import safe
from audit.ledger import open_ledger
from tests.conftest import Golden
from tests.dashboard.conftest import Go, told


@pytest.fixture(scope="module")
def at_the_terminal(golden: Golden) -> str:
    from audit.cli.main import group

    done = CliRunner().invoke(group, ["show", golden.run.run, "--ledger", str(golden.ledger)])
    assert done.exit_code == 0
    return done.stdout


def test_the_verdict_is_the_same_everywhere(go: Go, golden: Golden, at_the_terminal: str) -> None:
    ledger = open_ledger(golden.ledger)
    page = html.fromstring(report_text_of(golden, "html"))
    in_report = re.sub(r"\s+", " ", page.text_content())
    lines = at_the_terminal.splitlines()
    for candidate in golden.run.candidates:
        sentence = candidate.verdict.sentence
        name = candidate.head.name
        at = go(ledger, "head", run=golden.run.run, cand=candidate.head.sha256[:12], view="Checks")
        assert at.subheader[0].value == safe(f"{name}: {sentence}")
        assert f"{name}: {sentence}" in lines
        assert sentence in in_report


def test_every_figure_of_the_list_is_the_terminals(go: Go, golden: Golden) -> None:
    from audit.cli.main import group

    done = CliRunner().invoke(group, ["runs", "--ledger", str(golden.ledger), "--json"])
    (run,) = json.loads(done.stdout)["runs"]
    shown = go(open_ledger(golden.ledger), "heads").dataframe[0].value
    for row, one in zip(shown.to_dict("records"), run["candidates"], strict=True):
        assert row["head"] == one["name"] and row["verdict"] == one["verdict"]
        assert row["worst retention"].strip() == f"{100 * one['worst_retention']:.1f} %"
        assert row["on"] == one["worst_corpus"]


def test_the_gate_says_the_same(go: Go, golden: Golden, at_the_terminal: str) -> None:
    at = go(open_ledger(golden.ledger), "head", run=golden.run.run,
            cand=golden.run.candidates[0].head.sha256[:12], view="Checks")  # fmt: skip
    gate = golden.run.candidates[0].gate
    assert gate is None and "measured, not judged" in told(at)
    assert ": pass" not in at_the_terminal


def test_downloads_are_what_audit_report_writes(golden: Golden) -> None:
    from audit.cli.main import group

    for format_ in ("markdown", "card"):
        args = ["report", golden.run.run, "--format", format_, "--ledger", str(golden.ledger)]
        assert CliRunner().invoke(group, args).stdout == report_text_of(golden, format_)


def report_text_of(golden: Golden, format_: str) -> str:
    import os

    os.environ["AUDIT_LEDGER"] = str(golden.ledger)
    try:
        return report_text(golden.run, format_, ())
    finally:
        del os.environ["AUDIT_LEDGER"]
