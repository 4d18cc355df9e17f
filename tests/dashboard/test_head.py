"""A head's page: its order, its views, and what it says where something is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from audit.dashboard.words import safe
from audit.report.wording import clean
from tests.dashboard.conftest import Go, Made, told
from tests.dashboard.made import HOSTILE
from tests.report import made

VIEWS = ("Evidence", "By corpus", "Distributions", "Checks", "Decisions", "Provenance")


def figures(at: AppTest) -> list[dict[str, object]]:
    return [json.loads(one.proto.spec) for one in at.get("vega_lite_chart")]


def test_it_says_what_was_compared_then_the_outcome_then_the_evidence(
    go: Go, made_ledger: Made
) -> None:
    at = go(made_ledger.ledger, "head", **made_ledger.head("judged", "1"))
    heads, traces = (table.value for table in at.dataframe[:2])
    assert list(heads.iloc[:, 0]) == ["reference", "candidate"]
    assert list(heads["sha256"]) == ["e" * 12, "1" * 12]
    assert list(traces["corpus"]) == ["code", "german"]
    assert at.subheader[0].value == (
        "prune.gguf: function cut: shift tax 22.3 points lies above 6.0 points"
    )
    assert {metric.label: metric.value for metric in at.metric} == {
        "retention R": "74.7 %", "disagreement D": "20.00 %", "shift loss": "25.3 pt",
        "size": "1.0 MiB",
    }  # fmt: skip
    assert "fail: of 2 limits" in told(at) and "review: reject by Ada" in told(at)
    assert len(figures(at)) == 2


def test_what_changed_in_the_policy_stands_out(go: Go, made_ledger: Made) -> None:
    at = go(made_ledger.ledger, "head", **made_ledger.head("judged", "1"), view="Checks")
    assert "shift: threshold changed 0.9 -&gt; 0.95" in at.warning[0].value
    assert not go(made_ledger.ledger, "head", **made_ledger.head("two", "2"), view="Checks").warning


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("run", "digit"), [("hostile", "4"), ("bare", "5")])
def test_every_view_of_every_kind_of_run(
    go: Go, made_ledger: Made, view: str, run: str, digit: str
) -> None:
    at = go(made_ledger.ledger, "head", **made_ledger.head(run, digit), view=view)
    (open_,) = [tab for tab in at.tabs if tab.label == view]
    shown = open_.get("dataframe") or open_.get("vega_lite_chart") or open_.markdown or open_.text
    assert shown or open_.caption
    assert not [tab for tab in at.tabs if tab.label != view and tab.children], "others are lazy"


def test_views_show_what_they_promise(go: Go, made_ledger: Made) -> None:
    head = made_ledger.head("judged", "1")
    corpora = go(made_ledger.ledger, "head", **head, view="By corpus")
    assert "prune.gguf keeps least on german: 74.7 % (68.7 % to 80.7 %)" in told(corpora)
    spread = go(made_ledger.ledger, "head", **head, view="Distributions")
    assert len(figures(spread)) == 2
    checks = go(made_ledger.ledger, "head", **head, view="Checks")
    assert "Controls: 1 of 1 passed" in told(checks)
    decisions = go(made_ledger.ledger, "head", **head, view="Decisions")
    judged, said = (table.value for table in decisions.tabs[4].get("dataframe"))
    assert list(judged["gate"]) == ["fail"] and list(said["decision"]) == ["reject"]
    origin = go(made_ledger.ledger, "head", **head, view="Provenance")
    pairs = origin.tabs[5].get("dataframe")[0].value
    assert head["run"] in set(pairs["value"])


def test_no_estimate_is_a_reason_and_no_number(go: Go, made_ledger: Made) -> None:
    for view in VIEWS[:3]:
        at = go(made_ledger.ledger, "head", **made_ledger.head("bare", "5"), view=view)
        assert "nan" not in told(at).lower().replace("provenance", "")
    evidence = go(made_ledger.ledger, "head", **made_ledger.head("bare", "5"))
    assert "no head has both a disagreement rate and a harm" in told(evidence)


def test_nothing_chosen_leads_to_the_list(go: Go, made_ledger: Made, tmp_path: Path) -> None:
    at = go(made_ledger.ledger, "head")
    assert "No head is chosen" in at.info[0].value
    assert go(tmp_path / "none", "head").code[0].value.startswith("audit compare")


def test_an_unknown_run_names_its_near_matches(go: Go, made_ledger: Made) -> None:
    known = made_ledger.runs["judged"].run
    at = go(made_ledger.ledger, "head", run=known[:-1] + "~")
    (error,) = at.error
    assert known in error.value and "did you mean" in error.value
    assert safe(made_ledger.ledger.where.rstrip("/")) in error.value


def test_an_unknown_candidate_is_told_and_can_be_picked(go: Go, made_ledger: Made) -> None:
    run = made_ledger.runs["two"].run
    at = go(made_ledger.ledger, "head", run=run, cand="zzz", view="Checks")
    assert "no candidate 'zzz'" in at.error[0].value
    at.selectbox[0].select("3" * 64).run()
    assert not at.exception and at.title[0].value == r"q8\_0.gguf"
    assert not go(made_ledger.ledger, "head", run=run).error, "none named: a choice, no error"


def test_an_unknown_view_is_told(go: Go, made_ledger: Made) -> None:
    at = go(made_ledger.ledger, "head", **made_ledger.head("two", "2"), view="Nowhere")
    assert "asks for view “Nowhere”" in at.warning[0].value


def test_a_beginning_of_the_id_is_enough(go: Go, made_ledger: Made) -> None:
    run = made_ledger.runs["judged"].run
    at = go(made_ledger.ledger, "head", run=run[:6], view="Checks")
    assert at.title[0].value == "prune.gguf"


def test_a_name_from_a_stranger_is_only_text(go: Go, made_ledger: Made) -> None:
    at = go(made_ledger.ledger, "head", **made_ledger.head("hostile", "4"), view="Checks")
    assert at.title[0].value == safe(HOSTILE)
    for markdown in (*at.title, *at.subheader, *at.markdown, *at.caption):
        assert "<img" not in markdown.value and "**b**" not in markdown.value
        assert not getattr(markdown, "allow_html", False)
    assert at.dataframe[0].value["name"][1] == clean(HOSTILE)


def test_a_later_judgement_is_shown(go: Go, tmp_path: Path) -> None:
    from audit.ledger import open_ledger
    from tests.dashboard.made import a_candidate, a_run, table

    ledger = open_ledger(tmp_path / "ledger")
    run = ledger.save_run(
        a_run(a_candidate("x.gguf", "9"), created="2026-11-01T09:00:00Z"), [table("x.gguf", 100)]
    )
    assert "gate: not judged" in told(go(ledger, "head", run=run.run, view="Checks"))
    ledger.add_judgement(run.run, "9" * 64, made.gate("pass", made.limit(outcome="pass")))
    at = go(ledger, "head", run=run.run, view="Checks")
    assert "gate: pass" in told(at) and "pass: of 1 limits" in told(at)


def test_a_changed_table_is_refused(go: Go, tmp_path: Path) -> None:
    from audit.ledger import open_ledger
    from tests.dashboard.made import a_candidate, a_run, table

    ledger = open_ledger(tmp_path / "ledger")
    run = ledger.save_run(
        a_run(a_candidate("x.gguf", "9"), created="2026-11-01T09:00:00Z"), [table("x.gguf", 100)]
    )
    (tmp_path / "ledger" / "runs" / run.run / "positions.parquet").write_bytes(b"other")
    at = go(ledger, "head", run=run.run)
    assert "missing or has changed" in at.error[0].value and len(at.title) == 0
