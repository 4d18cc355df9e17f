"""A whole model without a trace: the bundled corpora are captured once and cached."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from audit import cache
from audit.cli.main import group
from audit.traces import bundled

MODEL = Path(__file__).resolve().parents[1] / "audit" / "sample" / "model"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(cache.ENVIRONMENT, str(tmp_path / "cache"))
    monkeypatch.delenv("AUDIT_TRACES", raising=False)
    monkeypatch.setattr(bundled, "POSITIONS", 40)
    shutil.copytree(MODEL, tmp_path / "model")
    return tmp_path / "model"


def test_captured_once_and_then_reused(model: Path, tmp_path: Path) -> None:
    args = ["compare", str(model), str(model), "--json", "--no-record"]
    done = CliRunner().invoke(group, args)
    assert done.exit_code == 0, done.output
    run = json.loads(done.stdout)
    assert len(run["traces"]) == 13 and {t["positions"] for t in run["traces"]} == {40}
    kept = {p: p.stat().st_mtime_ns for p in (tmp_path / "cache").rglob("*.trace.safetensors")}
    assert len(kept) == 13
    again = json.loads(CliRunner().invoke(group, args).stdout)
    assert [t["sha256"] for t in again["traces"]] == [t["sha256"] for t in run["traces"]]
    assert kept == {p: p.stat().st_mtime_ns for p in kept}


def test_a_file_inside_a_model_stands_for_it_and_a_lone_one_does_not(
    model: Path, tmp_path: Path
) -> None:
    assert bundled.whole_model(model / "model.safetensors") == model
    lone = shutil.copy(model / "model.safetensors", tmp_path / "lone.safetensors")
    assert bundled.whole_model(Path(lone)) is None


def test_other_layers_or_settings_are_other_traces(model: Path) -> None:
    first = bundled.bundled_traces(model)
    with_layer = bundled.bundled_traces(model, layers=(2,))
    assert not set(first) & set(with_layer)
