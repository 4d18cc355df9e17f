"""Draft blocks whose matrices are packed, beside plain ones, load through the same decoders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from audit.errors import AuditError, BadUsageError
from audit.forge import parse_cut
from audit.forge.blocks import cut_block
from tests.blocks.test_mtp_layouts import load, qwen, random_trace
from tests.packed.more_writers import awq, gptq, hqq
from tests.packed.writers import Case, ct_ints, fp4_case, fp8

STEM = "mtp.layers.0.mlp"


def packed_for(shape: tuple[int, int], kind: str, seed: int) -> Case:
    n, k = shape
    makers = {
        "gptq": lambda: gptq(n, k, 4, 16, version=2, sym=True, seed=seed),
        "awq": lambda: awq(n, k, 16, seed=seed),
        "ct": lambda: ct_ints(n, k, 5, 16, zeros=True, seed=seed),
        "nvfp4": lambda: fp4_case(n, k, "mo-nvfp4", seed=seed),
        "fp8": lambda: fp8(n, k, "weight_scale", (n, 1), config="", seed=seed),
        "hqq": lambda: hqq(n, k, 4, 16, seed=seed),
    }
    return makers[kind]()


def changes(
    folder: Path, kind: str
) -> tuple[dict[str, torch.Tensor | None], dict[str, torch.Tensor]]:
    """The MLP's three matrices packed, and the same decoded."""
    _, tensors = qwen(folder)
    packed: dict[str, torch.Tensor | None] = {}
    plain: dict[str, torch.Tensor] = {}
    for seed, part in enumerate(("gate_proj", "up_proj", "down_proj")):
        name = f"{STEM}.{part}.weight"
        shape = tensors[name].shape
        case = packed_for((shape[0], shape[1]), kind, seed)
        packed[name] = None
        packed |= {f"{STEM}.{part}.{leaf}": tensor for leaf, tensor in case.tensors.items()}
        plain[name] = torch.from_numpy(case.weight.astype(np.float32))
    return packed, plain


def named(tensors: dict) -> dict:
    return {name.replace(".", "__"): tensor for name, tensor in tensors.items()}


@pytest.mark.parametrize("kind", ["gptq", "awq", "ct", "nvfp4", "fp8", "hqq"])
def test_a_block_may_mix_packed_and_plain(tmp_path: Path, kind: str) -> None:
    packed, plain = changes(tmp_path / "x", kind)
    ours, _ = qwen(tmp_path / "packed", **named(packed))
    dense, _ = qwen(tmp_path / "plain", **named(plain))
    got, want = load(ours).block, load(dense).block
    trace = random_trace()
    assert torch.equal(got.run(trace), want.run(trace))
    assert got.sha256 != want.sha256 and got.stored_bytes < want.stored_bytes


def test_every_part_of_a_packed_matrix_is_in_the_hash(tmp_path: Path) -> None:
    packed, _ = changes(tmp_path / "x", "ct")
    first, _ = qwen(tmp_path / "a", **named(packed))
    name = f"{STEM}.up_proj.weight_scale"
    changed = packed[name]
    assert changed is not None
    second, _ = qwen(tmp_path / "b", **named(packed | {name: changed * 2}))
    assert load(first).block.sha256 != load(second).block.sha256


def test_a_missing_scale_in_a_block(tmp_path: Path) -> None:
    packed, _ = changes(tmp_path / "x", "ct")
    del packed[f"{STEM}.up_proj.weight_scale"]
    folder, _ = qwen(tmp_path / "a", **named(packed))
    with pytest.raises(AuditError, match=r"SCALE_MISSING.*up_proj.weight_scale"):
        load(folder)


def test_a_packed_block_is_not_cut(tmp_path: Path) -> None:
    packed, _ = changes(tmp_path / "x", "fp8")
    folder, _ = qwen(tmp_path / "a", **named(packed))
    with pytest.raises(BadUsageError, match="packed"):
        cut_block(load(folder).block, parse_cut("q8_0"))
