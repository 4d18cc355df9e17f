"""`audit forge` end to end on the sample: files, exit codes, JSON, bad input."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from audit.cli import main
from audit.traces import write_trace
from tests.forge.real_heads import SAMPLE, sample_trace

TRACES = SAMPLE.parent / "traces"


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


def test_several_cuts_are_a_file_each(capsys, trace_file, tmp_path):
    (tmp_path / "ranks.txt").write_text("\n".join(map(str, range(0, 8192, 4))))
    cuts = ("q8_0", "prune:0.5:activation", "lowrank:0.25:calibrated", "trim:ranks.txt:900")
    args = [part for cut in cuts for part in ("--cut", cut)]
    common = ("forge", SAMPLE, "--head", "mtp", "--trace", trace_file)
    assert audit(*common, *args, "-o", "cuts/", "--json") == 0
    documents = json.loads(capsys.readouterr().out)["forged"]
    assert [document["cut"] for document in documents] == list(cuts)
    names = [Path(document["file"]).name for document in documents]
    assert names == [
        "mtp-q8_0.safetensors", "mtp-prune-0.5-activation.safetensors",
        "mtp-lowrank-0.25-calibrated.safetensors", "mtp-trim-ranks-900.safetensors",
    ]  # fmt: skip
    assert sorted(path.name for path in Path("cuts").iterdir()) == sorted(names)
    for cut, name in zip(cuts, names, strict=True):  # the very bytes of one cut at a time
        assert audit(*common, "--cut", cut, "-o", "alone.safetensors", "-qq") == 0
        assert Path("alone.safetensors").read_bytes() == (Path("cuts") / name).read_bytes()
    capsys.readouterr()
    assert audit("forge", SAMPLE, "--cut", "q8_0", "--cut", "fp8", "-o", "lm") == 0
    assert sorted(p.name for p in Path("lm").iterdir()) == ["lm-fp8.safetensors", "lm-q8_0.gguf"]
    capsys.readouterr()
    assert audit(*common, "--cut", "q8_0", "--cut", "Q8-0", "-o", "cuts", "--json") == 2
    assert "would both be written" in json.loads(capsys.readouterr().out)["error"]["message"]


@pytest.mark.parametrize(
    ("words", "args"),
    [
        ("nothere.txt", ("forge", "--cut", "q8_0", "--cut", "trim:nothere.txt", "-o", "x")),
        ("no trace at nothere", ("forge", "--cut", "q4_0", "--trace", "nothere", "-o", "x.gguf")),
        ("no trace at nothere", ("study", "--trace", "nothere")),
        ("no trace at nothere", ("study", "--trace", TRACES, "--fit", "nothere")),
        ("there is no cut 'bogus'", ("study", "--trace", TRACES, "--cut", "bogus")),
        ("vocabulary cut", ("study", "--trace", TRACES, "--cut", "trim:nothere.txt")),
        ("there is no nothere", ("study", "--trace", TRACES, "--verifier", "nothere")),
    ],
)
def test_what_can_not_be_is_refused_before_any_work(words, args, capsys, tmp_path, monkeypatch):
    def never(*args: object) -> None:
        raise AssertionError("a head was loaded")

    # In this order: the study's own name would else keep what stands in for the other.
    monkeypatch.setattr("audit.study.load_ref", never)
    monkeypatch.setattr("audit.pair.load_ref", never)
    command, *more = args
    assert audit(command, SAMPLE, *more, "--json") == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert words in error["message"] and error["hint"]
    assert not list(tmp_path.glob("x*"))


def test_a_study_refuses_a_cut_that_the_head_can_not_have(capsys, monkeypatch):
    monkeypatch.setattr("audit.study.read_trace", lambda path: pytest.fail("it went on"))
    assert audit("study", SAMPLE, "--trace", TRACES, "--cut", "prune:0.5", "--json") == 2
    assert "a projection has none" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_states_of_another_model_make_no_file(capsys, tmp_path):
    trace = sample_trace()
    states = torch.randn(trace.hidden.shape, generator=torch.Generator().manual_seed(0))
    info = trace.info.model_copy(update={"model_sha256": "5" * 64})
    write_trace(replace(trace, hidden=states, info=info), tmp_path / "x.trace.safetensors")
    cut = ("--cut", "prune:0.5:activation", "--trace", "x.trace.safetensors")
    assert audit("forge", SAMPLE, "--head", "mtp", *cut, "-o", "c.safetensors", "--json") == 2
    assert "99 % are needed" in json.loads(capsys.readouterr().out)["error"]["message"]
    assert not Path("c.safetensors").exists()


def test_a_block_alone_is_forged_again_with_its_model(capsys):
    whole = ("forge", SAMPLE, "--head", "mtp", "--only", "block", "--cut", "q8_0")
    assert audit(*whole, "-o", "block.safetensors") == 0
    again = ("forge", "block.safetensors", "--head", "mtp", "--cut", "prune:0.5", "-o")
    capsys.readouterr()
    assert audit(*again, "c.safetensors", "--json") == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert "only the block of model was cut" in error["message"]
    assert error["hint"] == (
        "name the model whose head it uses: --verifier MODEL; or cut model itself, which holds "
        "the projection"
    )
    assert audit(*again, "c.safetensors", "--verifier", SAMPLE) == 0


def test_sizes_are_those_of_the_type(capsys):
    """A byte a weight and four for each row; the block's norms stay BF16."""
    assert audit("forge", SAMPLE, "--head", "mtp", "--cut", "fp8", "-o", "f.safetensors") == 0
    line = capsys.readouterr().out.splitlines()[0]
    header = json.loads((SAMPLE / "model.safetensors").read_bytes()[8:][: _header_length()])
    block = [v["shape"] for k, v in header.items() if k.startswith("mtp.")]
    size = sum(s[0] * (s[1] + 4) if len(s) == 2 else 2 * s[0] for s in block)
    size += 8192 * (192 + 4)  # the projection is the embedding
    assert f"4,008,064 -> {size:,} bytes" in line


def _header_length() -> int:
    return int.from_bytes((SAMPLE / "model.safetensors").read_bytes()[:8], "little")


def test_help_shows_examples(capsys):
    assert audit("forge", "--help") == 0
    assert "audit forge model/ --cut prune:0.5 --head mtp" in capsys.readouterr().out
