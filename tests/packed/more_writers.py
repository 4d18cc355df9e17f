"""Writers of GPTQ, AWQ, bitsandbytes, torchao and HQQ files; see `writers`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

from tests.packed.bits import byte_pairs, e4m3, fp4, rows_packed, spread, stream
from tests.packed.writers import Case, f32, groups_of, half

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Column of a group of eight that lies in nibble 0, 1, 2, ... of its word."""


def gptq(
    n: int, k: int, bits: int, size: int, *, version: int = 1, order: bool = False,
    sym: bool = False, seed: int = 0,
) -> Case:  # fmt: skip
    """GPTQ: codes packed along the input, zero points along the output."""
    rng = np.random.default_rng(seed)
    width = size if size > 0 else k
    groups = groups_of(k, width)
    codes = rng.integers(0, 1 << bits, (n, k))
    low = 1 if version == 1 else 0
    points = rng.integers(low, 1 << bits, (n, groups))
    if sym:
        points[:] = 1 << (bits - 1)
    scales = half(rng, n, groups)
    of_column = np.arange(k) // width
    if order:
        of_column = rng.permutation(of_column)
    weight = scales[:, of_column] * (codes - points[:, of_column]).astype(np.float32)
    tensors = {
        "qweight": rows_packed(codes, bits).T,
        "qzeros": rows_packed((points - low).T, bits),
        "scales": torch.from_numpy(scales.T).half(),
        "g_idx": torch.from_numpy(of_column.astype(np.int32)),
    }
    config = {
        "quant_method": "gptq", "bits": bits, "group_size": size, "desc_act": order, "sym": sym,
        "lm_head": True, "checkpoint_format": "gptq" if version == 1 else "gptq_v2",
    }  # fmt: skip
    said = "row" if groups == 1 else f"g{size}"
    label = f"GPTQ-{bits} {said}{' act-order' if order else ''} v{version}"
    return Case(tensors, weight, label, config, ("scales", "qzeros"))


