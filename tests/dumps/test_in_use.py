"""An imported trace does what a captured one does: the audit of the sample's heads on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from audit.records import ExtraState, TraceInfo
from audit.traces import Trace, read_trace, write_trace
from audit.traces.repeats import repeated, units
from tests.dumps import writers
from tests.dumps.conftest import MODEL, audit
from tests.dumps.writers import Real

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def compare(place: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*args: object) -> dict[str, Any]:
        words = ["compare", str(MODEL), *map(str, args), "--no-record", "--json"]
        assert audit(*words) == 0
        run: dict[str, Any] = json.loads(capsys.readouterr().out)
        return run

    return run


def direct(path: Path, real: Real) -> Path:
    """The capture itself as a trace, without any dump between."""
    lengths = torch.tensor([len(text) for text in real.tokens])
    info = TraceInfo(
        model="model", model_sha256=None, tokenizer_sha256=None, vocabulary=8192, corpus="d",
        register="in_distribution", language=None, stage="post_norm", oracle="verifier_greedy",
        states=tuple(ExtraState(tensor=f"layer_{k}", layer=k) for k in (1, 2, 3)),
        captured_by="test",
    )  # fmt: skip
    trace = Trace(
        info, torch.cat(real.post), torch.cat(real.tokens), torch.cat(real.greedy),
        torch.arange(len(lengths)).repeat_interleave(lengths),
        torch.cat([torch.arange(int(length)) for length in lengths]),
        {f"layer_{k}": torch.cat([s[k] for s in real.entering]) for k in (1, 2, 3)},
    )  # fmt: skip
    write_trace(trace, path)
    return path


def estimates(run: dict[str, Any]) -> list[Any]:
    return [candidate["estimates"] for candidate in run["candidates"]]


@pytest.mark.parametrize("head", ["lm", "mtp", "exit:2"])
def test_the_same_numbers_as_without_a_dump(
    place: Path, real: Real, compare: Run, head: str
) -> None:
    """SpecForge's float32 loses nothing, so every estimate is the same to the last digit."""
    writers.specforge(place / "d", real)
    words = ("import", "d", "--model", MODEL, "--layers", "1,2,3", "-o", "i.trace.safetensors")
    assert audit(*words, "-qq") == 0
    forge = ("forge", MODEL, "--head", head, "--cut", "noise:0.2", "-o", "cut.safetensors")
    assert audit(*forge, "-qq") == 0
    ours = compare("cut.safetensors", "--head", head, "--trace", "i.trace.safetensors")
    theirs = compare("cut.safetensors", "--head", head, "--trace", direct(place / "x", real))
    disagreement = [e["value"] for e in estimates(ours)[0] if e["measure"] == "disagreement"]
    assert disagreement[0] > 0.01
    assert estimates(ours) == estimates(theirs) and ours["controls"] == theirs["controls"]
    assert not [f for f in ours["preflight"] if f["code"] == "ALIGNMENT_UNCHECKED"]


@pytest.mark.parametrize("writer", [writers.vllm, writers.modelopt])
def test_a_layer_by_its_number_is_that_layer(
    place: Path, real: Real, compare: Run, writer: Any
) -> None:
    """The state entering the last of four layers, run through it, is the verifier itself."""
    writer(place / "d", real)
    layers = "0,1,2" if writer is writers.modelopt else "1,2,3"
    words = ("import", "d", "--model", MODEL, "--layers", layers, "-o", "i.trace.safetensors")
    assert audit(*words, "-qq") == 0
    run = compare(MODEL, "--head", "exit:3", "--trace", "i.trace.safetensors")
    (found,) = [
        estimate["value"]
        for estimate in run["candidates"][0]["estimates"]
        if (estimate["measure"], estimate["corpus"]) == ("acceptance_ref", "d")
        and estimate["token_class"] is None
    ]
    assert found >= 0.98


def test_states_before_the_norm_are_used_as_such(place: Path, real: Real, compare: Run) -> None:
    writers.speculators(place / "d", real)
    words = ("import", "d", "--model", MODEL, "-o", "i.trace.safetensors", "-qq")
    assert audit(*words) == 0
    run = compare(MODEL, "--head", "lm", "--trace", "i.trace.safetensors")
    anchor = next(control for control in run["controls"] if control["name"] == "anchor")
    assert anchor["observed"] == 1.0


def test_what_was_not_checked_is_said_again(place: Path, real: Real, compare: Run) -> None:
    writers.eagle(place / "d", real)
    words = ("import", "d", "--stage", "post_norm", "-o", "i.trace.safetensors", "-qq")
    assert audit(*words) == 0
    run = compare(MODEL, "--head", "lm", "--trace", "i.trace.safetensors")
    (found,) = [f for f in run["preflight"] if f["code"] == "ALIGNMENT_UNCHECKED"]
    assert (found["severity"], found["subject"]) == ("warning", "d")


def test_a_captured_trace_knows_its_text(place: Path) -> None:
    from audit.traces import read_trace

    (place / "text.py").write_text("def add(left, right):\n    return left + right\n" * 9)
    words = ("capture", MODEL, "--text", "text.py", "--max-positions", "40", "-qq")
    for context in ("16", "32"):
        assert audit(*words, "--context", context, "-o", f"{context}.trace.safetensors") == 0
    one, two = (read_trace(place / f"{c}.trace.safetensors").info for c in ("16", "32"))
    assert one.corpus_sha256 is not None and one.corpus_sha256 == two.corpus_sha256


def test_texts_that_repeat_are_told_and_count_once(place: Path, real: Real, compare: Run) -> None:
    """Six requests for three texts: too few for any interval, which six texts would have."""
    twice = Real(*(
        [*getattr(real, name), *getattr(real, name)]
        for name in ("tokens", "post", "pre", "entering", "greedy", "masks")
    ))  # fmt: skip
    writers.vllm(place / "d", twice)
    words = ["import", str(place / "d"), "--model", str(MODEL), "-o", "t.trace.safetensors"]
    assert audit(*words, "-qq") == 0
    trace = read_trace(place / "t.trace.safetensors")
    assert trace.sequences == 6 and units(trace).unique().tolist() == [0, 1, 2]
    (told,) = repeated(trace)
    assert told.sentence == "3 of 6 sequences repeat another one; they count once in intervals"
    run = compare(MODEL, "--trace", place / "t.trace.safetensors")
    assert told.code in [f["code"] for f in run["preflight"]]
    found = [e for one in estimates(run) for e in one if e["measure"] == "acceptance_ref"]
    assert all(e["sequences"] <= 3 and e["low"] is None for e in found)
    assert [e["sequences"] for e in found if not e["token_class"]] == [3, 3]
