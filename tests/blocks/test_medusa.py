"""Medusa heads: y = W (x + SiLU(L x + b)), in both published name styles."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import silu

from audit.blocks import heads_in, load_block_head
from audit.errors import MismatchError, NotFoundError
from audit.files import open_container
from audit.heads.options import HeadOptions
from audit.traces import lookahead_rows

from .tiny import H, V, near, random_trace, save_folder


def medusa_folder(folder, layers: int = 1, style: str = "original"):
    torch.manual_seed(0)
    tensors = {}
    for head in range(3):
        for layer in range(layers):
            weight, bias = torch.randn(H, H) * 0.2, torch.randn(H) * 0.2
            if style == "original":
                stem = f"{head}.{layer}.linear"
                tensors |= {f"{stem}.weight": weight, f"{stem}.bias": bias}
            else:
                tensors[f"medusa_heads.blocks.{head}.layers.{layer}.weight"] = weight
        name = f"{head}.{layers}" if style == "original" else f"medusa_heads.lm_heads.{head}"
        tensors[f"{name}.weight"] = torch.randn(V, H)
    return save_folder(folder, {"medusa_num_heads": 5}, tensors), tensors


def load(folder, name: str):
    return load_block_head(open_container(folder), name, HeadOptions())


@pytest.mark.parametrize("layers", [1, 2])
def test_original_names(tmp_path, layers):
    folder, w = medusa_folder(tmp_path, layers)
    trace = random_trace()
    head = load(folder, "medusa:1")
    x = trace.hidden
    for layer in range(layers):
        x = x + silu(x @ w[f"1.{layer}.linear.weight"].T + w[f"1.{layer}.linear.bias"])
    assert near(head.block.run(trace), x)
    assert torch.equal(head.rows.tile(0, V), w[f"1.{layers}.weight"])
    assert heads_in(head.block.container) == ["medusa:0", "medusa:1", "medusa:2"]


def test_vllm_names(tmp_path):
    folder, w = medusa_folder(tmp_path, style="vllm")
    trace = random_trace()
    head = load(folder, "medusa:2")
    x = trace.hidden
    x = x + silu(x @ w["medusa_heads.blocks.2.layers.0.weight"].T)
    assert near(head.block.run(trace), x)
    assert torch.equal(head.rows.tile(0, V), w["medusa_heads.lm_heads.2.weight"])


def test_head_j_proposes_token_t_plus_j_plus_two(tmp_path):
    """Row t of medusa:1 is held against the token after row t + 2, which is token t + 3."""
    folder, _ = medusa_folder(tmp_path)
    trace = random_trace(lengths=(4, 2))
    head = load(folder, "medusa:1")
    assert head.lookahead == 3
    rows, targets = lookahead_rows(trace, head.lookahead)
    assert rows.tolist() == [0, 1] and targets.tolist() == [2, 3]


def test_absent_heads_name_those_that_are_there(tmp_path):
    folder, _ = medusa_folder(tmp_path)
    with pytest.raises(NotFoundError, match=r"HEAD_ABSENT.*medusa:0, medusa:1, medusa:2"):
        load(folder, "medusa:7")


def test_residual_layers_are_square(tmp_path):
    _, w = medusa_folder(tmp_path / "a")
    folder = save_folder(tmp_path / "b", {}, w | {"0.0.linear.weight": torch.randn(H, H + 8)})
    with pytest.raises(MismatchError, match=r"BLOCK_SHAPE"):
        load(folder, "medusa:0")
