"""Charts as data: what is drawn, against brute force; what can not be drawn, with its reason."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings

from audit.prediction import predict
from audit.records import Run
from audit.report import charts
from audit.report.calibrated import Summary, summary_of
from audit.report.charts import Drawing
from audit.report.charts.base import BLUE, GREEN, GREY, MAX_MARKS, PINK, RED, base
from audit.report.charts.points import LABEL
from tests.conftest import Golden
from tests.report.made import candidate, estimate, gate, head, limit, runs


def layers(drawn: Drawing) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    """Every layer's own specification and the rows that it draws."""
    assert drawn.chart is not None, drawn.reason
    spec = drawn.chart.to_dict()
    json.dumps(spec, allow_nan=False)
    out = []
    for layer in spec["layer"]:
        rows = spec["datasets"][layer.get("data", spec.get("data"))["name"]]
        assert 0 < len(rows) <= MAX_MARKS
        out.append((layer, pd.DataFrame(rows)))
    return out


def marked(drawn: Drawing, kind: str) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    return [(spec, rows) for spec, rows in layers(drawn) if spec["mark"]["type"] == kind]


def all_charts(found: Run, summary: Summary | None = None) -> Iterator[Drawing]:
    yield charts.harm_against_disagreement(found.candidates, summary)
    yield charts.disagreement_against_loss(found.candidates, summary)
    yield charts.size_against_loss(found.candidates, found.reference)
    if summary is not None:
        yield charts.noise_ladder(summary, found.candidates)
    for one in found.candidates:
        yield charts.retention_by_corpus(one)
        yield charts.ceiling_by_class(one)
        yield charts.margin_to_break_even(one)


@settings(max_examples=40)
@given(runs())
def test_nothing_that_a_run_holds_breaks_a_chart(found: Run) -> None:
    for drawn in all_charts(found):
        assert drawn.title and drawn.alternative.startswith(drawn.title)
        assert (drawn.chart is None) == bool(drawn.reason)
        if drawn.chart is not None:
            for _, rows in layers(drawn):
                assert not rows.isna().to_numpy().any()
                values = rows.select_dtypes("number").to_numpy()
                assert np.isfinite(values).all() and (abs(values) < 2e6).all()


def test_every_chart_of_the_realistic_run_has_a_finding_units_and_data(golden: Golden) -> None:
    drawn = list(all_charts(golden.run, summary_of(golden.run)))
    drawn += [charts.yardstick_retention(golden.calibration)]
    shown = [one for one in drawn if one.chart is not None]
    assert len(shown) == 4 + 3 + 1 + 1  # ceilings by token class of the trimmed head alone
    for one in shown:
        titles = [
            layer["encoding"][axis].get("axis", {}).get("title")
            for layer, _ in layers(one)
            for axis in ("x", "y")
            if axis in layer["encoding"]
        ]
        assert any(t and ("%" in t or "points" in t or "MiB" in t) for t in titles), one.name
        assert one.data is not None and len(one.data) and "." in one.alternative
        spec = one.chart.to_dict()
        assert " ".join(spec["title"]["text"]) == one.title
        assert spec["description"] == one.alternative


def test_harm_draws_each_head_and_register_once_with_its_intervals(golden: Golden) -> None:
    summary = summary_of(golden.run)
    assert summary is not None
    drawn = charts.harm_against_disagreement(golden.run.candidates, summary)
    heads = next(rows for spec, rows in marked(drawn, "point") if "shape" in spec["encoding"])
    wanted = {}
    for one in golden.run.candidates:
        for e in one.estimates:
            whole = e.corpus is None and e.token_class is None
            if whole and e.measure in ("disagreement", "harm") and e.value is not None:
                wanted.setdefault((one.head.name, e.register_), {})[e.measure] = e
    assert len(heads) == len(wanted) == 9
    for row in heads.to_dict("records"):
        register = row["register"].replace(" ", "_")
        both = wanted[row["name"], register]
        assert row["x"] == both["disagreement"].value and row["y"] == both["harm"].value
        assert row["y_low"] == both["harm"].low and row["x_high"] == both["disagreement"].high


