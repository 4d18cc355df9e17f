"""One realistic run: the sample's MTP head, a fidelity cut, a function cut and a trim of it."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from audit.calibration import Calibration
from audit.records import Run
from audit.table import Frame, read_positions
from tests.conftest import SAMPLE


@dataclass(frozen=True)
class Golden:
    """A recorded run, its positions, its ledger, and its reference's calibration."""

    run: Run
    positions: Frame
    ledger: Path
    calibration: Calibration


@pytest.fixture(scope="session")
def golden(sample_ledger: Path, tmp_path_factory: pytest.TempPathFactory) -> Golden:
    from audit.cli.main import group

    folder = tmp_path_factory.mktemp("golden")
    ledger = folder / "ledger"
    shutil.copytree(sample_ledger / "calibrations", ledger / "calibrations")
    model, traces = str(SAMPLE / "model"), SAMPLE / "traces"

    def audit(*args: str) -> str:
        done = CliRunner().invoke(group, [*args])
        assert done.exit_code == 0, done.output
        return done.stdout

    cands = []
    for cut in ("q4_0", "prune:0.25:activation"):
        cands.append(str(folder / f"{cut.replace(':', '-')}.safetensors"))
        audit("forge", model, "--head", "mtp", "--cut", cut, "--trace",
              str(traces / "python-code.trace.safetensors"), "-o", cands[-1], "-q")  # fmt: skip
    card = folder / "ranks.txt"
    card.write_text("\n".join(str(i) for i in range(0, 8192, 2)))
    printed = audit(
        "compare", model, *cands, "--trim", str(card), "--head", "mtp", "--trace", str(traces),
        "--kl", "--resamples", "500", "--ledger", str(ledger), "--json",
    )  # fmt: skip
    run = Run.model_validate(json.loads(printed))
    (path,) = (ledger / "calibrations").glob("*.json")
    calibration = Calibration.model_validate_json(path.read_text())
    positions = read_positions(ledger / "runs" / run.run / "positions.parquet")
    return Golden(run, positions, ledger, calibration)
