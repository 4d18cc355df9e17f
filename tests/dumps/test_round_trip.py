"""Every tool's dump of one real capture comes back as that capture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from audit.cli.import_ import _FORMATS
from audit.dumps import READERS
from audit.provenance import sha256_files
from audit.traces import lookahead_rows
from tests.dumps import writers
from tests.dumps.conftest import LENGTHS, MODEL
from tests.dumps.writers import Real

Imported = Callable[..., tuple[Any, dict[str, str]]]
BF16, F16, TEXT = 2**-8, 2**-10, 1e-6

POST = {
    "specforge": lambda p, r: writers.specforge(p / "d", r),
    "specforge-gz": lambda p, r: writers.specforge(p / "d", r, packed=True),
    "eagle": lambda p, r: writers.eagle(p / "d", r),
    "modelopt": lambda p, r: writers.modelopt(p / "d", r),
    "llamacpp-json": lambda p, r: writers.llama_json(p / "d.json", r),
    "llamacpp-array": lambda p, r: writers.llama_array(p / "d.json", r),
    "llamacpp-raw": lambda p, r: writers.llama_raw(p / "d.txt", r),
    "llamacpp-server": lambda p, r: writers.llama_server(p / "d.json", r),
}
PRE = {
    "vllm": lambda p, r: writers.vllm(p / "d", r),
    "speculators": lambda p, r: writers.speculators(p / "d", r),
    "speculators-pt": lambda p, r: writers.speculators_pt(p / "d", r),
    "modelopt-vllm": lambda p, r: writers.modelopt(p / "d", r, prenorm=True),
}
WITH_LAYERS = ("specforge", "specforge-gz", "modelopt", *PRE)


def dense_greedy(
    states: torch.Tensor, stage: str, weights: dict[str, torch.Tensor]
) -> torch.Tensor:
    """Greedy tokens in float64: the norm and the whole product written out."""
    x = states.double()
    if stage == "pre_norm":
        x = x / (x.square().mean(dim=1, keepdim=True) + weights["eps"]).sqrt() * weights["gain"]
    return (x @ weights["head"].T).argmax(dim=1)


@pytest.mark.parametrize("name", [*POST, *PRE])
def test_the_same_trace_comes_back(
    name: str, place: Path, real: Real, weights: dict[str, torch.Tensor], imported: Imported
) -> None:
    dump = (POST | PRE)[name](place, real)
    stage = "post_norm" if name in POST else "pre_norm"
    # ModelOpt's Hugging Face script numbers a layer by what leaves it.
    layers = ["--layers", "0,1,2" if name == "modelopt" else "1,2,3"]
    trace, _ = imported(dump, "--model", MODEL, *(layers if name in WITH_LAYERS else ()))
    source = name if name in READERS else name.partition("-")[0]
    assert trace.info.settings["source"] == source
    assert torch.equal(trace.token, torch.cat(real.tokens))
    assert trace.sequence.bincount().tolist() == list(LENGTHS)
    wanted = torch.cat(real.post if stage == "post_norm" else real.pre)
    assert trace.info.stage == stage and trace.info.settings["stage"]["source"] == "measured"
    error = {torch.bfloat16: BF16, torch.float16: F16}.get(trace.hidden.dtype, TEXT)
    assert torch.allclose(trace.hidden.float(), wanted, rtol=error, atol=error)
    assert torch.equal(trace.oracle, dense_greedy(trace.hidden, stage, weights))
    exact = trace.hidden.dtype == torch.float32
    share = float((trace.oracle == torch.cat(real.greedy)).double().mean())
    assert share == 1.0 if exact else share >= 0.99
    assert trace.info.oracle == "verifier_greedy"
    assert trace.info.settings["alignment"]["status"] == "shown"


@pytest.mark.parametrize("name", WITH_LAYERS)
def test_further_layers_are_named_as_the_trace_counts(
    name: str, place: Path, real: Real, imported: Imported
) -> None:
    dump = (POST | PRE)[name](place, real)
    asked = "0,1,2" if name == "modelopt" else "1,2,3"
    trace, _ = imported(dump, "--model", MODEL, "--layers", asked)
    assert sorted(trace.states) == ["layer_1", "layer_2", "layer_3"]
    for layer in (1, 2, 3):
        wanted = torch.cat([states[layer] for states in real.entering])
        assert torch.allclose(trace.states[f"layer_{layer}"].float(), wanted, rtol=BF16, atol=BF16)
    numbering = "leaving" if name == "modelopt" else "entering"
    assert trace.info.settings["layers"]["numbering"] == numbering


def test_llama_debug(place: Path, real: Real, imported: Imported) -> None:
    trace, _ = imported(writers.llama_debug(place / "data", real), "--model", MODEL)
    assert torch.equal(trace.hidden, real.post[0]) and torch.equal(trace.token, real.tokens[0])
    assert torch.equal(trace.oracle, real.greedy[0])


def test_model_and_corpus_are_identified(place: Path, real: Real, imported: Imported) -> None:
    """The hashes of a captured trace of the same model; the text's hash whatever the tool."""
    from audit.traces import read_trace

    one, _ = imported(writers.eagle(place / "a", real), "--model", MODEL)
    two, _ = imported(writers.vllm(place / "b", real), "--model", MODEL)
    captured = read_trace(MODEL.parent / "traces" / "python-code.trace.safetensors").info
    assert one.info.model_sha256 == captured.model_sha256
    assert one.info.model_sha256 == sha256_files([MODEL / "model.safetensors"])
    assert one.info.tokenizer_sha256 == captured.tokenizer_sha256
    assert (one.info.vocabulary, one.info.model) == (captured.vocabulary, "model")
    assert one.info.corpus_sha256 == two.info.corpus_sha256 != None  # noqa: E711
    cut, _ = imported(place / "b", "--model", MODEL, "--max-positions", 250)
    assert cut.info.corpus_sha256 != one.info.corpus_sha256
    assert one.info.corpus == "a" and one.info.captured_by.endswith("from eagle")


