"""Compare, Tokens, Study and Methods in all their states."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit.catalogue import CATALOGUE, COMPOSED, TOKEN_CLASSES
from audit.dashboard.words import safe
from audit.ledger import open_ledger
from audit.report.study import study_of
from audit.report.wording import measure_title
from tests.conftest import SAMPLE, Golden
from tests.dashboard.conftest import Go, Made, told


@pytest.mark.parametrize("page", ["head", "compare", "tokens", "study", "methods", "heads"])
@pytest.mark.parametrize("kind", ["nowhere", "empty"])
def test_every_page_without_runs(go: Go, tmp_path: Path, page: str, kind: str) -> None:
    if kind == "empty":
        (tmp_path / kind).mkdir()
    at = go(tmp_path / kind, page)
    assert at.code or page == "methods"
    assert not at.error


# Compare


def keys(ledger: Made, *wanted: tuple[str, str]) -> list[str]:
    return [f"{ledger.runs[run].run}.{digit * 12}" for run, digit in wanted]


def test_two_heads_are_compared_by_paired_differences(go: Go, made_ledger: Made) -> None:
    from audit.diff import Side, comparable_corpora, outcome_differences
    from audit.ledger import find_candidate
    from audit.report.diff import outcome_rows, verdict_of
    from audit.stats import Resampling

    at = go(made_ledger.ledger, "compare", head=keys(made_ledger, ("two", "2"), ("two", "3")))
    run = made_ledger.runs["two"]
    sides = [Side(run, find_candidate(run, digit * 12)) for digit in "23"]
    table = made_ledger.ledger.load_positions(run)
    corpora = comparable_corpora(*sides)
    found, _ = outcome_differences(*sides, (table, table), corpora, Resampling())
    shown = next(t.value for t in at.dataframe if "b minus a" in t.value.columns)
    assert shown.to_numpy().tolist() == outcome_rows(found)
    for one in found:
        if sentence := verdict_of(one, "q4_0.gguf", "q8_0.gguf"):
            assert safe(sentence) in told(at)
    assert len(at.get("vega_lite_chart")) == 3


def test_five_heads_at_most(go: Go, made_ledger: Made) -> None:
    wanted = [("two", "2"), ("two", "3"), ("judged", "1"), ("hostile", "4"), ("bare", "5"),
              ("other", "6")]  # fmt: skip
    at = go(made_ledger.ledger, "compare", head=keys(made_ledger, *wanted))
    assert "names 6 heads" in at.warning[0].value
    assert len(at.multiselect[0].value) == 5


def test_what_is_not_comparable_is_refused_and_the_hash_named(go: Go, made_ledger: Made) -> None:
    wanted = keys(made_ledger, ("two", "2"), ("other", "6"))
    at = go(made_ledger.ledger, "compare", head=wanted)
    (error,) = at.error
    assert "the reference differs" in error.value
    assert "e" * 16 in error.value and "f" * 16 in error.value
    (inputs,) = [t.value for t in at.dataframe if "differs" in t.value.columns]
    assert "reference" in set(inputs["differs"])
    assert not at.get("vega_lite_chart")


def test_one_refusal_leaves_the_others(go: Go, made_ledger: Made) -> None:
    wanted = keys(made_ledger, ("two", "2"), ("other", "6"), ("two", "3"))
    at = go(made_ledger.ledger, "compare", head=wanted)
    assert len(at.error) == 1 and len(at.get("vega_lite_chart")) == 3


def test_fewer_than_two_ask_for_more(go: Go, made_ledger: Made) -> None:
    for head in ([], keys(made_ledger, ("two", "2"))):
        at = go(made_ledger.ledger, "compare", head=head)
        assert "Pick two heads or more" in at.info[0].value and not at.error


@pytest.mark.parametrize("key", ["nonsense", "<b>.x", "."])
def test_an_unknown_head_in_the_address_is_told(go: Go, made_ledger: Made, key: str) -> None:
    at = go(made_ledger.ledger, "compare", head=[key])
    assert len(at.error) == 1


def test_picking_heads_changes_the_address(go: Go, made_ledger: Made) -> None:
    at = go(made_ledger.ledger, "compare")
    wanted = keys(made_ledger, ("two", "3"), ("two", "2"))
    at.multiselect[0].set_value(wanted).run()
    assert not at.exception and at.query_params["head"] == wanted
    assert "q8\\_0.gguf" in told(at)


# Tokens


def test_costliest_flips_come_first_and_ids_stay_ids(go: Go, made_ledger: Made) -> None:
    at = go(made_ledger.ledger, "tokens", **made_ledger.head("two", "2"))
    table = made_ledger.ledger.load_positions(made_ledger.runs["two"])
    mine = table[(table["candidate"] == "q4_0.gguf") & table["disagree"]]
    lost = mine[mine["ref_accepts"] & ~mine["cand_accepts"]]
    worst = lost.nlargest(25, "ref_margin")
    shown = at.dataframe[0].value
    assert list(shown["verifier wanted"]) == [str(id_) for id_ in worst["oracle"]]
    assert [float(m) for m in shown["its margin"]] == [round(float(m), 2)
                                                       for m in worst["ref_margin"]]  # fmt: skip
    assert f"of {len(lost):,}" in told(at) and "Tokens are ids" in told(at)


@pytest.mark.parametrize(
    ("query", "column", "value"),
    [
        ({"corpus": "german"}, "corpus", "german"),
        ({"class": "digit"}, "class", "digit"),
        ({"outcome": "gained"}, "outcome", "gained"),
    ],
)
def test_the_address_filters_flips(
    go: Go, made_ledger: Made, query: dict[str, str], column: str, value: str
) -> None:
    at = go(made_ledger.ledger, "tokens", **made_ledger.head("two", "2"), **query)
    assert set(at.dataframe[0].value[column]) == {value}


def test_a_margin_that_no_flip_has_says_so(go: Go, made_ledger: Made) -> None:
    at = go(made_ledger.ledger, "tokens", **made_ledger.head("two", "2"), margin="1000")
    assert "No flip fits these filters" in at.info[0].value


def test_unknown_filters_are_told(go: Go, made_ledger: Made) -> None:
    at = go(
        made_ledger.ledger, "tokens", **made_ledger.head("two", "2"), corpus="x", margin="y",
        page="999",
    )  # fmt: skip
    assert len(at.warning) >= 2 and len(at.dataframe) == 2


def test_a_click_shows_more_of_the_text(go: Go, made_ledger: Made) -> None:
    at = go(made_ledger.ledger, "tokens", **made_ledger.head("two", "2"))
    cells = {"rows": [], "columns": [], "cells": [(0, "class")]}
    at.session_state["flips-1"] = {"selection": cells}
    at.run()
    assert not at.exception and len(at.code) == 1
    assert "q8_0.gguf proposed" in told(at), "the run's other head at the same position"


def test_tokens_of_nothing_and_of_no_table(go: Go, made_ledger: Made) -> None:
    assert "No head is chosen" in go(made_ledger.ledger, "tokens").info[0].value


def test_the_verifiers_tokenizer_reads_the_tokens(
    go: Go, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokenizers import Tokenizer

    ledger = open_ledger(golden.ledger)
    query = {"run": golden.run.run, "cand": golden.run.candidates[1].head.sha256[:12]}
    at = go(ledger, "tokens", **query)
    assert "read by the verifier's own tokenizer" in told(at)
    tokenizer = Tokenizer.from_file(str(SAMPLE / "model" / "tokenizer.json"))
    cell = at.dataframe[0].value["verifier wanted"][0]
    number, _, text = cell.partition(" “")
    said = tokenizer.decode([int(number)]).replace("\n", "↵").replace("\t", "⇥")
    assert text == f"{said}”"
    monkeypatch.setenv("AUDIT_TOKENIZER", str(SAMPLE))
    assert "Tokens are ids" in told(go(ledger, "tokens", **query))


# Study and Methods


def test_a_study_shows_its_table_and_charts(go: Go, golden: Golden) -> None:
    at = go(open_ledger(golden.ledger), "study", ref=golden.run.reference.sha256[:20])
    assert not at.warning
    told_ = study_of(golden.calibration)
    assert at.dataframe[0].value.to_numpy().tolist() == [list(row) for row in told_.table.rows]
    for sentence in (*told_.rankings, *told_.rules):
        assert safe(sentence) in told(at)
    assert len(at.get("vega_lite_chart")) == 4


def test_an_unknown_reference_is_told(go: Go, golden: Golden) -> None:
    at = go(open_ledger(golden.ledger), "study", ref="0000")
    assert "asks for reference" in at.warning[0].value and len(at.dataframe) == 2


def test_methods_tell_every_measure_of_the_catalogue(go: Go, tmp_path: Path) -> None:
    at = go(tmp_path, "methods")
    titles = {one.value for one in at.subheader}
    for name, measure in CATALOGUE.items():
        assert safe(measure_title(name)) in titles and measure.formula in told(at)
    for name, meaning in COMPOSED.items():
        assert safe(measure_title(name)) in titles and meaning in told(at)
    assert list(at.dataframe[0].value["class"]) == list(TOKEN_CLASSES)
