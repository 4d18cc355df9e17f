"""Chain figures and margins in runs, reports and gates, from the commands themselves."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from audit.catalogue import CHAIN_MEASURES
from audit.chains.reading import read_chain
from audit.chains.records import ChainResult
from audit.cli.main import group
from audit.cost.recorded import read_cost, with_figures
from audit.cost.records import CostResult
from audit.errors import BadUsageError, MismatchError, UnreadableError
from audit.gating import judge_run
from audit.policy import load_policy
from audit.records import Run

SAMPLE = Path(__file__).resolve().parents[2] / "audit" / "sample"
MODEL, GERMAN = SAMPLE / "model", SAMPLE / "traces" / "german.trace.safetensors"


def _run(*args: object) -> Any:
    return CliRunner().invoke(group, [str(arg) for arg in args])


def _json(*args: object, code: int = 0) -> dict[str, Any]:
    done = _run(*args, "--json")
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a cut, its chain figures and what it is worth."""
    folder = tmp_path_factory.mktemp("figures")
    cut, chain = folder / "cut.safetensors", folder / "chain.json"
    done = _run("forge", MODEL, "--head", "mtp", "--cut", "q4_0", "-o", cut)
    assert done.exit_code == 0, done.output
    _json("chain", MODEL, cut, "--head", "mtp", "--slots", 2, "--trace", GERMAN,
          "--anchors", 40, "--resamples", 200, "-o", chain)  # fmt: skip
    _json("cost", MODEL, cut, "--head", "mtp", "--chain", chain, "--slots", 2, "--draft-ms", 1,
          "--draft-ms", 0.4, "--verify-ms", 10, "-o", folder / "cost.json")  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def run(made: Path) -> dict[str, Any]:
    """One recorded run that carries them, judged by a policy that it passes."""
    policy = _policy(made, "tokens_per_round", 1.01)
    return _json(
        "compare", MODEL, made / "cut.safetensors", "--head", "mtp", "--trace", GERMAN,
        "--resamples", 200, "--ledger", made / "ledger", "--chain", made / "chain.json",
        "--cost", made / "cost.json", "--gate", policy,
    )  # fmt: skip


def _policy(folder: Path, measure: str, minimum: float) -> Path:
    path = folder / f"{measure}.toml"
    path.write_text(
        'schema = 1\nname = "chains"\n[[limit]]\nname = "it"\nreason = "it must pay"\n'
        f'date = 2026-01-31\nmeasure = "{measure}"\nminimum = {minimum}\n'
    )
    return path


def test_figures_go_into_the_run_its_report_and_its_gate(made: Path, run: dict[str, Any]) -> None:
    chain = json.loads((made / "chain.json").read_text())
    cost = json.loads((made / "cost.json").read_text())
    (candidate,) = run["candidates"]
    found = {(e["measure"], e["corpus"]): e for e in candidate["estimates"]}
    for figures in chain["heads"][1]["figures"]:
        for measure in ("tokens_per_round", "chain_acceptance"):
            if figures["corpus"]:
                assert found[measure, figures["corpus"]] == figures[measure]
    for scenario in cost["scenarios"]:
        if scenario["corpus"]:
            margin = found["break_even_margin", scenario["corpus"]]
            (_, worth) = scenario["worth"]
            assert margin["value"] == worth["break_even_margin"]
            assert margin["low"] < margin["value"] < margin["high"]
            # By hand: 10.8 ms a round; 1 + a + a^2 = 1.08 where plain decoding is as fast.
            even = (-1 + (1 + 4 * 0.08) ** 0.5) / 2
            tokens = found["tokens_per_round", scenario["corpus"]]["low"]
            low = (-1 + (1 + 4 * (tokens - 1)) ** 0.5) / 2
            assert margin["low"] == pytest.approx(low - even)
            assert margin["positions"] == 40
    assert run["provenance"]["settings"]["chain"]["slots"] == 2
    assert run["provenance"]["settings"]["cost"]["assumptions"] == cost["assumptions"]
    assert candidate["gate"]["outcome"] == "pass"
    for name in ("report.md", "report.html"):
        done = _run("report", "latest", "--ledger", made / "ledger", "-o", made / name)
        assert done.exit_code == 0, done.output
        text = (made / name).read_text()
        assert "tokens per round" in text and "break-even margin" in text
    shown = _run("show", "latest", "--ledger", made / "ledger")
    assert "tokens per round" in shown.output and "break-even margin" in shown.output


def test_a_limit_fails_and_a_missing_figure_fails_closed(made: Path, run: dict[str, Any]) -> None:
    def judged(policy: Path, which: str, code: int) -> dict[str, Any]:
        done = _run("gate", which, "--policy", policy, "--ledger", made / "ledger", "--json")
        assert done.exit_code == code, done.output
        return json.loads(done.stdout)["candidates"][0]["gate"]

    assert judged(_policy(made, "tokens_per_round", 2.99), "latest", 1)["outcome"] == "fail"
    margin = _policy(made, "break_even_margin", 0.0)
    judged(margin, "latest", 0)
    # The same run without any such figure.
    bare = Run.model_validate(run)
    (candidate,) = bare.candidates
    kept = tuple(e for e in candidate.estimates if e.measure not in CHAIN_MEASURES)
    bare = bare.model_copy(
        update={"candidates": (candidate.model_copy(update={"estimates": kept}),)}
    )
    now = datetime.datetime.now(datetime.UTC)
    (found,) = judge_run(bare, load_policy(margin), now=now).candidates
    assert found.gate is not None and found.gate.outcome == "fail"
    (limit,) = [one for one in found.gate.limits if one.limit == "it"]
    assert "was not measured" in limit.sentence
    proof = _run("gate", "--policy", margin, "--selftest")
    assert proof.exit_code == 0, proof.output