def test_harm_draws_the_yardsticks_families_and_the_rule_with_its_check(golden: Golden) -> None:
    summary = summary_of(golden.calibration)
    assert summary is not None
    drawn = charts.harm_against_disagreement((), summary)
    boxes = [rows.iloc[0] for _, rows in marked(drawn, "rect")]
    assert len(boxes) == 2
    for box, family in zip(boxes, ("fidelity", "function"), strict=True):
        inside = [y.at("in_distribution") for y in summary.yardsticks if y.family == family]
        for figures in inside:
            assert box["x"] <= figures.disagreement <= box["x2"]
            assert box["y"] <= figures.harm <= box["y2"]
    assert any("left out in turn" in note for note in drawn.notes)
    rule = next(rows for spec, rows in marked(drawn, "rule") if "label" in rows)
    published = summary.rule("published harm")
    assert published is not None
    assert rule["y"].item() == pytest.approx(0.21)
    assert ("no weight here" in rule["label"].item()) == (not published.weight)


@pytest.mark.parametrize(("family", "number"), [(("fidelity", "noise"), 0), (("function",), 1)])
def test_the_fits_are_those_that_predictions_are_read_from(
    golden: Golden, family: tuple[str, ...], number: int
) -> None:
    """The drawn line and band, at the middle of their reach, equal `predict` there."""
    summary = summary_of(golden.calibration)
    drawn = charts.disagreement_against_loss((), summary)
    _, band = marked(drawn, "area")[number]
    _, line = marked(drawn, "line")[number]
    at = float(band["x"].mean())
    found = predict(golden.calibration, "shift_loss", at, family)  # type: ignore[arg-type]
    assert found.value == pytest.approx(np.interp(at, line["x"], line["y"]))
    assert found.low == pytest.approx(np.interp(at, band["x"], band["low"]))
    assert found.high == pytest.approx(np.interp(at, band["x"], band["high"]))
    assert (line["y"].diff().dropna() >= 0).all()
    assert "Spearman" in drawn.title and "exact p" in drawn.title


def test_loss_shows_what_was_predicted_beside_what_was_measured() -> None:
    foretold = {"shift_loss": {"measure": "shift_loss", "value": 0.2, "low": 0.1, "high": 0.3,
                               "level": 0.8, "rank": None, "reason": None}}  # fmt: skip
    drawn = charts.disagreement_against_loss([candidate(prediction=foretold)])
    heads = next(rows for spec, rows in marked(drawn, "point") if "shape" in spec["encoding"])
    assert dict(zip(heads["register"], heads["y"], strict=True)) == {
        "measured": 0.253, "predicted": 0.2,
    }  # fmt: skip
    assert "predicted: 20.0 pt" in drawn.alternative and "measured: 25.3 pt" in drawn.alternative


def test_the_forest_puts_the_worst_first_and_words_beside_colours() -> None:
    found = [estimate("retention", v, corpus=c, register=r, low=v - 0.1, high=v + 0.1)
             for c, r, v in (("a", "in_distribution", 0.99), ("b", "domain_shift", 0.7),
                             ("c", "same_register", 0.9))]  # fmt: skip
    limits = [
        limit(corpus="b", register="domain_shift", threshold=0.95, outcome="fail"),
        limit(corpus="a", register="in_distribution", threshold=0.97, outcome="undecided"),
    ]
    drawn = charts.retention_by_corpus(candidate(estimates=found, gate=gate("fail", *limits)))
    spec, rows = marked(drawn, "point")[0]
    assert spec["encoding"]["y"]["sort"] == ["b", "c", "a"] and list(rows["x"]) == [0.7, 0.9, 0.99]
    words = next(rows for spec, rows in marked(drawn, "text") if "outcome" in rows)
    assert dict(zip(words["row"], words["outcome"], strict=True)) == {"b": "fail", "a": "undecided"}
    assert len(set(rows["colour"])) == 3
    rules = next(rows for spec, rows in marked(drawn, "rule") if len(rows) == 2)
    assert list(rules["x"]) == [0.95, 0.97]
    assert drawn.title == "cand.gguf keeps least on b: 70.0 % (60.0 % to 80.0 %)"
    assert charts.retention_by_corpus(candidate(estimates=[])).reason
    huge = gate("fail", limit(threshold=1e308), limit(threshold=0.5, token_class="latin"))
    drawn = charts.retention_by_corpus(candidate(estimates=found, gate=huge))
    assert [len(rows) for _, rows in marked(drawn, "rule")] == [1, 3]  # the whole, the intervals
    drawn = charts.size_against_loss([candidate(estimates=found, gate=huge)])
    assert all(spec["mark"]["color"] != RED for spec, _ in marked(drawn, "rule"))


