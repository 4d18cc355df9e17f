"""Chain figures and margins in runs, reports and gates, from the commands themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from audit.cli.main import group

SAMPLE = Path(__file__).resolve().parents[2] / "audit" / "sample"
MODEL, TRACES = SAMPLE / "model", SAMPLE / "traces"
CODE, GERMAN = TRACES / "python-code.trace.safetensors", TRACES / "german.trace.safetensors"


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
    _json("chain", MODEL, cut, "--head", "mtp", "--slots", 2, "--trace", CODE, "--trace", GERMAN,
          "--anchors", 40, "--resamples", 200, "-o", chain)  # fmt: skip
    _json("cost", MODEL, cut, "--head", "mtp", "--chain", chain, "--slots", 2, "--draft-ms", 1,
          "--draft-ms", 0.4, "--verify-ms", 10, "-o", folder / "cost.json")  # fmt: skip
    return folder


def _compare(made: Path, *args: object, code: int = 0) -> dict[str, Any]:
    return _json("compare", MODEL, made / "cut.safetensors", "--head", "mtp", "--trace", CODE,
                 "--trace", GERMAN, "--resamples", 200, "--ledger", made / "ledger", *args,
                 code=code)  # fmt: skip


def _policy(folder: Path, measure: str, minimum: float) -> Path:
    path = folder / f"{measure}.toml"
    path.write_text(
        'schema = 1\nname = "chains"\n[[limit]]\nname = "it"\nreason = "it must pay"\n'
        f'date = 2026-01-31\nmeasure = "{measure}"\nminimum = {minimum}\n'
    )
    return path


def test_figures_go_into_the_run_its_report_and_its_gate(made: Path) -> None:
    chain = json.loads((made / "chain.json").read_text())
    cost = json.loads((made / "cost.json").read_text())
    policy = _policy(made, "tokens_per_round", 1.0)
    run = _compare(made, "--chain", made / "chain.json", "--cost", made / "cost.json",
                   "--gate", policy)  # fmt: skip
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


def test_a_limit_fails_and_a_missing_figure_fails_closed(made: Path) -> None:
    high = _policy(made, "tokens_per_round", 2.99)
    run = _compare(made, "--chain", made / "chain.json", "--gate", high, code=1)
    assert run["candidates"][0]["gate"]["outcome"] == "fail"
    lacking = _policy(made, "break_even_margin", 0.0)
    run = _compare(made, "--chain", made / "chain.json", "--gate", lacking, code=1)
    (limit,) = [one for one in run["candidates"][0]["gate"]["limits"] if one["limit"] == "it"]
    assert "was not measured" in limit["sentence"]
    proof = _run("gate", "--policy", lacking, "--selftest")
    assert proof.exit_code == 0, proof.output


def test_figures_of_something_else_are_refused(made: Path, tmp_path: Path) -> None:
    chain = json.loads((made / "chain.json").read_text())
    file = tmp_path / "chain.json"

    def refused(change: Any, what: str = "--chain") -> str:
        document = json.loads(json.dumps(chain))
        change(document)
        file.write_text(json.dumps(document))
        return str(_compare(made, what, file, code=2)["error"]["message"])

    def other_ref(document: dict[str, Any]) -> None:
        document["heads"][0]["head"]["sha256"] = "0" * 64

    def other_cand(document: dict[str, Any]) -> None:
        document["heads"][1]["head"]["sha256"] = "0" * 64

    def other_trace(document: dict[str, Any]) -> None:
        document["traces"][0]["sha256"] = "0" * 64

    assert "another reference" in refused(other_ref)
    assert "none of these candidates" in refused(other_cand)
    assert "another trace of python-code" in refused(other_trace)
    assert "have schema 9" in refused(lambda document: document.update(schema=9))
    assert "no document of audit cost" in refused(lambda document: None, "--cost")
    given = tmp_path / "given.json"
    _json("cost", MODEL, made / "cut.safetensors", "--head", "mtp", "--acceptance", 0.5,
          "--bandwidth", 100, "-o", given)  # fmt: skip
    error = _compare(made, "--cost", given, code=2)["error"]
    assert "no acceptance that was measured" in error["message"]
