"""The main job on a real model: Gemma 3 270M, its head at Q4_0, trimmed, shuffled, and itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file

from audit.cli.main import group
from audit.corpora import corpus_documents, find_corpus, own_documents
from audit.heads import load_head
from audit.traces import write_trace
from audit.traces.capture import capture
from audit.traces.verifier import load_verifier

pytestmark = pytest.mark.real
POSITIONS = 2600
GOLDEN_CARD = Path(__file__).resolve().parents[3] / "shared/golden/gemma-ranks-32768.txt"
GERMAN = Path(__file__).resolve().parents[3] / "shared/corpora/de.txt"


@pytest.fixture(scope="module")
def traces(gemma_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces of Python source and, where the test text is there, of German."""
    folder = tmp_path_factory.mktemp("traces")
    verifier = load_verifier(gemma_gguf)
    code = corpus_documents(find_corpus("python-code"))
    texts = [("python-code", "in_distribution", code)]
    if GERMAN.exists():
        german = own_documents([GERMAN], split_blank_lines=True, field=None)
        texts.append(("german-web", "domain_shift", german))
    for name, register, documents in texts:
        trace = capture(
            verifier, documents, corpus=name, register=register, language=None,
            context=256, max_positions=POSITIONS,
        )  # fmt: skip
        write_trace(trace, folder / f"{name}.trace.safetensors")
    return folder


@pytest.fixture(scope="module")
def candidates(gemma_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Q4_0 in a GGUF written with the gguf library, and the rows shuffled."""
    folder = tmp_path_factory.mktemp("heads")
    rows = load_head(gemma_gguf).rows
    weight = rows.tile(0, rows.count)
    q4 = folder / "head-q4_0.gguf"
    writer = gguf.GGUFWriter(q4, "gemma3")
    kind = gguf.GGMLQuantizationType.Q4_0
    writer.add_tensor("output.weight", gguf.quants.quantize(weight.numpy(), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    order = torch.randperm(len(weight), generator=torch.Generator().manual_seed(0))
    shuffled = folder / "shuffled.safetensors"
    save_file({"lm_head.weight": weight[order].bfloat16()}, shuffled)
    return {"q4_0": q4, "shuffled": shuffled}


@pytest.fixture(scope="module")
def run(gemma_gguf: Path, traces: Path, candidates: dict[str, Path]) -> dict[str, Any]:
    args = ["compare", str(gemma_gguf), *map(str, candidates.values()), str(gemma_gguf)]
    args += ["--trim", str(GOLDEN_CARD)] if GOLDEN_CARD.exists() else []
    args += ["--trace", str(traces), "--kl", "--json", "--no-record"]
    done = CliRunner().invoke(group, args)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def values(run: dict[str, Any], index: int) -> dict[tuple[str, str], float]:
    estimates = run["candidates"][index]["estimates"]
    whole = [e for e in estimates if e["corpus"] and e["token_class"] is None]
    return {(e["measure"], e["corpus"]): e["value"] for e in whole}


def test_the_reference_is_the_verifiers_own_head(run: dict[str, Any]) -> None:
    assert all(trace["positions"] == POSITIONS for trace in run["traces"])
    anchors = [c["observed"] for c in run["controls"] if c["name"] == "anchor"]
    assert len(anchors) == len(run["traces"]) and min(anchors) >= 0.999
    assert all(control["passed"] for control in run["controls"])


def test_q4_0_costs_something_and_more_under_shift(run: dict[str, Any]) -> None:
    found = values(run, 0)
    assert 0.05 < found["disagreement", "python-code"] < 0.3
    assert found["kl_nats", "python-code"] > 0
    if ("disagreement", "german-web") in found:
        assert found["disagreement", "german-web"] > found["disagreement", "python-code"]


def test_a_shuffled_head_is_near_chance(run: dict[str, Any]) -> None:
    assert values(run, 1)["acceptance_cand", "python-code"] < 0.01


def test_the_head_itself_never_disagrees(run: dict[str, Any]) -> None:
    found = values(run, 2)
    assert found["disagreement", "python-code"] == 0 and found["kl_nats", "python-code"] == 0
    assert run["candidates"][2]["verdict"]["kind"] == "identical"


def test_the_ranks_card_loses_only_what_it_does_not_hold(run: dict[str, Any]) -> None:
    if not GOLDEN_CARD.exists():
        pytest.skip("needs the golden ranks card")
    found = values(run, 3)
    assert run["candidates"][3]["verdict"]["kind"] == "vocabulary"
    assert found["disagreement_covered", "python-code"] == 0
    assert found["retention", "python-code"] == found["vocabulary_ceiling", "python-code"]
    assert 0.7 < found["vocabulary_ceiling", "python-code"] < 1
