"""Every packed format against an independent writer of its layout, bit by bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from audit.heads import load_head
from audit.heads.packed import FORMATS, PackedRows
from audit.heads.packed.codes import FLOAT8
from tests.packed.bits import e4m3, e5m2
from tests.packed.cases import CASES


@pytest.mark.parametrize("name", CASES)
def test_decodes_to_the_very_floats(tmp_path: Path, name: str) -> None:
    case = CASES[name]()
    head = load_head(case.write(tmp_path))
    want = torch.from_numpy(case.weight.astype(np.float32))
    assert isinstance(head.rows, PackedRows) and head.rows.count == len(want)
    assert torch.equal(head.rows.tile(0, len(want)), want)
    assert head.record.encoding == case.label


@pytest.mark.parametrize("name", CASES)
def test_any_rows_can_be_picked(tmp_path: Path, name: str) -> None:
    case = CASES[name]()
    rows = load_head(case.write(tmp_path)).rows
    want = torch.from_numpy(case.weight.astype(np.float32))
    for start, stop in ((0, 1), (3, 10), (8, 16), (len(want) - 1, len(want))):
        assert torch.equal(rows.tile(start, stop), want[start:stop])
    index = torch.tensor([len(want) - 1, 0, 7, 7, 9])
    assert torch.equal(rows.gather(index), want[index])
    assert rows.tile(4, 4).shape == (0, want.shape[1])


@pytest.mark.parametrize("name", CASES)
def test_the_record_counts_all_that_is_stored(tmp_path: Path, name: str) -> None:
    case = CASES[name]()
    record = load_head(case.write(tmp_path)).record
    ignored = ("input_scale",)
    stored = {leaf: t.nbytes for leaf, t in case.tensors.items() if leaf not in ignored}
    assert {t.removeprefix("lm_head.") for t in record.tensors} == set(stored)
    assert record.stored_bytes == sum(stored.values())
    assert record.bits_per_weight == 8 * sum(stored.values()) / case.weight.size


def test_the_hash_depends_on_every_part(tmp_path: Path) -> None:
    hashes = set()
    for leaf in (None, "qweight", "qzeros", "scales"):
        case = CASES["gptq-4"]()
        if leaf:
            case.tensors[leaf] = case.tensors[leaf].clone()
            case.tensors[leaf][0, 0] += 1
        hashes.add(load_head(case.write(tmp_path / str(leaf))).record.sha256)
    assert len(hashes) == 4


@pytest.mark.parametrize(
    ("kind", "value", "dtype"),
    [("F8_E4M3", e4m3, torch.float8_e4m3fn), ("F8_E5M2", e5m2, torch.float8_e5m2)],
)
def test_every_fp8_code(kind: str, value, dtype: torch.dtype) -> None:
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8).unsqueeze(0)
    out = torch.empty(1, 256)
    FLOAT8[kind](codes, out)
    by_hand = torch.tensor([[value(code) for code in range(256)]], dtype=torch.float32)
    assert torch.equal(out.nan_to_num(7e9), by_hand.nan_to_num(7e9))
    assert torch.equal(out.nan_to_num(7e9), codes.view(dtype).float().nan_to_num(7e9))


def test_every_format_speaks_for_itself() -> None:
    names = [form.name for form in FORMATS]
    assert len(set(names)) == len(names)
    assert all(form.variants and form.verified for form in FORMATS)