def test_the_text_is_the_oracle_without_a_model(
    place: Path, real: Real, imported: Imported
) -> None:
    dump = writers.eagle(place / "d", real)
    trace, found = imported(dump, "--stage", "post_norm", "--max-positions", 250)
    following = [torch.cat([text[1:], torch.tensor([-1])]) for text in real.tokens]
    assert torch.equal(trace.oracle, torch.cat(following)[:250])
    assert trace.info.oracle == "text" and trace.info.model_sha256 is None
    assert trace.sequence.bincount().tolist() == [200, 50] and int(trace.oracle[249]) >= 0
    assert "ALIGNMENT_UNCHECKED" in found and trace.info.settings["stage"]["source"] == "--stage"


def test_the_loss_mask_marks_what_counts(place: Path, real: Real, imported: Imported) -> None:
    """Mask 1 from token 20 on: those rows count, the others stay as context."""
    dump = writers.speculators(place / "d", real)
    everything, found = imported(dump, "--model", MODEL)
    assert everything.counted is None and "LOSS_MASK" in found
    trace, found = imported(dump, "--model", MODEL, "--only-loss-mask")
    counted = torch.cat([torch.arange(len(text)) >= 20 for text in real.tokens])
    assert torch.equal(trace.counted, counted) and "LOSS_MASK" not in found
    assert torch.equal(trace.oracle, everything.oracle)
    assert lookahead_rows(trace, 1)[0].tolist() == torch.nonzero(counted).flatten().tolist()
    share = float(counted.double().mean())
    assert trace.info.settings["loss_mask"]["marked_share"] == round(share, 4)


def test_limits_and_names(place: Path, real: Real, imported: Imported) -> None:
    dump = writers.vllm(place / "chat data", real)
    trace, _ = imported(
        dump, "--model", MODEL, "--limit-files", 2, "--register", "domain_shift", "--language", "de"
    )
    assert trace.positions == 296 and trace.info.settings["files"] == 2
    assert (trace.info.corpus, trace.info.register_, trace.info.language) == (
        "chat data", "domain_shift", "de",
    )  # fmt: skip
    one, _ = imported(dump / "cmpl-01-0.safetensors", "--model", MODEL, "--corpus", "x")
    assert one.positions == 96 and one.info.corpus == "x"


@pytest.mark.parametrize("rows", [1, 7, 96, 200, 1000])
@pytest.mark.parametrize("limit", [None, 1, 199, 201, 446, 999])
def test_blocks_of_any_size_give_the_same_columns(
    place: Path, real: Real, monkeypatch: pytest.MonkeyPatch, rows: int, limit: int | None
) -> None:
    from audit.dumps.collect import collect
    from audit.dumps.detect import open_dump

    monkeypatch.setattr("audit.dumps.collect._BLOCK_BYTES", rows * 192 * 4)
    reader = open_dump(writers.specforge(place / "d", real))
    found = collect(reader, limit, True, lambda what, done, total: None)
    assert torch.equal(found.hidden, torch.cat(real.post)[:limit])
    assert torch.equal(found.token, torch.cat(real.tokens)[:limit])
    for i, state in enumerate(found.further):
        wanted = torch.cat([states[i + 1] for states in real.entering])
        assert torch.equal(state, wanted[:limit])
    assert found.position[found.sequence.diff(prepend=torch.tensor([-1])) > 0].sum() == 0


def test_files_are_read_in_the_order_of_their_numbers(
    place: Path, real: Real, imported: Imported
) -> None:
    dump = writers.eagle(place / "d", real)
    for old, new in (("1/data_2", "data_10"), ("0/data_0", "data_9"), ("0/data_1", "data_8")):
        (dump / f"{old}.ckpt").rename(dump / f"{new}.ckpt")
    trace, _ = imported(dump, "--stage", "post_norm")
    assert trace.sequence.bincount().tolist() == [LENGTHS[1], LENGTHS[0], LENGTHS[2]]


def test_the_help_lists_the_tools() -> None:
    assert set(_FORMATS) == {"auto", *READERS}


def test_what_is_printed(place: Path, real: Real, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.dumps.conftest import audit

    dump = writers.speculators(place / "d", real, layers=(2, 2, 1))
    words = ["import", str(dump), "--model", str(MODEL), "-o", "t.trace.safetensors"]
    assert audit(*words) == 0
    text = capsys.readouterr()
    lines = text.out.splitlines()
    assert lines[0] == (
        "speculators: 3 files, states of width 192 (bfloat16), pre_norm (measured), "
        "further layers 2, 1"
    )
    assert lines[1].startswith("oracle from the head, the text's next token at ")
    assert lines[1].endswith("; alignment shown") and lines[2].startswith("note     LOSS_MASK  ")
    assert lines[-1] == "t.trace.safetensors: 446 positions in 3 sequences of d, states of model"
    assert audit(*words, "-q") == 0
    assert capsys.readouterr().out.splitlines() == lines[-1:]
