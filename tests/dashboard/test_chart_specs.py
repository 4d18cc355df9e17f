"""The two charts that only the dashboard draws, and how a drawing becomes a spec of its page."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from audit.dashboard.parts import spec_of
from audit.paired import Difference
from audit.report.charts import lost_by_class, paired_retention
from audit.report.charts.points import LABEL
from tests.ledger.made import a_table


def difference(corpus: str | None, value: float | None, half: float | None, **more: Any) -> Any:
    ends = (None, None) if half is None or value is None else (value - half, value + half)
    fields: dict[str, Any] = {
        "measure": "retention", "corpus": corpus, "register": "domain_shift", "a": 0.9, "b": 0.9,
        "value": value, "low": ends[0], "high": ends[1], "level": 0.95, "only_a": 1, "only_b": 2,
        "positions": 100, "sequences": 10, "reason": None,
    }  # fmt: skip
    return Difference(**(fields | more))


def test_paired_differences_say_more_and_less_only_where_the_interval_does() -> None:
    found = [
        difference("up", 0.05, 0.02), difference("down", -0.05, 0.02),
        difference("open", 0.05, 0.06), difference("unknown", 0.05, None, reason="2 sequences"),
        difference("none", None, None), difference(None, 0.5, 0.1),
        difference("up", 0.5, 0.1, measure="disagreement"),
    ]  # fmt: skip
    drawing = paired_retention("first.gguf", {"second.gguf": found})
    assert drawing.data is not None and drawing.chart is not None
    rows = drawing.data.set_index("row")
    assert dict(rows["word"]) == {"up": "more", "down": "less", "open": "", "unknown": ""}
    assert rows.loc["up", "told"] == "5.0 pt (3.0 pt to 7.0 pt)"
    assert rows.loc["unknown", "told"] == "5.0 pt (2 sequences)"
    assert drawing.title == "Kept beside first: more on 1 and less on 1 of 4 rows"
    spec = drawing.chart.to_dict()
    zero = spec["layer"][0]
    assert zero["mark"]["type"] == "rule"
    assert spec["datasets"][zero["data"]["name"]] == [{"x": 0.0}]
    points = next(layer for layer in spec["layer"] if layer["mark"]["type"] == "point")
    assert points["encoding"]["x"]["axis"]["title"].endswith("points")
    assert points["encoding"]["y"]["sort"] == ["up", "down", "open", "unknown"]


def test_several_heads_are_told_apart_and_corpora_stand_together() -> None:
    drawing = paired_retention(
        "a", {"b": [difference("x", 0.1, 0.2), difference("y", 0.1, 0.2)],
              "c": [difference("x", 0.1, 0.2)]},
    )  # fmt: skip
    assert drawing.data is not None
    assert list(drawing.data["row"]) == ["x · b", "x · c", "y · b"]
    assert drawing.title == "On no corpus is a difference to a shown"


def test_without_a_difference_there_is_a_reason() -> None:
    drawing = paired_retention("a", {"b": [difference("x", None, None)]})
    assert drawing.chart is None and "no difference" in drawing.reason


def test_lost_by_class_counts_as_by_hand() -> None:
    classes = ["latin"] * 10 + ["digit"] * 6 + ["code"] * 2
    ref = np.array([1] * 18)
    oracle = np.array([1] * 10 + [1] * 6 + [1] * 2)
    cand = np.array([1] * 6 + [2] * 4 + [1] * 5 + [2] + [2] * 2)
    table = a_table(list(ref), list(cand), list(oracle), [0] * 18,
                    oracle_class=np.array(classes, object))  # fmt: skip
    drawing = lost_by_class(table)
    assert drawing.data is not None and drawing.chart is not None
    assert drawing.data.to_numpy().tolist() == [["latin", 10, 4, 0.4], ["digit", 6, 1, 1 / 6]]
    assert drawing.title == "Most is lost of latin tokens: 4 of 10, 40.0 %"
    assert drawing.notes == ("Left out, with fewer than 5 acceptances: code.",)
    spec = drawing.chart.to_dict()
    assert [layer["mark"]["type"] for layer in spec["layer"]] == ["bar", "text"]


def test_gains_are_no_loss() -> None:
    table = a_table([1] * 6, [1] * 5 + [2], [1] * 5 + [2], [0] * 6,
                    oracle_class=np.array(["latin"] * 6, object))  # fmt: skip
    drawing = lost_by_class(table)
    assert drawing.data is not None
    assert drawing.data.to_numpy().tolist() == [["latin", 5, -1, -0.2]]
    assert drawing.title.startswith("Nothing is lost")


def test_without_a_tokenizer_there_are_no_classes() -> None:
    assert "no tokenizer" in lost_by_class(a_table([1], [2], [1], [0])).reason


@pytest.mark.parametrize("dark", [False, True])
def test_a_drawing_on_a_page(dark: bool) -> None:
    drawing = paired_retention("a", {"b": [difference("x", 0.1, 0.05)]})
    spec = spec_of(drawing, dark)
    assert drawing.chart is not None
    assert spec["height"] > drawing.chart.to_dict()["height"]
    assert "title" not in spec and "description" not in spec, "both stand beside the chart"
    assert LABEL not in json.dumps(spec)
    assert spec_of(drawing, not dark) != spec
