"""A dump of the real Gemma 3 270M, imported with its GGUF: `pytest -m real`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from audit.cli.main import group
from audit.traces import read_trace
from audit.traces.verifier import load_verifier
from tests.dumps import writers
from tests.dumps.writers import Real

pytestmark = pytest.mark.real

TEXT = (
    "The lighthouse keeper climbed the stairs every evening, lit the lamp and wrote the hour into "
    "his book. In winter the storms came from the north, and no ship passed for weeks. "
) * 4


def test_llama_debug_and_speculators_on_gemma(gemma_gguf: Path, tmp_path: Path) -> None:
    verifier = load_verifier(gemma_gguf)
    tokens = torch.tensor(verifier.tokenizer(TEXT)["input_ids"])
    before: list[torch.Tensor] = []
    decoder = verifier.model.get_decoder()
    hook = decoder.norm.register_forward_pre_hook(lambda _, given: before.append(given[0][0]))
    with torch.no_grad():
        out = decoder(input_ids=tokens[None], output_hidden_states=True)
        greedy = verifier.model(input_ids=tokens[None]).logits[0].argmax(dim=1)
    hook.remove()
    real = Real(
        [tokens], [out.last_hidden_state[0]], [before[0]],
        [[state[0] for state in out.hidden_states]], [greedy], [torch.ones(len(tokens))],
    )  # fmt: skip
    writers.llama_debug(tmp_path / "debug", real)
    writers.speculators(tmp_path / "spec", real, layers=(2, 9, 15))
    for dump, stage, layers in (("debug", "post_norm", []), ("spec", "pre_norm", [2, 9, 15])):
        path = tmp_path / f"{dump}.trace.safetensors"
        done = CliRunner().invoke(
            group, ["import", str(tmp_path / dump), "--model", str(gemma_gguf), "-o", str(path)]
        )
        assert done.exit_code == 0, done.output
        trace = read_trace(path)
        assert trace.info.stage == stage and [s.layer for s in trace.info.states] == layers
        assert trace.info.model_sha256 == verifier.identity.model_sha256
        assert trace.info.tokenizer_sha256 == verifier.tokenizer_sha256
        assert trace.info.vocabulary == verifier.vocabulary
        assert float((trace.oracle == greedy).double().mean()) >= 0.98
        assert json.loads(json.dumps(trace.info.settings))["alignment"]["status"] == "shown"
