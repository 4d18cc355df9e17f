"""`audit rank` and `audit trim` as people type them: sweeps, spare ids, exit codes, JSON, CSV."""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch

from audit.cli import main
from audit.cli.main import group
from audit.heads.vocab_map import read_id_list
from audit.traces import read_trace
from audit.trims.sweep import head_bytes
from tests.audit_files import H, V, head_weight, make_trace, write_head
from tests.heads_in_memory import head_of
from tests.trims.making import MODEL, TRACES, card


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("AUDIT_TRACES", "AUDIT_LEDGER"):
        monkeypatch.delenv(name, raising=False)


def audit(*args) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    assert isinstance(stop.value.code, int)
    return stop.value.code


def document(capsys, *args, code=0):
    assert audit(*args, "--json") == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return json.loads(captured.out)


@pytest.fixture
def tiny(tmp_path):
    """A head, two traces of it, and a list of 120 of its 400 ids in a random order."""
    write_head(tmp_path / "ref.safetensors", head_weight())
    make_trace(tmp_path / "a.trace.safetensors", head_weight(), seed=1)
    make_trace(tmp_path / "b.trace.safetensors", head_weight(), corpus="de",
               register="domain_shift", seed=2, sequences=6)  # fmt: skip
    order = torch.randperm(V, generator=torch.Generator().manual_seed(9))
    card(tmp_path / "r.txt", order[:120])
    return order


COMMON = ("ref.safetensors", "--ranks", "r.txt", "--trace", ".", "--resamples", "300")


def test_a_sweep_against_brute_force(tiny, capsys):
    found = document(capsys, "trim", *COMMON, "--sweep", "30,120,60")
    assert [one["rows"] for one in found["sizes"]] == [30, 60, 120]
    weight = head_weight().double()
    for one in found["sizes"]:
        ids = tiny[: one["rows"]].sort().values
        assert one["head_bytes"] == one["rows"] * H * 4
        assert one["row_ratio"] == pytest.approx(V / one["rows"])
        for corpus, name in (("code", "a"), ("de", "b")):
            trace = read_trace(_path(name))
            logits = trace.hidden.double() @ weight.T
            proposal = ids[logits[:, ids].argmax(1)]
            own = {e["measure"]: e for e in one["estimates"] if e["corpus"] == corpus}
            ceiling = float(torch.isin(trace.oracle, ids).float().mean())
            accepted = float((proposal == trace.oracle).float().mean())
            assert own["vocabulary_ceiling"]["value"] == pytest.approx(ceiling)
            assert own["acceptance_cand"]["value"] == pytest.approx(accepted)
            assert own["retention"]["value"] == pytest.approx(accepted)  # the oracle is REF's own
            assert own["retention"]["low"] <= accepted <= own["retention"]["high"]


def test_the_sweep_as_csv_says_the_same(tiny, capsys):
    sizes = document(capsys, "trim", *COMMON, "--sweep", "30,60")["sizes"]
    assert audit("trim", *COMMON, "--sweep", "30,60", "--csv") == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    flat = [(one["rows"], e) for one in sizes for e in one["estimates"]]
    assert len(lines) == len(flat)
    for line, (rows, e) in zip(lines, flat, strict=True):
        assert int(line["rows"]) == rows and line["measure"] == e["measure"]
        assert line["corpus"] == (e["corpus"] or "") and float(line["value"]) == e["value"]


