"""The replication notebook runs from top to bottom, and says what its tables say."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parents[1] / "notebooks" / "replication.ipynb"


def run(monkeypatch: pytest.MonkeyPatch, **settings: str) -> str:
    """Everything that the notebook prints, run under these settings."""
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(NOTEBOOK.parents[1])]))
    notebook: Any = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=1500, kernel_name="python3").execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", ())]
    images = [out for out in outputs if "image/svg+xml" in out.get("data", {})]
    assert len(images) >= 3
    return "".join(out.get("text", "") for out in outputs)


@pytest.mark.filterwarnings("ignore")
def test_on_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    told = run(monkeypatch, AUDIT_NOTEBOOK_GEMMA="0")
    assert "On the sample's MTP head the published harm rule does NOT hold." in told
    assert "D in distribution ranks the loss under shift" in told
    assert "this part was left out" in told


@pytest.mark.study
@pytest.mark.filterwarnings("ignore")
def test_on_gemma(monkeypatch: pytest.MonkeyPatch, gemma_gguf: Path) -> None:
    told = run(monkeypatch, AUDIT_GEMMA=str(gemma_gguf), AUDIT_NOTEBOOK_POSITIONS="350")
    assert "On Gemma's early exit the published harm rule does NOT hold." in told
