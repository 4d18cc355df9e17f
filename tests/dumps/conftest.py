"""One small real capture, made by transformers alone, that every dump in these tests is of."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from audit.cli import main
from audit.traces import Trace, read_trace
from tests.dumps.writers import Real

SAMPLE = Path(__file__).resolve().parents[2] / "audit" / "sample"
MODEL = SAMPLE / "model"
LENGTHS = (200, 96, 150)


@pytest.fixture(scope="session")
def real() -> Real:
    """Three texts of Python code: tokens, states at every depth and the model's greedy tokens."""
    stored = load_file(SAMPLE / "traces" / "python-code.trace.safetensors")
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
    texts, post, pre, entering, greedy = [], [], [], [], []
    for i, length in enumerate(LENGTHS):
        tokens = stored["token"][stored["sequence"] == i][:length]
        before: list[torch.Tensor] = []
        hook = model.model.norm.register_forward_pre_hook(
            lambda module, given, kept=before: kept.append(given[0])
        )
        with torch.no_grad():
            out = model(tokens[None], output_hidden_states=True)
            after = model.model(tokens[None]).last_hidden_state
        hook.remove()
        texts.append(tokens)
        pre.append(before[0][0])
        post.append(after[0])
        entering.append([state[0] for state in out.hidden_states[:4]])
        greedy.append(out.logits[0].argmax(dim=-1))
    masks = [(torch.arange(len(text)) >= 20).long() for text in texts]
    return Real(texts, post, pre, entering, greedy, masks)


@pytest.fixture(scope="session")
def weights() -> dict[str, torch.Tensor]:
    """The model's head and final norm in float64, read without any of our code."""
    stored = load_file(MODEL / "model.safetensors")
    names = {name.rsplit("model.", 1)[-1]: name for name in stored if "mtp" not in name}
    return {
        "head": stored[names["embed_tokens.weight"]].double(),
        "gain": 1 + stored[names["norm.weight"]].double(),
        "eps": torch.tensor(json.loads((MODEL / "config.json").read_text())["rms_norm_eps"]),
    }


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("AUDIT_TRACES", "AUDIT_LEDGER"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def audit(*args: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    assert isinstance(stop.value.code, int)
    return stop.value.code


@pytest.fixture
def imported(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[Trace, dict[str, str]]]:
    """Run `audit import`, expect success; the trace read back and findings by code."""

    def run(dump: Path, *args: object) -> tuple[Trace, dict[str, str]]:
        code = audit("import", str(dump), "-o", "t.trace.safetensors", "--json", *map(str, args))
        text = capsys.readouterr()
        assert code == 0, text.out
        found = json.loads(text.out)
        trace = read_trace(place / "t.trace.safetensors")
        assert found["trace"]["sha256"] == trace.sha256
        return trace, {finding["code"]: finding["sentence"] for finding in found["findings"]}

    return run


@pytest.fixture
def refused(place: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, str]]:
    """Run `audit import`, expect exit 2, one error in words and in JSON, and no file."""

    def run(dump: Path, *args: object) -> dict[str, str]:
        words = ["import", str(dump), "-o", "out/t.trace.safetensors", *map(str, args)]
        assert audit(*words) == 2
        text = capsys.readouterr()
        assert text.out == "" and text.err.startswith("error: ") and "Traceback" not in text.err
        assert audit(*words, "--json") == 2
        error = json.loads(capsys.readouterr().out)["error"]
        assert error["hint"] and not (place / "out").exists()
        assert error["message"] in text.err
        return error

    return run
