"""Capture on the real Gemma 3 270M: `pytest -m real`."""

from __future__ import annotations

import pytest
import torch

from audit.corpora import Document
from audit.traces import lookahead_rows, read_trace, write_trace
from audit.traces.capture import capture
from audit.traces.recipe import Generation, Recipe, Source
from audit.traces.verifier import load_verifier

pytestmark = pytest.mark.real

TEXT = (
    "The harbour was quiet in the morning. A small boat with a red sail came back from the sea, "
    "and the people on the pier waved to the old fisherman who had been out all night. "
) * 9


@pytest.fixture(scope="module")
def gemma(gemma_gguf):
    return load_verifier(gemma_gguf)


def test_gemma_gguf_is_captured_as_it_runs(gemma, tmp_path, capfd):
    """Windows of 128 with BOS; the state entering layer 16, run through 17 and norm, is exact."""
    trace = capture(
        gemma,
        Source("harbour", "domain_shift", "en", [Document("harbour", TEXT)]),
        Recipe(context=128, max_positions=300, layers=(16,)),
    )
    assert capfd.readouterr() == ("", "")
    assert (trace.positions, trace.sequences, trace.hidden_size) == (300, 3, 640)
    assert trace.info.vocabulary == 262_144
    assert trace.token[trace.position == 0].tolist() == [2, 2, 2]

    first = trace.sequence == 0
    with torch.no_grad():
        output = gemma.model(input_ids=trace.token[first].unsqueeze(0), output_hidden_states=True)
    assert torch.allclose(trace.hidden[first], output.hidden_states[-1][0], atol=2e-3)
    assert torch.allclose(
        trace.states["layer_16"][first], output.hidden_states[16][0], rtol=1e-3, atol=0.5
    )
    agreement = (output.logits[0].argmax(1) == trace.oracle[first]).double().mean()
    assert agreement >= 0.99

    path = tmp_path / "harbour.trace.safetensors"
    write_trace(trace, path)
    back = read_trace(path)
    rows, targets = lookahead_rows(back, 2)
    assert len(rows) == 300 - 3
    assert torch.equal(targets, rows + 1)


def test_gemma_continues_its_own_text(gemma):
    """Two prompts of unlike length side by side, against transformers' greedy text for each."""
    documents = [Document("long", TEXT[:400]), Document("short", "The capital of France is")]
    source = Source("own", "in_distribution", "en", documents)
    how = Generation(12, ignore_eos=True, only_generated=True)
    trace = capture(gemma, source, Recipe(context=128, generation=how))
    assert trace.sequences == 2 and int(trace.generated.sum()) == 24
    for number in range(2):
        rows = trace.sequence == number
        prompt = trace.token[rows & ~trace.generated].unsqueeze(0)
        alone = gemma.model.generate(
            input_ids=prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=12,
            do_sample=False, eos_token_id=None,
        )  # fmt: skip
        assert torch.equal(trace.token[rows], alone[0])
    assert "France" in gemma.tokenizer.decode(trace.token[trace.generated & (trace.sequence == 1)])
