"""The model-card section: YAML that loads, in the Hub's own form, bound to the head's hash."""

from __future__ import annotations

import re

import yaml
from huggingface_hub.repocard_data import model_index_to_eval_results
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.records import Run
from audit.report.card import render_card
from audit.report.content import report_of
from audit.report.escape import yaml_number, yaml_text
from audit.report.wording import clean
from tests.conftest import Golden
from tests.report.made import candidate, hostile, run, runs
from tests.report.readers import github


def blocks(text: str) -> list[dict]:
    return [
        yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.S | re.M)
    ]


def test_the_hub_reads_the_figures(golden: Golden) -> None:
    found = blocks(render_card(report_of(golden.run)))
    assert len(found) == len(golden.run.candidates)
    for block, one in zip(found, golden.run.candidates, strict=True):
        name, results = model_index_to_eval_results(block["model-index"])
        assert name == one.head.name
        values = {(e.measure, e.corpus): e for e in one.estimates if e.token_class is None}
        assert {r.metric_type for r in results} == {
            "retention", "disagreement", "vocabulary_ceiling",
        }  # fmt: skip
        for result in results:
            wanted = values[result.metric_type, result.dataset_name]
            assert abs(result.metric_value - wanted.value) <= 5e-6 * abs(wanted.value)
            assert abs(result.metric_args["low"] - wanted.low) <= 1e-5
        assert block["head-audit"]["head_sha256"] == one.head.sha256
        assert block["head-audit"]["run"] == golden.run.run
        assert block["head-audit"]["verdict"] == one.verdict.kind
        assert set(block["head-audit"]["retention"]) == {
            "in_distribution", "same_register", "domain_shift",
        }  # fmt: skip


def test_a_run_that_was_not_recorded_says_so() -> None:
    assert "in a run that was not recorded" in render_card(report_of(run(run="")))


@settings(max_examples=40)
@given(runs())
def test_loads_and_shows_whatever_a_run_holds(found: Run) -> None:
    text = render_card(report_of(found))
    assert len(blocks(text)) == len(found.candidates)
    assert github(text).tags <= {
        "h2", "p", "table", "thead", "tbody", "tr", "th", "td", "pre", "code",
    }  # fmt: skip


@given(st.one_of(st.none(), st.floats()))
def test_a_number_is_a_number_to_every_yaml(value: float | None) -> None:
    read = yaml.safe_load(yaml_number(value))
    if value is None or value != value or value in (float("inf"), float("-inf")):
        assert read is None
    else:
        assert isinstance(read, float) and abs(read - value) <= 1e-5 * abs(value)


@given(hostile)
def test_a_text_is_that_text(text: str) -> None:
    assert yaml.safe_load(yaml_text(clean(text))) == clean(text)


def test_names_do_not_leave_their_place() -> None:
    text = render_card(report_of(run(candidate("a\n```\n# x: y"))))
    (block,) = blocks(text)
    assert block["model-index"][0]["name"] == "a↵```↵# x: y"
    assert github(text).tags.isdisjoint({"h1"})
