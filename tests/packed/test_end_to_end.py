"""`audit compare` of packed candidates against a dense float64 reference of the decoded weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from audit.cli import main
from audit.heads import load_head
from audit.table import read_positions
from audit.traces import read_trace
from tests.audit_files import V, make_trace, write_head
from tests.packed.more_writers import awq, bnb4, gptq, hqq
from tests.packed.writers import Case, ct_ints, fp4_case, fp8, mo_int4

K = 64
CANDIDATES = {
    "gptq": lambda: gptq(V, K, 4, 32, order=True),
    "awq": lambda: awq(V, K, 32),
    "ct": lambda: ct_ints(V, K, 4, 32),
    "nvfp4": lambda: fp4_case(V, K, "ct-nvfp4"),
    "fp8": lambda: fp8(V, K, "weight_scale", (V, 1)),
    "bnb": lambda: bnb4(V, K, 64, "nf4", nested=True),
    "hqq": lambda: hqq(V, K, 4, 16),
    "svdquant": lambda: mo_int4(V, K, 32, smooth=True, rank=4),
}


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(list(args))
    assert isinstance(stop.value.code, int)
    return stop.value.code


@pytest.mark.parametrize("name", CANDIDATES)
def test_proposals_are_the_argmax_of_the_decoded_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    case: Case = CANDIDATES[name]()
    dense = torch.from_numpy(case.weight).double()
    noise = torch.randn(dense.shape, generator=torch.Generator().manual_seed(0))
    reference = (dense + 0.2 * dense.std() * noise).float()
    write_head(tmp_path / "ref.safetensors", reference)
    trace = make_trace(tmp_path / "t.trace.safetensors", reference)
    folder = case.write(tmp_path / "cand")
    code = run("compare", "ref.safetensors", str(folder), "--trace", str(trace), "--json")
    found = json.loads(capsys.readouterr().out)
    assert code in (0, 1, 3), found
    (candidate,) = found["candidates"]
    assert candidate["head"]["encoding"] == case.label
    table = read_positions(tmp_path / "audit-ledger/runs" / found["run"] / "positions.parquet")
    hidden = read_trace(trace).hidden.double()
    wanted = (hidden @ dense.T).argmax(1)
    assert table["cand"].tolist() == wanted.tolist()
    disagree = ((hidden @ reference.double().T).argmax(1) != wanted).double().mean()
    assert 0 < float(disagree) == pytest.approx(table["disagree"].mean())


def test_svdquant_adds_its_low_rank_part_before_the_channels(tmp_path: Path) -> None:
    case = CANDIDATES["svdquant"]()
    head = load_head(case.write(tmp_path))
    want = torch.from_numpy(case.weight).double()
    assert head.record.encoding == case.label == "ModelOpt-INT4 g32 low rank pre-scaled"
    assert torch.allclose(head.rows.tile(0, V).double(), want, rtol=1e-5, atol=1e-7)
    picked = torch.tensor([5, 0])
    assert torch.allclose(head.rows.gather(picked).double(), want[picked], rtol=1e-5, atol=1e-7)


def test_inspect_names_the_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    case = CANDIDATES["gptq"]()
    folder = case.write(tmp_path / "m")
    assert run("inspect", str(folder)) == 0
    text = capsys.readouterr().out
    assert "GPTQ-4 g32 act-order v1" in text
    assert run("inspect", str(folder), "--json") == 0
    head = json.loads(capsys.readouterr().out)["head"]
    stored = sum(t.nbytes for t in case.tensors.values())
    assert head["bits_per_weight"] == 8 * stored / (V * K) and head["rows"] == V


def test_a_missing_scale_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    case = CANDIDATES["fp8"]()
    del case.tensors["weight_scale"]
    assert run("inspect", str(case.write(tmp_path / "m")), "--json") == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["message"].startswith("SCALE_MISSING: lm_head") and error["hint"]
