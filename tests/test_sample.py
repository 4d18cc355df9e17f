"""The sample inside the package, the demo and the study on it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from audit import study
from audit.calibration import Calibration
from audit.cli.main import group
from audit.errors import BadUsageError
from audit.files import open_container
from audit.heads import HeadOptions
from audit.measure import measure_trace
from audit.pair import PairOptions, choose_head, load_ref
from audit.stats import Resampling
from audit.traces import read_trace

SAMPLE = Path(__file__).resolve().parents[1] / "audit" / "sample"
TRACES = sorted((SAMPLE / "traces").glob("*.trace.safetensors"))


def test_the_package_stays_small() -> None:
    size = sum(path.stat().st_size for path in SAMPLE.rglob("*") if path.is_file())
    assert size <= 12 * 2**20 and len(TRACES) == 4


@pytest.mark.parametrize(("head", "least"), [("lm", 0.99), ("mtp", 0.45)])
def test_the_traces_are_the_models_own(head: str, least: float) -> None:
    """The LM head reproduces its verifier; the MTP head is far beyond chance everywhere."""
    pair = PairOptions(head=head)
    choice = choose_head(SAMPLE / "model", [], pair.head)
    ref = load_ref(SAMPLE / "model", choice, HeadOptions(), pair.block)
    for path in TRACES:
        found = measure_trace(ref, [], read_trace(path))
        assert float((found.ref.proposal == found.oracle).float().mean()) >= least


def test_the_golden_check_of_the_training_script(golden_qwen35: Path) -> None:
    from tools.sample.golden import check

    assert check(golden_qwen35).holds


def test_the_head_is_named_or_chosen() -> None:
    choice = choose_head(SAMPLE / "model", [SAMPLE / "model"], None)
    assert str(choice.name) == "lm" and choice.others == ("mtp",)
    assert str(choose_head(SAMPLE / "model", [], "exit:2").name) == "exit:2"
    assert open_container(SAMPLE / "model").config is not None


def test_the_study_tells_what_holds_on_this_head(sample_ledger: Path) -> None:
    (path,) = (sample_ledger / "calibrations").glob("*.json")
    found = Calibration.model_validate_json(path.read_text())
    families = [y.family for y in found.yardsticks]
    assert families.count("fidelity") == 3 and families.count("function") == 5
    assert families.count("noise") >= 5 and found.spearman_loss and found.spearman_loss > 0.7
    ladder = found.rule("ladder distance")
    assert ladder is not None and ladder.wrong == 0 and ladder.right >= 3 and ladder.weight
    assert ladder.right + ladder.undecided == len(families)
    by_cut = {y.cut: y for y in found.yardsticks}
    hidden = by_cut["prune:0.25:activation"].value("shift_tax", "domain_shift") or 0
    assert hidden > 0.08 > (by_cut["q4_0"].value("shift_tax", "domain_shift") or 0)


def test_compare_uses_the_calibration_on_its_own_traces_only(
    sample_ledger: Path, tmp_path: Path
) -> None:
    cut = tmp_path / "pruned.safetensors"
    model, code = str(SAMPLE / "model"), str(SAMPLE / "traces/python-code.trace.safetensors")
    made = CliRunner().invoke(
        group, ["forge", model, "--head", "mtp", "--cut", "prune:0.25", "-o", str(cut), "--json"]
    )
    assert made.exit_code == 0, made.output
    base = ["compare", model, str(cut), "--head", "mtp", "--ledger", str(sample_ledger), "--json"]
    done = CliRunner().invoke(group, [*base, "--trace", code])
    assert done.exit_code == 0, done.output
    run = json.loads(done.stdout)
    assert run["calibration"]["head"] == "mtp"
    prediction = run["candidates"][0]["prediction"]
    assert set(prediction) == {"shift_loss", "shift_tax"}
    for found in prediction.values():
        assert found["value"] is not None or found["reason"]
    other = tmp_path / "other.trace.safetensors"
    captured = CliRunner().invoke(
        group, ["capture", model, "--corpus", "chat", "--max-positions", "300", "-o", str(other)]
    )
    assert captured.exit_code == 0, captured.output
    run = json.loads(CliRunner().invoke(group, [*base, "--trace", str(other)]).stdout)
    assert run["calibration"] is None
    assert "CALIBRATION_OTHER_TRACES" in {finding["code"] for finding in run["preflight"]}


def test_calibrated_cuts_are_fitted_to_the_text_that_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fitted to other code, low rank keeps less of this code; text under shift is refused."""
    monkeypatch.setattr(study, "BLOCK_CUTS", ("lowrank:0.25:calibrated",))
    monkeypatch.setattr(study, "LADDER", (0.5,))
    code, shift = (
        SAMPLE / f"traces/{name}.trace.safetensors" for name in ("python-code", "german")
    )
    request = study.StudyRequest(
        SAMPLE / "model",
        (code, shift),
        pair=PairOptions(head="mtp"),
        resampling=Resampling(resamples=100),
    )
    other = TRACES[2]
    made = {fit: study.run_study(replace(request, fit=fit)) for fit in ((), (other,))}
    flips = [
        found.yardsticks[0].value("disagreement", "in_distribution") or 0.0
        for found in made.values()
    ]
    assert list(made[()].fitted_to) == ["python-code"]
    assert made[(other,)].fitted_to == {"other-code": read_trace(other).sha256}
    assert flips[0] < flips[1]
    with pytest.raises(BadUsageError, match="measured as text under domain shift"):
        study.run_study(replace(request, fit=(shift,)))


def test_demo_runs_and_says_what_to_type_next() -> None:
    done = CliRunner().invoke(group, ["demo"])
    assert done.exit_code == 0, done.output
    for words in ("beyond noise", "function cut", "shift loss predicted", "On your own heads"):
        assert words in done.output