def test_escaped_and_spare_ids_against_counting(tiny, capsys):
    args = ("--rows", "60", "--spare", "5", "--spare-card", "more.txt", "-o", "h.gguf")
    found = document(capsys, "trim", *COMMON, *args)
    oracle = torch.cat([read_trace(path).oracle for path in map(_path, "ab")]).tolist()
    kept = set(tiny[:60].tolist())
    counts = {i: oracle.count(i) for i in set(oracle) - kept}
    order = sorted(counts, key=lambda i: (-counts[i], i))
    assert [one["id"] for one in found["escaped"]] == order
    assert [one["positions"] for one in found["escaped"]] == [counts[i] for i in order]
    assert found["escaped"][-1]["running_share"] == pytest.approx(
        sum(counts.values()) / len(oracle)
    )
    assert found["spare"] == order[:5] and found["rows"] == 65
    plain, more = found["sizes"]
    gain = _pooled(more, "vocabulary_ceiling") - _pooled(plain, "vocabulary_ceiling")
    assert gain == pytest.approx(sum(counts[i] for i in order[:5]) / len(oracle))
    listed = read_id_list(Path("more.txt")).tolist()
    assert listed == [*tiny[:60].tolist(), *order[:5]]
    facts = json.loads(Path("more.txt.json").read_text())
    assert facts["forced"]["spare"] == order[:5]
    assert found["written"]["rows"] == 65
    # A shorter cut of the new card keeps what was added.
    again = document(capsys, "trim", "ref.safetensors", "--ranks", "more.txt", "--rows", "20",
                     "--trace", ".", "--resamples", "300")  # fmt: skip
    assert {one["id"] for one in again["escaped"]}.isdisjoint(order[:5])


def _path(name):
    return Path(f"{name}.trace.safetensors")


def _pooled(size, measure):
    """Over both traces, from the two corpora."""
    own = [e for e in size["estimates"] if e["measure"] == measure and e["corpus"]]
    return sum(e["value"] * e["positions"] for e in own) / sum(e["positions"] for e in own)


def test_rank_then_check_then_trim_on_the_sample(capsys):
    made = document(capsys, "rank", "--trace", TRACES, "--model", MODEL, "--rows", "640",
                    "-o", "ranks.txt")  # fmt: skip
    listed = read_id_list(Path("ranks.txt")).numpy()
    oracles = {t.info.corpus: t for t in (read_trace(p) for p in sorted(TRACES.glob("*")))}
    for one in made["corpora"]:
        oracle = oracles[one["corpus"]].oracle.numpy()
        assert one["coverage"] == pytest.approx(np.isin(oracle, listed).mean())
        assert one["distinct"] == len(set(oracle.tolist())) and one["weight"] == 1.0
    assert len(listed) == made["rows"] == 640 and len(set(listed.tolist())) == 640
    assert made["forced"]["stop"] == [0] and made["padded"] == []
    assert made["model_sha256"] == oracles["german"].info.model_sha256
    found = document(capsys, "rank", "check", "ranks.txt", "--trace", TRACES, "--model", MODEL,
                     "--resamples", "300")  # fmt: skip
    assert found["verdict"]["word"] == "good" and found["lost"]["stop"] == []
    assert found["facts"]["rows"] == 640 and "counts" not in found["facts"]
    assert audit("trim", MODEL, "--ranks", "ranks.txt", "--to", "q8_0", "-o", "h.gguf") == 0
    out = capsys.readouterr().out
    assert "640 of 8,192 rows (1 : 12.800) for llama.cpp, Q8_0" in out
    assert audit("compare", MODEL, "h.gguf", "--trace", TRACES, "--no-record", "-q") == 0
    assert "vocabulary cut" in capsys.readouterr().out


def test_more_rows_than_there_are(capsys):
    base = ("rank", "--trace", TRACES, "--model", MODEL, "-o", "ranks.txt", "--rows", "2000")
    error = document(capsys, *base, code=2)["error"]
    assert "there are 893 ids: 711 were emitted" in error["message"] and "--pad" in error["hint"]
    assert not list(Path().iterdir())
    made = document(capsys, *base, "--pad")
    assert made["rows"] == 2000 and len(made["padded"]) == 2000 - 893
    found = document(capsys, "rank", "check", "ranks.txt", "--trace", TRACES, "--resamples", "300")
    assert found["verdict"]["word"] == "padded"
    assert "893 of its 2,000 entries" in found["verdict"]["sentence"]


def test_missing_stop_ids_are_told(capsys):
    card(Path("r.txt"), range(1, 500))
    assert audit("trim", MODEL, "--ranks", "r.txt", "-o", "h.gguf") == 0
    assert "no row for 1 stop token (ids 0)" in capsys.readouterr().out


