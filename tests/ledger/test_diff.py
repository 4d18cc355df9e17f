"""What may be held against what, and what is said of the inputs."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from audit.diff import Side, comparable_corpora, input_differences, outcome_differences
from audit.errors import BadUsageError, MismatchError
from audit.records import Run
from audit.stats import Resampling
from tests.ledger.made import a_candidate, a_run, a_table, a_trace

CODE, GERMAN = a_trace("code", "1" * 64), a_trace("de", "2" * 64)


def side(run: Run) -> Side:
    return Side(run, run.candidates[0])


def changed(run: Run, **changes: Any) -> Run:
    return run.model_copy(update=changes)


BASE = a_run(0, a_candidate("q4", "4" * 64), traces=(CODE, GERMAN))
OTHER = a_run(0, a_candidate("q8", "8" * 64), traces=(CODE, GERMAN))


def test_the_inputs_that_differ_are_named() -> None:
    how = OTHER.provenance.model_copy(
        update={"versions": {"torch": "2"}, "settings": {"seed": 1, "kl": True}, "device": "cuda"}
    )
    other = changed(OTHER, provenance=how, traces=(CODE,), calibration={"rules": []})
    found = {one.what: (one.a, one.b) for one in input_differences(side(BASE), side(other))}
    assert found.pop("calibration")[0] == "none"
    assert found == {
        "candidate": ("4" * 64, "8" * 64),
        "candidate name": ("q4", "q8"),
        "trace de": ("2" * 64, None),
        "setting seed": ("0", "1"),
        "setting kl": (None, "True"),
        "version torch": (None, "2"),
        "device": ("cpu", "cuda"),
    }
    assert input_differences(side(BASE), side(BASE)) == []


def test_only_the_same_question_is_compared() -> None:
    assert comparable_corpora(side(BASE), side(OTHER)) == ["code", "de"]
    assert comparable_corpora(side(BASE), side(OTHER), ["de"]) == ["de"]
    moved = changed(OTHER, traces=(a_trace("de", "3" * 64), CODE))
    with pytest.raises(MismatchError, match=r"the trace of de differs, 2{16} and 3{16}") as caught:
        comparable_corpora(side(BASE), side(moved))
    assert "--corpus" in caught.value.hint
    assert comparable_corpora(side(BASE), side(moved), ["code"]) == ["code"]
    head = BASE.reference.model_copy(update={"sha256": "f" * 64})
    with pytest.raises(MismatchError, match=r"the reference differs, 0{16} and f{16}"):
        comparable_corpora(side(BASE), side(changed(OTHER, reference=head)))
    how = OTHER.provenance.model_copy(update={"measures_version": 2})
    with pytest.raises(MismatchError, match="version of the measures differs, 1 and 2"):
        comparable_corpora(side(BASE), side(changed(OTHER, provenance=how)))
    with pytest.raises(MismatchError, match="share no corpus"):
        comparable_corpora(side(BASE), side(changed(OTHER, traces=(a_trace("fr"),))))
    with pytest.raises(BadUsageError, match="corpus fr is not in both"):
        comparable_corpora(side(BASE), side(OTHER), ["de", "fr"])


def test_a_part_of_the_corpora_is_compared_and_the_reference_is_watched() -> None:
    """Each table holds other candidates and corpora, too; only those meant are taken."""
    sequence = [i // 2 for i in range(12)]
    wanted = a_table([1] * 12, [1] * 6 + [2] * 6, [1] * 12, sequence, candidate="q4", corpus="de")
    noise = a_table([1] * 12, [3] * 12, [1] * 12, sequence, candidate="zz", corpus="de")
    other = a_table([1] * 12, [4] * 12, [1] * 12, sequence, candidate="q4", corpus="code")
    left = pd.concat([noise, wanted, other])
    right = a_table([5] + [1] * 11, [1] * 12, [1] * 12, sequence, candidate="q8", corpus="de")
    found, notes = outcome_differences(
        side(BASE), side(OTHER), (left, right), ["de"], Resampling(resamples=100)
    )
    value = {one.measure: (one.a, one.b) for one in found if one.corpus == "de"}
    assert value["acceptance_cand"] == (0.5, 1.0)
    assert len(notes) == 1 and "on de the reference itself" in notes[0] and " 1 pos" in notes[0]