def test_ceilings_by_class_take_the_pooled_ones() -> None:
    made = (("de", "latin", 0.5), (None, "latin", 0.9), (None, "digits", 0.8))
    found = [estimate("vocabulary_ceiling", v, corpus=c, token_class=k) for c, k, v in made]
    drawn = charts.ceiling_by_class(candidate(estimates=found))
    rows = marked(drawn, "point")[0][1]
    assert list(zip(rows["row"], rows["x"], strict=True)) == [("digits", 0.8), ("latin", 0.9)]
    assert "fewest of digits" in drawn.title
    assert charts.ceiling_by_class(candidate()).reason == "no estimate was made by token class"


def test_a_curve_of_kl_is_the_distribution_function() -> None:
    rng = np.random.default_rng(0)
    kl = np.concatenate([np.zeros(300), rng.lognormal(-4, 2, 3700)])
    frame = positions(kl, rng.random(4000) < 0.2, rng.exponential(size=4000))
    drawn = charts.kl_spread(frame)
    curve = marked(drawn, "line")[0][1]
    for kl_at, share in zip(curve["kl"], curve["share"], strict=True):
        assert share == pytest.approx((kl <= kl_at + 1e-12).mean())
    assert curve["share"].iloc[-1] == 1.0 and "7.5 % of positions under a millionth" in (
        drawn.alternative
    )
    assert f"{np.median(kl):.2g}" in drawn.title
    unknown = charts.kl_spread(frame.assign(kl_nats=None))
    assert unknown.chart is None and "--kl" in unknown.reason


def test_flip_margins_are_a_histogram_of_each_group() -> None:
    rng = np.random.default_rng(1)
    margin, flip = rng.exponential(size=5000), rng.random(5000) < 0.1
    drawn = charts.flip_margins(positions(np.zeros(5000), flip, margin))
    bars = marked(drawn, "rect")[0][1]
    for where, wanted in (("flips", margin[flip]), ("agreements", margin[~flip])):
        own = bars[bars["where"] == where]
        assert own["share"].sum() == pytest.approx(1.0)
        low, high = own["low"].iloc[3], own["high"].iloc[3]
        inside = ((wanted >= low) & (wanted < high)).mean()
        assert own["share"].iloc[3] == pytest.approx(inside)
    assert f"{np.median(margin[flip]):.2g}" in drawn.title
    none = charts.flip_margins(positions(np.zeros(9), np.zeros(9, bool), np.ones(9)))
    assert none.reason == "there is no flip"
    untold = positions(np.zeros(9), np.ones(9, bool), np.ones(9)).assign(ref_margin=None)
    assert charts.flip_margins(untold).reason == "the reference's margins are not known"


def test_many_positions_become_few_marks() -> None:
    rng = np.random.default_rng(2)
    n = 200_000
    frame = positions(rng.exponential(size=n), rng.random(n) < 0.3, rng.exponential(size=n))
    for drawn in (charts.kl_spread(frame), charts.flip_margins(frame)):
        assert sum(len(rows) for _, rows in layers(drawn)) <= 600
    with pytest.raises(ValueError, match="aggregate"):
        base(frame[["kl_nats"]])


def test_the_ladder_draws_each_cut_beyond_it(golden: Golden) -> None:
    summary = summary_of(golden.calibration)
    assert summary is not None
    drawn = charts.noise_ladder(summary, golden.run.candidates)
    line = marked(drawn, "line")[0][1]
    assert drawn.data is not None and len(drawn.data) >= 8
    for row in drawn.data.to_dict("records"):
        expected = np.interp(row["x"], line["x"], line["y"])
        assert row["beyond"] == pytest.approx(row["y"] - expected)
    worst = drawn.data.loc[drawn.data["beyond"].idxmax(), "label"]
    assert drawn.title.startswith(worst)
    cuts = next(rows for spec, rows in marked(drawn, "point") if "shape" in spec["encoding"])
    fitted = set(cuts.loc[cuts["register"] == "fitted to text in distribution", "label"])
    assert fitted == {y.cut for y in golden.calibration.yardsticks if y.calibrated}


