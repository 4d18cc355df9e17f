"""Chain figures that contradict themselves, one value changed at a time in a true document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from audit.chains.reading import read_chain
from audit.errors import UnreadableError

from .conftest import CODE, GERMAN, MODEL, run

FIRST = ("heads", 0, "figures", 0)


@pytest.fixture(scope="module")
def document(mtp_q4: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("chain") / "chain.json"
    done = run(
        "chain", MODEL, mtp_q4, "--head", "mtp", "--slots", 2, "--anchors", 20, "--trace", GERMAN,
        "--trace", CODE, "--resamples", 200, "-o", out,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    read_chain(out)  # a true one is read
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def _changed(document: dict[str, Any], keys: tuple[str | int, ...], value: object) -> str:
    copied: Any = json.loads(json.dumps(document))
    *path, last = keys
    place = copied
    for key in path:
        place = place[key]
    place[last] = value(place[last]) if callable(value) else value
    return json.dumps(copied)


@pytest.mark.parametrize(
    ("keys", "value", "said"),
    [
        ((*FIRST, "p", 0, "value"), 1.5, "chain_share 1.5"),
        ((*FIRST, "p", 1, "value"), 0.99, "chain_share 0.99"),
        ((*FIRST, "p", 0, "value"), None, "chain_share nothing"),
        ((*FIRST, "p"), lambda old: old[:1], "2 slots"),
        ((*FIRST, "accepted", 0), 21, "21 accepted of"),
        ((*FIRST, "accepted", 1), 19, "19 accepted of"),
        ((*FIRST, "tokens_per_round", "value"), 2.99, "tokens_per_round 2.99"),
        ((*FIRST, "tokens_per_round", "high"), 3.5, "not from 1 to 3"),
        ((*FIRST, "tokens_per_round", "low"), 0.5, "not from 1 to 3"),
        ((*FIRST, "tokens_per_round", "low"), 2.999, "down to"),
        ((*FIRST, "tokens_per_round", "low"), None, "half an interval"),
        ((*FIRST, "tokens_per_round", "measure"), "retention", "retention stands where"),
        ((*FIRST, "tokens_per_round", "positions"), 10**6, "1000000 chains"),
        ((*FIRST, "chain_acceptance", "value"), 0.9, "chain_acceptance 0.9"),
        ((*FIRST, "corpus"), "other", "not those of its traces"),
        (("heads", 0, "figures"), lambda old: [*old, old[0]], "not those of its traces"),
        (("heads", 1, "harm", 0, "tokens_lost", "value"), -2.0, "tokens_lost -2"),
        (("heads", 1, "harm", 0, "both", 0), 99, "disagreements in 99"),
        (("heads",), lambda old: [*old, old[1]], "one candidate twice"),
        (("slots",), 3, "not 3 slots"),
        (("verifier_agreement",), 1.2, "no share"),
    ],
)
def test_what_contradicts_itself_is_refused(
    document: dict[str, Any], tmp_path: Path, keys: tuple[str | int, ...], value: object, said: str
) -> None:
    path = tmp_path / "chain.json"
    path.write_text(_changed(document, keys, value))
    with pytest.raises(UnreadableError, match="contradict themselves") as error:
        read_chain(path)
    assert said in error.value.message


def test_counts_of_a_register_are_sums(document: dict[str, Any], tmp_path: Path) -> None:
    """A whole register's figures replaced by another's: each is right in itself."""
    figures = document["heads"][0]["figures"]
    number = next(i for i, one in enumerate(figures) if one["corpus"] is None)
    text = _changed(document, ("heads", 0, "figures", number, "drafted"), [20, 19])
    path = tmp_path / "chain.json"
    path.write_text(text)
    with pytest.raises(UnreadableError, match="not the sums of its corpora"):
        read_chain(path)


def test_both_commands_refuse_with_2(document: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "chain.json"
    path.write_text(_changed(document, (*FIRST, "p", 0, "value"), 1.5))
    for command in (("cost", MODEL), ("compare", MODEL, MODEL)):
        done = run(*command, "--head", "mtp", "--chain", path, "--json")
        assert done.exit_code == 2, done.output
        assert "contradict themselves" in json.loads(done.stdout)["error"]["message"]