def test_the_studys_row_ratio():
    """248,320 rows to 32,768: golden/study.json says 7.578."""
    assert round(248_320 / 32_768, 3) == 7.578
    head = head_of(torch.zeros(4, 4096))
    assert head_bytes(head, 248_320, "Q8_0") == 248_320 * 4096 // 32 * 34
    assert head_bytes(head, 32_768, "NVFP4") == 32_768 * 4096 // 64 * 36
    block = 243_269_632
    full = head_bytes(head, 248_320, "Q8_0") + block // 32 * 34
    trimmed = head_bytes(head, 32_768, "NVFP4") + block // 64 * 36
    assert round(full / 1e9, 2) == 1.34 and round(trimmed / 1e9, 3) == 0.212


@pytest.mark.parametrize(
    ("words", "args"),
    [
        ("needs rows", ("--rows", "0", "-o", "h.gguf")),
        ("120 distinct ids, 121 were asked for", ("--rows", "121", "-o", "h.gguf")),
        ("numbers of rows", ("--sweep", "8,x")),
        ("numbers of rows", ("--sweep", "0,8")),
        ("writes none", ("--sweep", "8", "-o", "h.gguf", "--trace", ".")),
        (
            "measured on traces",
            (
                "--sweep",
                "8",
            ),
        ),
        ("measured on traces", ("--spare", "8", "-o", "h.gguf")),
        ("none were asked for", ("--spare-card", "c.txt", "--trace", ".")),
        ("nothing was asked for", ("--rows", "8")),
        ("--to takes a type", ("--to", "prune:0.5", "-o", "h.gguf")),
        ("--to takes a type", ("--to", "q9", "-o", "h.gguf")),
        ("needs a .gguf file", ("--to", "q8_0", "-o", "h.safetensors")),
        ("not from h.npz", ("-o", "h.npz")),
        ("not from map.pt", ("--for", "vllm", "-o", "map.pt")),
        ("no trace at", ("--trace", "none", "-o", "h.gguf")),
        ("want the whole output", ("--csv", "-o", "h.gguf")),
    ],
)
def test_bad_input_is_refused_with_a_hint(words, args, tiny, capsys):
    before = sorted(Path().iterdir())
    error = document(capsys, "trim", "ref.safetensors", "--ranks", "r.txt", *args, code=2)["error"]
    assert words in error["message"] and error["hint"]
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize(
    "content", ["", "\n", "1\n2\nthree\n", "1.5\n", "99999999999999999999999\n"]
)
def test_broken_cards_are_refused(content, tiny, capsys):
    Path("r.txt").write_text(content)
    for args in (("trim", "ref.safetensors", "--ranks", "r.txt", "-o", "h.gguf"),
                 ("rank", "check", "r.txt", "--trace", ".")):  # fmt: skip
        error = document(capsys, *args, code=2)["error"]
        assert error["message"] and error["kind"] in ("unreadable", "mismatch")


def test_pickles_are_never_opened(tiny, capsys):
    Path("r.pt").write_bytes(pickle.dumps([1, 2, os.getcwd]))
    error = document(capsys, "rank", "check", "r.pt", "--trace", ".", code=2)["error"]
    assert error["kind"] == "unreadable"


def test_a_trace_of_another_model_is_refused(tiny, capsys):
    make_trace(Path("c.trace.safetensors"), head_weight(5), corpus="other", model_sha256="m" * 64)
    assert document(capsys, "trim", *COMMON, "--sweep", "8", code=2)["error"]["kind"] == "mismatch"


@pytest.mark.parametrize("args", [("rank",), ("rank", "make"), ("rank", "check"), ("trim",)])
def test_help_examples_are_commands_that_parse(args, capsys):
    assert audit(*args, "--help") == 0
    examples = re.findall(r"^ +(audit .+)$", capsys.readouterr().out.split("Examples:")[1], re.M)
    assert len(examples) >= 2
    for line in examples:
        words = shlex.split(line)[1:]
        command, rest, ctx = group, words, None
        while hasattr(command, "get_command"):
            ctx = command.make_context("audit", list(rest), resilient_parsing=False, parent=ctx)
            rest = [*ctx._protected_args, *ctx.args]
            _, command, rest = command.resolve_command(ctx, rest)
        assert command.make_context(line, list(rest)).params
