"""A block's tensors under every cut: what is stored stands for what is run."""

from __future__ import annotations

import pytest
import torch

from audit.errors import BadUsageError, MismatchError
from audit.files import open_container
from audit.forge import cut_matrices, find_mlps, parse_cut, write_gguf
from audit.forge.matrices import MlpNames

HIDDEN, CHANNELS = 64, 128


def block(hf: bool = True) -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    prefix = "mtp.layers.0." if hf else "blk.0."
    mlp = (
        ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
        if hf
        else ("ffn_gate", "ffn_up", "ffn_down")
    )
    shapes = {
        "attn_norm": (HIDDEN,),
        "attn_q": (2 * HIDDEN, HIDDEN),
        mlp[0]: (CHANNELS, HIDDEN),
        mlp[1]: (CHANNELS, HIDDEN),
        mlp[2]: (HIDDEN, CHANNELS),
    }
    return {f"{prefix}{n}.weight": torch.randn(*s, generator=rng) for n, s in shapes.items()}


def moments() -> dict[str, torch.Tensor]:
    mlp = find_mlps(block())[0]
    x = torch.randn(300, HIDDEN, generator=torch.Generator().manual_seed(5))
    a = torch.randn(300, CHANNELS, generator=torch.Generator().manual_seed(6)) * torch.linspace(
        0, 1, CHANNELS
    )
    return {mlp.gate: x.T @ x / 300, mlp.up: x.T @ x / 300, mlp.down: a.T @ a / 300}


def test_mlps_are_found_under_both_namings():
    assert find_mlps(block()) == [
        MlpNames(*(f"mtp.layers.0.mlp.{n}_proj.weight" for n in ("gate", "up", "down")))
    ]
    assert find_mlps(block(hf=False)) == [
        MlpNames("blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight")
    ]
    assert find_mlps(["x.mlp.gate_proj.weight"]) == []


@pytest.mark.parametrize(
    "text", ["q8_0", "nvfp4", "fp8", "prune:0.5", "prune:0.5:activation", "lowrank:0.5",
             "lowrank:0.5:calibrated", "noise:0.1"],
)  # fmt: skip
def test_the_file_holds_the_values_that_are_run(text, tmp_path):
    weights = {name: w * 1e-4 for name, w in block().items()}  # NVFP4 then needs its sidecar
    made = cut_matrices(weights, parse_cut(text), moments=moments(), seed=3)
    assert list(made) == list(weights)
    path = write_gguf(tmp_path / "block.gguf", [t for m in made.values() for t in m.stored()])
    container = open_container(path)
    for name, matrix in made.items():
        values = container.values(name)
        sidecar = name.replace(".weight", ".scale")
        if sidecar in container.entries:
            values = values * container.values(sidecar)
        assert torch.equal(values, matrix.values())
        error = float((matrix.values() - weights[name]).norm() / weights[name].norm()) if (
            matrix.shape == weights[name].shape) else 1.0  # fmt: skip
        if "norm" in name:
            assert matrix.encoding == "F32" and error == 0
        elif text.startswith(("prune", "lowrank")):
            assert (error > 0) == ("mlp" in name)
        else:
            assert 0 < error < 0.15
    assert (text == "nvfp4") == any(name.endswith(".scale") for name in container.entries)


def test_pruning_narrows_or_zeroes():
    mlp = find_mlps(block())[0]
    narrow = cut_matrices(block(), parse_cut("prune:0.25"))
    zeroed = cut_matrices(block(), parse_cut("prune:0.25"), keep_shapes=True)
    assert narrow[mlp.down].shape == (HIDDEN, CHANNELS // 4)
    kept = zeroed[mlp.down].values().abs().sum(0) > 0
    assert int(kept.sum()) == CHANNELS // 4
    assert torch.equal(zeroed[mlp.down].values()[:, kept], narrow[mlp.down].values())
    active = cut_matrices(
        block(), parse_cut("prune:0.25:activation"), moments=moments(), keep_shapes=True
    )
    kept = (active[mlp.down].values().abs().sum(0) > 0).nonzero().squeeze(1)
    assert float(kept.float().mean()) > 0.75 * CHANNELS  # channel power rises with the index


def test_low_rank_keeps_the_share_of_weights_it_says():
    mlp = find_mlps(block())[0]
    made = cut_matrices(block(), parse_cut("lowrank:0.5"))[mlp.gate].values()
    rank = int(torch.linalg.matrix_rank(made, rtol=1e-4))
    assert rank == 21 and rank * (HIDDEN + CHANNELS) <= 0.5 * HIDDEN * CHANNELS


def test_experts_in_three_dimensions_are_quantized_row_by_row():
    weight = torch.randn(3, 4, 64)
    made = cut_matrices({"blk.0.ffn_gate_exps.weight": weight}, parse_cut("q8_0"))
    matrix = made["blk.0.ffn_gate_exps.weight"]
    torch.testing.assert_close(matrix.values(), weight, atol=0.02, rtol=0)
    assert matrix.stored()[0].shape == (3, 4, 64)


def test_refusals():
    with pytest.raises(BadUsageError, match="a block has none"):
        cut_matrices(block(), parse_cut("trim:x.txt"))
    with pytest.raises(BadUsageError, match="there is no gated MLP in 1 tensor"):
        cut_matrices({"q.weight": torch.ones(4, 4)}, parse_cut("prune:0.5"))
    with pytest.raises(
        BadUsageError, match=r"no calibration for what enters mtp.layers.0.mlp.gate"
    ):
        cut_matrices(block(), parse_cut("lowrank:0.5:calibrated"))
    with pytest.raises(MismatchError, match="rows of 48 weights can not be NVFP4"):
        cut_matrices({"q.weight": torch.ones(4, 48)}, parse_cut("nvfp4"))
