"""The sample, opened once: verifier, MTP head, and cuts of it made by the commands themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from audit.cli.main import group

SAMPLE = Path(__file__).resolve().parents[2] / "audit" / "sample"
MODEL = SAMPLE / "model"
CODE = SAMPLE / "traces" / "python-code.trace.safetensors"
GERMAN = SAMPLE / "traces" / "german.trace.safetensors"


def run(*args: object) -> Any:
    return CliRunner().invoke(group, [str(arg) for arg in args])


@pytest.fixture(scope="session")
def verifier():
    from audit.traces.verifier import load_verifier

    return load_verifier(MODEL)


@pytest.fixture(scope="session")
def mtp_trim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The MTP head with the 2,000 rows that the model emits most on its own traces."""
    folder = tmp_path_factory.mktemp("trim")
    card, out = folder / "ranks.txt", folder / "trim.gguf"
    made = run("rank", "--trace", CODE, "--model", MODEL, "-o", card)
    assert made.exit_code == 0, made.output
    rows = min(2000, len(card.read_text().split()))
    made = run("trim", MODEL, "--head", "mtp", "--ranks", card, "--rows", rows, "-o", out)
    assert made.exit_code == 0, made.output
    return out


@pytest.fixture(scope="session")
def mtp_q4(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The MTP head in Q4_0."""
    out = tmp_path_factory.mktemp("q4") / "q4.safetensors"
    made = run("forge", MODEL, "--head", "mtp", "--cut", "q4_0", "-o", out)
    assert made.exit_code == 0, made.output
    return out
