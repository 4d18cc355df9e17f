"""One writer per packed format: tensors, configuration, and the float32 weights they stand for.

Written from the formats' published layouts, with loops and without the product's decoders.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.packed.bits import byte_pairs, e4m3, e5m2, fp4, rows_packed, spread, stream

STEM = "lm_head"


@dataclass
class Case:
    """One stored matrix and what it stands for."""

    tensors: dict[str, Tensor]
    """By leaf name, such as `weight_scale`."""
    weight: np.ndarray
    """float32 [N, K]."""
    label: str
    quantization: dict[str, Any] | None = None
    """`quantization_config` of config.json; None for no config.json at all."""
    needed: tuple[str, ...] = ()
    """Leaves without which the codes mean nothing."""
    metadata: dict[str, str] = field(default_factory=dict)

    def write(self, folder: Path, stem: str = STEM) -> Path:
        """A model folder with this matrix as its head."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {f"{stem}.{leaf}": t.contiguous() for leaf, t in self.tensors.items()}
        named = {key.replace(STEM, stem): text for key, text in self.metadata.items()}
        save_file(tensors, folder / "model.safetensors", metadata=named or None)
        if self.quantization is not None:
            config = {"model_type": "llama", "quantization_config": self.quantization}
            (folder / "config.json").write_text(json.dumps(config))
        return folder


