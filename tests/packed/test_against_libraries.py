"""The formats' own libraries as writers: extras `dev` and `formats`, and hqq where installed."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from audit.heads import load_head
from tests.packed.writers import ct_config

N, K = 48, 256


def weight(seed: int = 0) -> torch.Tensor:
    return torch.randn(N, K, generator=torch.Generator().manual_seed(seed)) * 0.05


def library(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name)


def loaded(
    folder: Path,
    tensors: dict[str, torch.Tensor],
    quantization: dict[str, Any],
    metadata: dict[str, str] | None = None,
) -> torch.Tensor:
    """What the product makes of a head that a library wrote."""
    named = {f"lm_head.{leaf}": t.contiguous() for leaf, t in tensors.items()}
    save_file(named, folder / "model.safetensors", metadata=metadata)
    config = {"model_type": "llama", "quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(config))
    rows = load_head(folder).rows
    return rows.tile(0, rows.count)


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_compressed_tensors_integers(tmp_path: Path, bits: int, symmetric: bool) -> None:
    helpers = library("compressed_tensors.compressors.pack_quantized.helpers")
    rng = torch.Generator().manual_seed(bits)
    low = -(1 << (bits - 1))
    codes = torch.randint(low, -low, (N, K), generator=rng, dtype=torch.int8)
    scales = torch.rand(N, K // 32, generator=rng) * 0.01 + 0.001
    tensors = {
        "weight_packed": helpers.pack_to_int32(codes, bits),
        "weight_scale": scales, "weight_shape": torch.tensor([N, K]),
    }  # fmt: skip
    zeros = torch.zeros(N, K // 32, dtype=torch.int8)
    if not symmetric:
        zeros = torch.randint(low, -low, zeros.shape, generator=rng, dtype=torch.int8)
        tensors["weight_zero_point"] = helpers.pack_to_int32(zeros, bits, packed_dim=0)
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, "group_size": 32}
    got = loaded(tmp_path, tensors, ct_config("pack-quantized", weights))
    shift, scale = (t.repeat_interleave(32, 1) for t in (zeros.float(), scales))
    assert torch.equal(got, (codes.float() - shift) * scale)


def test_compressed_tensors_fp4(tmp_path: Path) -> None:
    helpers = library("compressed_tensors.compressors.nvfp4.helpers")
    rng = torch.Generator().manual_seed(1)
    values = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    chosen = values[torch.randint(0, 8, (N, K), generator=rng)]
    chosen = chosen * (torch.randint(0, 2, (N, K), generator=rng) * 2 - 1)
    scales = (torch.rand(N, K // 16, generator=rng) * 200 + 1).to(torch.float8_e4m3fn)
    factor = torch.tensor([731.5])
    tensors = {
        "weight_packed": helpers.pack_fp4_to_uint8(chosen.bfloat16()),
        "weight_scale": scales, "weight_global_scale": factor,
    }  # fmt: skip
    config = ct_config("nvfp4-pack-quantized", {"num_bits": 4, "type": "float", "group_size": 16})
    got = loaded(tmp_path, tensors, config)
    assert torch.equal(got, chosen * (scales.float() / factor).repeat_interleave(16, 1))


@pytest.mark.parametrize("kind", ["nf4", "fp4"])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("columns", [K, K - 10])
def test_bitsandbytes(tmp_path: Path, kind: str, nested: bool, columns: int) -> None:
    functional = library("bitsandbytes.functional")
    source = weight()[:, :columns].contiguous()
    packed, state = functional.quantize_4bit(
        source, blocksize=64, quant_type=kind, compress_statistics=nested
    )
    parts = {f"weight.{key}": t for key, t in state.as_dict(packed=True).items()}
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    got = loaded(tmp_path, {"weight": packed, **parts}, config)
    want = functional.dequantize_4bit(packed, state)
    assert torch.allclose(got, want, rtol=1e-6, atol=1e-8)  # absmax is unpacked in another order
    if not nested:
        assert torch.equal(got, want)


@pytest.mark.parametrize(
    "kind", ["float8-row", "float8-tensor", "int8", "int4-unpacked", "nvfp4", "mxfp8", "mxfp4"]
)
def test_torchao(tmp_path: Path, kind: str) -> None:
    library("torchao")
    support = library("torchao.prototype.safetensors.safetensors_support")
    source = weight()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        packed = _ao(kind, source)
        tensors, metadata = support.flatten_tensor_state_dict({"lm_head.weight": packed})
    stored = {name.removeprefix("lm_head."): tensor for name, tensor in tensors.items()}
    got = loaded(tmp_path, stored, {"quant_method": "torchao"}, metadata)
    assert torch.allclose(got, packed.dequantize().float(), rtol=1e-6, atol=0)
    assert float((got - source).norm() / source.norm()) < 0.2


def _ao(kind: str, source: torch.Tensor) -> Any:
    from torchao import quantization as ao
    from torchao.prototype.mx_formats.mx_tensor import MXTensor
    from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor

    makers = {
        "float8-row": lambda: ao.Float8Tensor.from_hp(source, granularity=ao.PerRow()),
        "float8-tensor": lambda: ao.Float8Tensor.from_hp(source, granularity=ao.PerTensor()),
        "int8": lambda: ao.Int8Tensor.from_hp(source, granularity=ao.PerRow()),
        "int4-unpacked": lambda: ao.IntxUnpackedToInt8Tensor.from_hp(source, [1, 32], torch.int4),
        "nvfp4": lambda: NVFP4Tensor.to_nvfp4(source, per_tensor_scale=torch.tensor(0.0007)),
        "mxfp8": lambda: MXTensor.to_mx(source, torch.float8_e4m3fn, 32),
        "mxfp4": lambda: MXTensor.to_mx(source, torch.float4_e2m1fn_x2, 32),
    }
    return makers[kind]()


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("axis", [0, 1])
def test_hqq_packing(tmp_path: Path, bits: int, axis: int) -> None:
    bitpack = library("hqq.core.bitpack")
    rng = torch.Generator().manual_seed(bits)
    codes = torch.randint(0, 1 << bits, (N, K), generator=rng)
    shaped = codes.view(-1, 64) if axis else codes.view(64, -1)
    suffix = "3bit_32" if bits == 3 else f"{bits}bit_u8"
    wanted = (len(shaped), 1) if axis else (1, shaped.shape[1])
    scale, zero = (torch.rand(wanted, generator=rng) for _ in range(2))
    tensors = {
        "W_q": getattr(bitpack.BitPack, f"pack_{suffix}")(shaped), "scale": scale, "zero": zero,
        "nbits": torch.tensor(bits, dtype=torch.int32), "shape": torch.tensor([N, K]),
        "axis": torch.tensor(axis, dtype=torch.int32),
        "group_size": torch.tensor(64, dtype=torch.int32),
    }  # fmt: skip
    got = loaded(tmp_path, tensors, {"quant_method": "hqq"})
    assert torch.equal(got, ((shaped.float() - zero) * scale).view(N, K))
