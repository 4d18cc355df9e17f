"""`audit forge` end to end on the sample: files, exit codes, JSON, bad input."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from audit.cli import main
from audit.traces import write_trace
from tests.forge.real_heads import SAMPLE, sample_trace


@pytest.fixture(scope="module")
def trace_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "code.trace.safetensors"
    write_trace(sample_trace(), path)
    return path


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("AUDIT_TRACES", "AUDIT_LEDGER"):
        monkeypatch.delenv(name, raising=False)


def audit(*args: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    assert isinstance(stop.value.code, int)
    return stop.value.code


def test_forged_files_are_audited(capsys, trace_file):
    assert audit("forge", SAMPLE, "--cut", "q4_0", "--head", "mtp", "-o", "q4.safetensors") == 0
    line, *notes = capsys.readouterr().out.splitlines()
    assert line.startswith(
        "q4.safetensors: mtp of model, block and projection: Q4_0, 4,008,064 -> "
    )
    assert "relative weight error: block 8." in line and "simulated" in notes[0]
    common = ("--head", "mtp", "--trace", trace_file)
    low = ("--cut", "lowrank:0.25:calibrated", "-o", "low.safetensors")
    assert audit("forge", SAMPLE, *low, *common) == 0
    capsys.readouterr()
    files = ("q4.safetensors", "low.safetensors")
    assert audit("compare", SAMPLE, *files, *common, "--json", "--resamples", "100") == 0
    run = json.loads(capsys.readouterr().out)
    rates = [
        next(e["value"] for e in cand["estimates"] if e["measure"] == "disagreement")
        for cand in run["candidates"]
    ]
    assert all(0.0 < rate < 0.9 for rate in rates)


def test_json_is_one_document(capsys):
    args = ("--cut", "prune:0.5", "--head", "exit:2", "-o", "p.safetensors", "--json")
    assert audit("forge", SAMPLE, *args) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["file"] == "p.safetensors" and document["file_bytes"] > 0
    assert document["parts"] == "block" and document["family"] == "function"
    assert document["bytes_after"] < document["bytes_before"]
    assert math.isclose(document["relative_errors"]["block"], 0.67, abs_tol=0.05)
    assert "the projection is left as it is" in document["notes"][0]


def test_the_lm_head_is_cut_unasked_and_that_is_said(capsys):
    assert audit("forge", SAMPLE, "--cut", "q8_0", "-o", "lm.gguf") == 0
    out = capsys.readouterr().out
    assert out.startswith("lm.gguf: lm of model, projection: Q8_0, ")
    assert "REF also holds mtp: --head mtp" in out
    assert audit("forge", SAMPLE, "--cut", "q8_0", "-o", "lm.gguf", "-qq") == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "args"),
    [
        ("made by llama.cpp's own tool", ("--cut", "q4_k_m", "-o", "c.gguf")),
        ("there is no cut", ("--cut", "q4_9", "-o", "c.gguf")),
        ("no trace was given", ("--cut", "prune:0.5:activation", "--head", "mtp",
                                "-o", "c.safetensors")),
        ("has no block", ("--cut", "q4_0", "--only", "block", "-o", "c.gguf")),
        ("a projection has none", ("--cut", "prune:0.5", "-o", "c.safetensors")),
        ("can not be kept in a .gguf", ("--cut", "fp8", "-o", "c.gguf")),
        ("not to c.npz", ("--cut", "q4_0", "-o", "c.npz")),
        ("not translated into .gguf", ("--cut", "q4_0", "--head", "mtp", "-o", "c.gguf")),
        ("there is no trace at", ("--cut", "prune:0.5:activation", "--head", "mtp",
                                  "--trace", "none.safetensors", "-o", "c.safetensors")),
        ("this file holds mtp", ("--cut", "q4_0", "--head", "eagle3", "-o", "c.safetensors")),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_a_hint(words, args, capsys, tmp_path):
    assert audit("forge", SAMPLE, *args, "--json") == 2
    captured = capsys.readouterr()
    error = json.loads(captured.out)["error"]
    assert words in error["message"] and error["hint"] and "Traceback" not in captured.err
    assert not list(tmp_path.iterdir())


def test_help_shows_examples(capsys):
    assert audit("forge", "--help") == 0
    assert "audit forge model/ --cut prune:0.5 --head mtp" in capsys.readouterr().out