def test_yardsticks_are_ordered_by_what_they_lose_under_shift(golden: Golden) -> None:
    drawn = charts.yardstick_retention(golden.calibration)
    assert drawn.data is not None
    for row, yard in zip(
        drawn.data.to_dict("records"),
        sorted(golden.calibration.yardsticks, key=lambda y: y.value("retention", "domain_shift")),
        strict=True,
    ):
        assert row["label"] == yard.cut
        assert row["tax"] == pytest.approx(yard.value("shift_tax", "domain_shift"))


def test_the_frontier_names_the_heads_that_no_other_beats() -> None:
    sizes = {
        "a": (1.0, 0.80),
        "b": (2.0, 0.90),
        "c": (3.0, 0.85),
        "d": (4.0, 0.95),
        "e": (9.0, 0.99),
    }
    heads = [
        candidate(estimates=[estimate("retention", kept, corpus="x")],
                  head=head(name, name * 64, stored_bytes=int(mib * 2**20)))
        for name, (mib, kept) in sizes.items()
    ]  # fmt: skip
    reference = head("ref", stored_bytes=8 * 2**20)
    drawn = charts.size_against_loss(heads, reference)
    assert drawn.title == "No head is both smaller and better than a, b, d"  # e is larger than ref
    rows = marked(drawn, "point")[-1][1]
    assert list(rows["y"]) == pytest.approx([1 - kept for _, kept in sizes.values()])
    assert charts.size_against_loss([], reference).reason
    alone = charts.size_against_loss(heads[-1:], reference)
    assert "No head is smaller than the reference" in alone.title


def positions(kl: Any, flip: Any, margin: Any) -> pd.DataFrame:
    return pd.DataFrame(
        {"register": "domain_shift", "kl_nats": kl, "disagree": flip, "ref_margin": margin}
    )


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("ground", ["#ffffff", "#14171a", "#0e1117"])
def test_colours_stand_out_on_light_and_dark_grounds(ground: str) -> None:
    """At least 3 to 1 for marks (WCAG 1.4.11); labels near the 4.5 of text on both."""
    for colour, least in ((BLUE, 3), (RED, 3), (GREEN, 3), (PINK, 3), (GREY, 3), (LABEL, 3.9)):
        pair = sorted((luminance(colour), luminance(ground)))
        assert (pair[1] + 0.05) / (pair[0] + 0.05) >= least, (colour, ground)


# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
BLIND = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
               [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
               [-0.011820, 0.042940, 0.968881]],
}  # fmt: skip


@pytest.mark.parametrize("eyes", BLIND)
def test_colours_differ_for_colour_blind_eyes(eyes: str) -> None:
    def seen(colour: str) -> np.ndarray:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = np.array([((p + 0.055) / 1.055) ** 2.4 for p in parts])
        return np.clip(np.array(BLIND[eyes]) @ linear, 0, 1) ** (1 / 2.4)

    colours = [BLUE, RED, GREY, PINK]
    for i, one in enumerate(colours):
        for other in colours[i + 1 :]:
            assert math.dist(seen(one), seen(other)) > 0.15, (one, other)


def test_where_a_head_pays() -> None:
    """Colour says whether the whole interval lies on one side; the title names who loses."""
    spans = {"code": (0.2, 0.1, 0.3), "web": (0.01, -0.02, 0.04), "german": (-0.1, -0.2, -0.05)}
    found = [
        estimate("break_even_margin", value, low=low, high=high, corpus=name)
        for name, (value, low, high) in spans.items()
    ]
    drawn = charts.margin_to_break_even(candidate(estimates=found))
    assert drawn.title == "In the model cand.gguf does not pay on german"
    ((_, rows),) = marked(drawn, "point")
    assert rows["row"].tolist() == ["german", "web", "code"]
    assert rows["colour"].tolist() == [RED, BLUE, GREEN]
    assert rows["x"].tolist() == [-0.1, 0.01, 0.2]
    assert any("never a measured speed" in note for note in drawn.notes)
    good = charts.margin_to_break_even(candidate(estimates=found[:1]))
    assert good.title == "In the model cand.gguf pays on every text, by least on code"
    none = charts.margin_to_break_even(candidate(estimates=[estimate("retention", 0.9)]))
    assert none.chart is None and "audit cost" in none.reason
    why = "it never pays: a round costs 4.50 plain steps, more than it can yield"
    lost = [estimate("break_even_margin", None, corpus=name, reason=why) for name in spans]
    never = charts.margin_to_break_even(candidate(estimates=lost))
    assert never.chart is None and never.reason == why and why in never.alternative