def f32(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def half(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Positive scales that float16 holds exactly, as float32."""
    return (rng.random(shape) * 0.02 + 0.001).astype(np.float16).astype(np.float32)


def groups_of(columns: int, size: int) -> int:
    return -(-columns // size)


def ct_ints(
    n: int, k: int, bits: int, size: int, *, zeros: bool = False, pack: Callable = stream,
    order: bool = False, seed: int = 0,
) -> Case:  # fmt: skip
    """compressed-tensors pack-quantized; size 0 is one scale per row."""
    rng = np.random.default_rng(seed)
    width, middle = size or k, 1 << (bits - 1)
    scales = half(rng, n, groups_of(k, width))
    codes = rng.integers(0, 1 << bits, (n, k))
    points = rng.integers(0, 1 << bits, scales.shape) if zeros else np.full(scales.shape, middle)
    of_column = np.arange(k) // width
    if order:
        of_column = rng.permutation(of_column)
    weight = (codes - points[:, of_column]).astype(np.float32) * scales[:, of_column]
    tensors = {
        "weight_packed": rows_packed(codes, bits, pack),
        "weight_scale": torch.from_numpy(scales).half(),
        "weight_shape": torch.tensor([n, k]),
    }
    if zeros:  # packed along the rows
        tensors["weight_zero_point"] = rows_packed(points.T, bits, pack).T
    if order:
        tensors["weight_g_idx"] = torch.from_numpy(of_column.astype(np.int32))
    weights = {"num_bits": bits, "type": "int", "symmetric": not zeros, "group_size": size or None}
    weights["strategy"] = "group" if size else "channel"
    said = f"CT-INT{bits} {f'g{size}' if size else 'row'}{' act-order' if order else ''}"
    needed = ("weight_scale", "weight_shape", *(["weight_zero_point"] if zeros else []))
    return Case(tensors, weight, said, ct_config("pack-quantized", weights), needed)


def ct_config(form: str, weights: dict[str, Any], **more: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights}
    return {
        "quant_method": "compressed-tensors", "format": form,
        "config_groups": {"group_0": group}, "ignore": [], **more,
    }  # fmt: skip


def fp4_case(n: int, k: int, kind: str, seed: int = 0) -> Case:
    """NVFP4 and MXFP4 of compressed-tensors and ModelOpt: `ct-nvfp4`, `ct-mxfp4`, `mo-nvfp4`."""
    rng = np.random.default_rng(seed)
    size = 32 if kind == "ct-mxfp4" else 16
    codes = rng.integers(0, 16, (n, k))
    if size == 32:
        exponents = rng.integers(110, 130, (n, groups_of(k, 32))).astype(np.uint8)
        weight = fp4(codes) * spread(2.0 ** (exponents.astype(np.float32) - 127), 32, k)
        tensors = {
            "weight_packed": byte_pairs(codes), "weight_scale": torch.from_numpy(exponents),
        }  # fmt: skip
        config = ct_config("mxfp4-pack-quantized", {"num_bits": 4, "type": "float"})
        return Case(tensors, weight.astype(np.float32), "CT-MXFP4 g32", config, ())
    bytes_ = rng.integers(1, 0x7F, (n, groups_of(k, 16))).astype(np.uint8)
    scales = np.vectorize(e4m3)(bytes_).astype(np.float32)
    stored = torch.from_numpy(bytes_).view(torch.float8_e4m3fn)
    factor = np.float32(rng.random() + 0.3)
    if kind == "ct-nvfp4":
        weight = fp4(codes) * spread(scales / factor, 16, k)
        tensors = {
            "weight_packed": byte_pairs(codes), "weight_scale": stored,
            "weight_global_scale": torch.tensor([factor]),
        }  # fmt: skip
        config = ct_config("nvfp4-pack-quantized", {"num_bits": 4, "type": "float"})
        needed = ("weight_scale", "weight_global_scale")
        return Case(tensors, weight, "CT-NVFP4 g16", config, needed)
    weight = fp4(codes) * spread(scales * factor, 16, k)
    tensors = {
        "weight": byte_pairs(codes), "weight_scale": stored, "weight_scale_2": torch.tensor(factor),
        "input_scale": torch.tensor(0.5),
    }  # fmt: skip
    return Case(
        tensors, weight, "ModelOpt-NVFP4 g16", modelopt("NVFP4"), ("weight_scale", "weight_scale_2")
    )


def modelopt(algo: str, **more: Any) -> dict[str, Any]:
    return {"quant_method": "modelopt", "quant_algo": algo, "exclude_modules": [], **more}


def mo_int4(
    n: int, k: int, size: int, *, smooth: bool = False, rank: int = 0, seed: int = 0
) -> Case:
    """ModelOpt INT4-AWQ: byte [i, k] holds rows 2i and 2i + 1."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(-8, 8, (n, k))
    scales = half(rng, n, groups_of(k, size))
    weight = codes.astype(np.float32) * spread(scales, size, k)
    packed = (codes[::2] & 15) + (codes[1::2] & 15) * 16
    tensors = {"weight": torch.from_numpy(packed.astype(np.uint8)), "weight_scale": f32(scales)}
    said = ""
    if rank:
        left, right = rng.random((n, rank)), rng.random((rank, k))
        tensors |= {"svdquant_lora_b": f32(left), "svdquant_lora_a": f32(right)}
        weight = weight + left.astype(np.float32) @ right.astype(np.float32)
        said += " low rank"
    if smooth:
        factor = half(rng, k)
        tensors["pre_quant_scale"] = f32(factor)
        weight = weight * factor
        said += " pre-scaled"
    config = modelopt("W4A16_AWQ", group_size=size)
    needed = ("weight_scale", *(["svdquant_lora_a", "svdquant_lora_b"] if rank else []))
    return Case(tensors, weight, f"ModelOpt-INT4 g{size}{said}", config, needed)


SCALED_CONFIG = {
    "ct": ct_config("float-quantized", {"num_bits": 8, "type": "float"}),
    "block": {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": []},
    "modelopt": modelopt("FP8"),
}


def fp8(
    n: int, k: int, leaf: str, shape: tuple[int, ...], *, config: str = "ct", seed: int = 0,
    five: bool = False, block: tuple[int, int] | None = None,
) -> Case:  # fmt: skip
    """FP8 codes with scales of any shape; `block` names rows and columns per scale."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 0x7B if five else 0x7F, (n, k)) + 128 * rng.integers(0, 2, (n, k))
    scales = np.asarray(rng.random(shape) + 0.1, np.float32)
    values = np.vectorize(e5m2 if five else e4m3)(codes).astype(np.float32)
    if block:
        full = np.repeat(np.repeat(scales, block[0], 0)[:n], block[1], 1)[:, :k]
        said = f"{block[0]}x{block[1]}"
    else:
        size = k // shape[1] if len(shape) == 2 else k
        full = spread(scales.reshape(-1, 1), k, k) if size == k else spread(scales, size, k)
        said = "tensor" if scales.size == 1 else ("row" if size == k else f"g{size}")
    stored = torch.from_numpy(codes.astype(np.uint8))
    stored = stored.view(torch.float8_e5m2 if five else torch.float8_e4m3fn)
    tensors = {"weight": stored, leaf: torch.from_numpy(scales)}
    label = f"FP8{'-E5M2' if five else ''} {said}"
    settings = copy.deepcopy(SCALED_CONFIG.get(config))
    if settings and config == "ct":
        strategy = {"row": "channel", "tensor": "tensor"}.get(said, "group")
        settings["config_groups"]["group_0"]["weights"]["strategy"] = strategy
    return Case(tensors, values * full, label, settings, (leaf,))


def mxfp8(n: int, k: int, seed: int = 0) -> Case:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 0x7F, (n, k))
    exponents = rng.integers(110, 130, (n, groups_of(k, 32))).astype(np.uint8)
    weight = np.vectorize(e4m3)(codes) * spread(2.0 ** (exponents.astype(np.float64) - 127), 32, k)
    stored = torch.from_numpy(codes.astype(np.uint8)).view(torch.float8_e4m3fn)
    tensors = {"weight": stored, "weight_scale": torch.from_numpy(exponents)}
    config = ct_config("mxfp8-quantized", {"num_bits": 8, "type": "float"})
    return Case(tensors, weight.astype(np.float32), "MXFP8 g32", config, ("weight_scale",))


def int8(n: int, k: int, size: int, *, zeros: bool = False, seed: int = 0) -> Case:
    rng = np.random.default_rng(seed)
    codes = rng.integers(-128, 128, (n, k))
    scales = half(rng, n, groups_of(k, size or k))
    points = rng.integers(-20, 20, scales.shape) if zeros else np.zeros(scales.shape, int)
    difference = codes - spread(points, size or k, k)
    weight = difference.astype(np.float32) * spread(scales, size or k, k)
    tensors = {
        "weight": torch.from_numpy(codes.astype(np.int8)),
        "weight_scale": torch.from_numpy(scales).bfloat16(),
    }
    weight = difference.astype(np.float32) * spread(
        tensors["weight_scale"].float().numpy(), size or k, k
    )
    if zeros:
        tensors["weight_zero_point"] = torch.from_numpy(points.astype(np.int8))
    weights = {"num_bits": 8, "type": "int", "symmetric": not zeros, "group_size": size or None}
    weights["strategy"] = "group" if size else "channel"
    needed = ("weight_scale", *(["weight_zero_point"] if zeros else []))
    said = f"INT8 {f'g{size}' if size else 'row'}"
    return Case(tensors, weight, said, ct_config("int-quantized", weights), needed)