def test_figures_of_something_else_are_refused(
    made: Path, run: dict[str, Any], tmp_path: Path
) -> None:
    audited = Run.model_validate(run)
    chain = json.loads((made / "chain.json").read_text())

    def refused(*keys: str | int) -> str:
        """What is said where the value at these keys is another."""
        document = json.loads(json.dumps(chain))
        *path, last = keys
        place = document
        for key in path:
            place = place[key]
        place[last] = "0" * 64
        with pytest.raises(MismatchError) as error:
            with_figures(audited, ChainResult.model_validate(document), None)
        return error.value.message

    assert "another reference" in refused("heads", 0, "head", "sha256")
    assert "none of these candidates" in refused("heads", 1, "head", "sha256")
    assert "another trace of german" in refused("traces", 0, "sha256")
    elsewhere = json.loads(json.dumps(chain).replace('"german"', '"french"'))
    with pytest.raises(MismatchError, match="of french, of which this audit has no trace"):
        with_figures(audited, ChainResult.model_validate(elsewhere), None)
    newer = tmp_path / "newer.json"
    newer.write_text(json.dumps(chain | {"schema": 9}))
    with pytest.raises(UnreadableError, match="have schema 9"):
        read_chain(newer)
    with pytest.raises(UnreadableError, match="no document of audit cost"):
        read_cost(newer)
    given = tmp_path / "given.json"
    _json("cost", MODEL, made / "cut.safetensors", "--head", "mtp", "--acceptance", 0.5,
          "--bandwidth", 100, "-o", given)  # fmt: skip
    with pytest.raises(BadUsageError, match="no acceptance that was measured"):
        with_figures(audited, None, read_cost(given))


def test_figures_of_corpora_that_were_not_audited_are_left_out(
    made: Path, run: dict[str, Any]
) -> None:
    audited = Run.model_validate(run)
    (candidate,) = audited.candidates
    bare = candidate.model_copy(update={"estimates": ()})
    audited = audited.model_copy(update={"candidates": (bare,)})
    document = json.loads((made / "chain.json").read_text())
    more = json.loads(json.dumps(document).replace('"german"', '"french"'))
    document["traces"] += more["traces"]
    for head, extra in zip(document["heads"], more["heads"], strict=True):
        head["figures"] = [*extra["figures"][:1], *head["figures"]]
    found = with_figures(audited, ChainResult.model_validate(document), None)
    # Pooled over other corpora than the audit's, the register's figures are left out too.
    assert {e.corpus for e in found.candidates[0].estimates} == {"german"}
    cost = json.loads((made / "cost.json").read_text())
    more = json.loads(json.dumps(cost).replace('"german"', '"french"'))
    cost["scenarios"] = [more["scenarios"][0], *cost["scenarios"]]
    found = with_figures(audited, None, CostResult.model_validate(cost))
    assert [e.corpus for e in found.candidates[0].estimates] == ["german"]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("break_even_margin", 0.9, "break_even_margin 0.9 where"),
        ("margin_low", -0.9, "none of acceptance"),
        ("margin_high", None, "half an interval"),
        ("acceptance", 1.5, "acceptance 1.5 is no share"),
        ("acceptance", 0.9, "acceptance 0.9 where"),
        ("tokens_per_round", 2.9, "1 + the sum of its shares"),
        ("draft_ms", -1.0, "draft_ms -1 is below 0"),
        ("round_ms", 1.0, "round_ms 1 where"),
        ("against_plain", 9.0, "against_plain 9 where"),
        ("slots", 3, "where the rest says"),
        ("head", "model", "what each head is worth"),
    ],
)
def test_cost_figures_that_contradict_themselves_are_refused(
    made: Path, tmp_path: Path, key: str, value: object, said: str
) -> None:
    cost = json.loads((made / "cost.json").read_text())
    cost["scenarios"][0]["worth"][1][key] = value
    path = tmp_path / "cost.json"
    path.write_text(json.dumps(cost))
    with pytest.raises(UnreadableError, match="contradict themselves") as error:
        read_cost(path)
    assert said in error.value.message


def test_cost_figures_hold_each_text_and_byte_once(made: Path, tmp_path: Path) -> None:
    cost = json.loads((made / "cost.json").read_text())
    path = tmp_path / "cost.json"
    path.write_text(json.dumps(cost | {"scenarios": [*cost["scenarios"], cost["scenarios"][0]]}))
    with pytest.raises(UnreadableError, match="two scenarios of one text"):
        read_cost(path)
    cost["heads"][1]["bytes_per_step"] = 1
    path.write_text(json.dumps(cost))
    with pytest.raises(UnreadableError, match="bytes, rows and ratios"):
        read_cost(path)