def awq(n: int, k: int, size: int, seed: int = 0) -> Case:
    """AWQ GEMM: eight outputs per word in AutoAWQ's order."""
    rng = np.random.default_rng(seed)
    codes, groups = rng.integers(0, 16, (n, k)), groups_of(k, size)
    points, scales = rng.integers(0, 16, (n, groups)), half(rng, n, groups)

    def packed(values: np.ndarray) -> torch.Tensor:
        words = np.empty((values.shape[1], n // 8), np.int32)
        for row in range(values.shape[1]):
            for word in range(n // 8):
                eight = [values[8 * word + column, row] for column in AWQ_ORDER]
                words[row, word] = stream(np.array(eight), 4)[0]
        return torch.from_numpy(words)

    tensors = {
        "qweight": packed(codes), "qzeros": packed(points),
        "scales": torch.from_numpy(scales.T).half(),
    }  # fmt: skip
    difference = (codes - spread(points, size, k)).astype(np.float32)
    config = {
        "quant_method": "awq", "bits": 4, "group_size": size, "zero_point": True, "version": "gemm",
    }  # fmt: skip
    needed = ("scales", "qzeros")
    return Case(tensors, spread(scales, size, k) * difference, f"AWQ-4 g{size}", config, needed)


def bnb4(n: int, k: int, block: int, kind: str, *, nested: bool = False, seed: int = 0) -> Case:
    """bitsandbytes 4-bit: high nibble first over the flattened matrix."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 16, n * k)
    values = np.sort(rng.standard_normal(16)).astype(np.float32)
    blocks = groups_of(n * k, block)
    state: dict[str, Any] = {
        "quant_type": kind, "blocksize": block, "dtype": "bfloat16", "shape": [n, k],
    }  # fmt: skip
    tensors = {
        "weight": byte_pairs(codes.reshape(1, -1), high_first=True).reshape(-1, 1),
        "weight.quant_map": f32(values),
    }
    if nested:
        inner = rng.integers(0, 256, blocks)
        code = np.linspace(-1, 1, 256).astype(np.float32)
        outer, offset = (rng.random(groups_of(blocks, 256)) + 1).astype(np.float32), 0.625
        absmax = code[inner] * np.repeat(outer, 256)[:blocks] + np.float32(offset)
        state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": offset}
        tensors |= {
            "weight.absmax": torch.from_numpy(inner.astype(np.uint8)),
            "weight.nested_absmax": f32(outer), "weight.nested_quant_map": f32(code),
        }  # fmt: skip
    else:
        absmax = (rng.random(blocks) + 0.5).astype(np.float32)
        tensors["weight.absmax"] = f32(absmax)
    text = np.frombuffer(json.dumps(state).encode(), np.uint8).copy()
    key = f"weight.quant_state.bitsandbytes__{kind}"
    tensors[key] = torch.from_numpy(text)
    weight = values[codes] * absmax[np.arange(n * k) // block]
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False}
    needed = ["weight.quant_map", "weight.absmax", key]
    needed += ["weight.nested_absmax", "weight.nested_quant_map"] if nested else []
    label = f"BNB-{kind.upper()} g{block}{' nested' if nested else ''}"
    return Case(tensors, weight.reshape(n, k), label, config, tuple(needed))


def bnb8(n: int, k: int, seed: int = 0) -> Case:
    rng = np.random.default_rng(seed)
    codes = rng.integers(-127, 128, (n, k))
    largest = (rng.random(n) + 0.5).astype(np.float32)
    tensors = {
        "weight": torch.from_numpy(codes.astype(np.int8)), "SCB": f32(largest),
        "weight_format": torch.tensor(0, dtype=torch.uint8),
    }  # fmt: skip
    weight = codes.astype(np.float32) * (largest / np.float32(127))[:, None]
    config = {"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False}
    return Case(tensors, weight, "BNB-INT8 row", config, ("SCB",))


Parts = tuple[dict[str, torch.Tensor], np.ndarray, dict[str, Any], str]
"""Fields of a torchao class, its weights, its attributes, and the product's name for it."""


def _ao_rows(rng: np.random.Generator, n: int, k: int, kind: str) -> Parts:
    scales, codes = half(rng, n, 1), rng.integers(0, 0x7F, (n, k)).astype(np.uint8)
    attributes = {"block_size": [1, k]}
    if kind == "Float8Tensor":
        stored = torch.from_numpy(codes).view(torch.float8_e4m3fn)
        weight = np.vectorize(e4m3)(codes).astype(np.float32) * scales
        return {"qdata": stored, "scale": f32(scales)}, weight, attributes, "torchao-FP8 row"
    stored = torch.from_numpy(codes.astype(np.int8))
    weight = codes.astype(np.float32) * scales
    return {"qdata": stored, "scale": f32(scales)}, weight, attributes, "torchao-INT8 row"


def _ao_ints(rng: np.random.Generator, n: int, k: int, kind: str) -> Parts:
    size = 16
    scales, codes = half(rng, n, k // size), rng.integers(-8, 8, (n, k))
    attributes: dict[str, Any] = {"block_size": [1, size]}
    if kind == "Int4Tensor":  # scales and float zeros lie transposed
        shifts = half(rng, n, k // size)
        weight = codes.astype(np.float32) * spread(scales, size, k) + spread(shifts, size, k)
        fields = {"qdata": byte_pairs(codes & 15), "scale": f32(scales.T)}
        return fields | {"zero_point": f32(shifts.T)}, weight, attributes, "torchao-INT4 g16"
    points = rng.integers(-4, 4, scales.shape)
    weight = (codes - spread(points, size, k)).astype(np.float32) * spread(scales, size, k)
    attributes["target_dtype"] = {"_type": "torch.dtype", "_data": "int4"}
    fields = {"qdata": torch.from_numpy(codes.astype(np.int8)), "scale": f32(scales)}
    fields["zero_point"] = torch.from_numpy(points.astype(np.int8))
    return fields, weight, attributes, "torchao-INT4 g16"


def _ao_fp4(rng: np.random.Generator, n: int, k: int, kind: str) -> Parts:
    codes = rng.integers(0, 16, (n, k))
    if kind == "NVFP4Tensor":
        bytes_ = rng.integers(1, 0x7F, (n, k // 16)).astype(np.uint8)
        scales = np.vectorize(e4m3)(bytes_).astype(np.float32) * np.float32(0.3)
        stored = torch.from_numpy(bytes_).view(torch.float8_e4m3fn)
        fields = {"qdata": byte_pairs(codes), "scale": stored}
        fields["per_tensor_scale"] = torch.tensor(0.3)
        attributes = {"block_size": 16, "is_swizzled_scales": False}
        return fields, fp4(codes) * spread(scales, 16, k), attributes, "torchao-NVFP4 g16"
    bytes_ = rng.integers(110, 130, (n, k // 32)).astype(np.uint8)
    scales = 2.0 ** (bytes_.astype(np.float32) - 127)
    stored = torch.from_numpy(bytes_).view(torch.float8_e8m0fnu)
    element = {"_type": "torch.dtype", "_data": "float4_e2m1fn_x2"}
    weight = fp4(codes) * spread(scales, 32, k)
    attributes = {"block_size": 32, "elem_dtype": element}
    return {"qdata": byte_pairs(codes), "scale": stored}, weight, attributes, "torchao-MXFP4 g32"


def torchao(n: int, k: int, kind: str, seed: int = 0) -> Case:
    """torchao's flattened tensor classes; `kind` is the class, `MXTensor` with FP4."""
    makers = {"NVFP4Tensor": _ao_fp4, "MXTensor": _ao_fp4, "Int4Tensor": _ao_ints}
    makers["IntxUnpackedToInt8Tensor"] = _ao_ints
    fields, weight, attributes, label = makers.get(kind, _ao_rows)(
        np.random.default_rng(seed), n, k, kind
    )
    described = {"_type": kind, "_data": attributes, "_tensor_data_names": list(fields)}
    metadata = {"tensor_names": json.dumps(["lm_head.weight"])}
    metadata["lm_head.weight"] = json.dumps(described)
    tensors = {f"_weight_{name}": tensor for name, tensor in fields.items()}
    needed = ["_weight_scale", *(["_weight_zero_point"] if kind == "Int4Tensor" else [])]
    config = {"quant_method": "torchao"}
    weight = weight.astype(np.float32)
    return Case(tensors, weight, label, config, tuple(needed), metadata)


HQQ_PER = {8: 1, 4: 2, 2: 4, 1: 8, 3: 10}


def hqq(n: int, k: int, bits: int, size: int, axis: int = 1, seed: int = 0) -> Case:
    """HQQ: rows of the reshaped matrix share words, the first part in the highest bits."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 1 << bits, (n, k))
    shaped = codes.reshape(-1, size) if axis else codes.reshape(size, -1)
    wanted = (len(shaped), 1) if axis else (1, shaped.shape[1])
    scales, points = half(rng, *wanted), half(rng, *wanted) * 100
    weight = ((shaped.astype(np.float32) - points) * scales).reshape(n, k)
    per = HQQ_PER[bits]
    step = groups_of(len(shaped), per)
    full = np.zeros((step * per, shaped.shape[1]), np.int64)
    full[: len(shaped)] = shaped
    words = sum(full[i * step : (i + 1) * step] << (bits * (per - 1 - i)) for i in range(per))
    stored = words.astype(np.int32) if bits == 3 else words.astype(np.uint8)
    tensors = {
        "W_q": torch.from_numpy(stored), "scale": f32(scales), "zero": f32(points),
        "nbits": torch.tensor(bits, dtype=torch.int32), "axis": torch.tensor(axis),
        "group_size": torch.tensor(size), "shape": torch.tensor([n, k]),
        "quant_scale": torch.tensor(0, dtype=torch.uint8),
        "quant_zero": torch.tensor(0, dtype=torch.uint8),
    }  # fmt: skip
    label = f"HQQ-{bits} g{size}{'' if axis else ' axis 0'}"
    config = {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": bits}}}
    return Case(tensors, weight, label, config, ("scale", "zero", "nbits", "shape", "axis"))
