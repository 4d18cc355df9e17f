"""Encoded rows to float32, whatever file they came from.

Leaves out scale tensors: an FP8 or integer weight means nothing without them, and applying them is
the head loader's business. Block arithmetic is in `ggml_blocks`; sizes are in `encodings`.
"""

from __future__ import annotations

import numpy as np
import torch
from gguf import quants
from gguf.constants import GGMLQuantizationType
from torch import Tensor

from audit.errors import MismatchError, UnsupportedFormatError
from audit.files.chunks import CPU_CHUNK, in_chunks
from audit.files.encodings import (
    ENCODINGS,
    INTEGERS,
    bits_per_weight,
    is_float_encoding,
    row_bytes,
)
from audit.files.ggml_blocks import DECODERS

__all__ = ["bits_per_weight", "decode_rows", "decode_vector", "is_float_encoding", "row_bytes"]

FLOAT_DTYPES: dict[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F8_E8M0": torch.float8_e8m0fnu,
}

_DEVICE_CHUNK = 1 << 24
_SCALES_AHEAD = 8
"""Chunks whose scales are prepared together; they stay below torch's grain too."""


def decode_rows(
    raw: Tensor, encoding: str, columns: int, device: str | torch.device = "cpu"
) -> Tensor:
    """Decode `raw` uint8 [n, row_bytes] to a new float32 [n, columns] on `device`.

    Block scales are applied, separate scale tensors are not. Values that are NaN or infinite in
    the file stay so. Raises UnsupportedFormatError for an encoding without a decoder and
    MismatchError when `columns` does not fit the bytes.
    """
    expected = row_bytes(encoding, columns)
    if raw.dtype != torch.uint8 or raw.ndim != 2 or raw.shape[1] != expected:
        raise MismatchError(
            f"{columns} columns of {encoding} take {expected} bytes, the rows are "
            f"{raw.dtype} {list(raw.shape)}"
        )
    if encoding in FLOAT_DTYPES:
        return _decode_floats(raw, FLOAT_DTYPES[encoding], torch.device(device))
    if encoding in DECODERS:
        return _decode_blocks(raw, encoding, columns, torch.device(device))
    return _decode_by_gguf(raw, encoding, columns).to(device)


def decode_vector(raw: Tensor, encoding: str) -> Tensor:
    """Decode `raw` uint8 [nbytes] to float32 [values]: one row of whatever length it has."""
    packing = ENCODINGS[encoding]
    return decode_rows(raw.unsqueeze(0), encoding, len(raw) // packing.size * packing.block)[0]


def aligned_view(raw: Tensor, dtype: torch.dtype) -> Tensor:
    """`raw` uint8 [..., bytes] seen as `dtype`; copied first only where the map is not aligned."""
    raw = raw.contiguous()
    if raw.numel() == 0:
        return torch.empty(*raw.shape[:-1], raw.shape[-1] // dtype.itemsize, dtype=dtype)
    if raw.data_ptr() % dtype.itemsize or raw.storage_offset() % dtype.itemsize:
        raw = raw.clone()
    return raw.view(dtype)


def _decode_floats(raw: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    typed = aligned_view(raw, dtype).to(device)
    # float32 input must be copied too: the map is not ours to hand out as a result.
    return typed.to(torch.float32, copy=True)


def _decode_blocks(raw: Tensor, encoding: str, columns: int, device: torch.device) -> Tensor:
    packing, decoder = ENCODINGS[encoding], DECODERS[encoding]
    blocks = raw.to(device).reshape(raw.numel() // packing.size, packing.size)
    out = torch.empty(len(raw), columns, dtype=torch.float32, device=device)
    values = out.view(-1, packing.block)

    on_cpu = device.type == "cpu"
    few = max(1, CPU_CHUNK // packing.block) if on_cpu else len(blocks)

    def decode_range(start: int, stop: int) -> None:
        scales = decoder.prepare(blocks[start:stop])
        for at in range(start, stop, few):
            end = min(at + few, stop)
            own = (scale[at - start : end - start] for scale in scales)
            decoder.fill(blocks[at:end], values[at:end], *own)

    if on_cpu:
        in_chunks(len(blocks), packing.block, decode_range, times=_SCALES_AHEAD)
        return out
    chunk = _DEVICE_CHUNK // packing.block
    for start in range(0, len(blocks), chunk):
        decode_range(start, min(start + chunk, len(blocks)))
    return out


def _decode_by_gguf(raw: Tensor, encoding: str, columns: int) -> Tensor:
    """The general path, through numpy: some 20 times slower than `ggml_blocks`."""
    if encoding in INTEGERS or encoding not in GGMLQuantizationType.__members__:
        raise UnsupportedFormatError(
            f"values of type {encoding} can not be decoded as weights",
            hint="packed integers need the scale tensors of their quantization format",
        )
    if raw.numel() == 0:
        return torch.empty(len(raw), columns, dtype=torch.float32)
    try:
        # Infinite and NaN scales are data here; the head loader reports them with their rows.
        with np.errstate(all="ignore"):
            values = quants.dequantize(
                raw.cpu().contiguous().numpy(), GGMLQuantizationType[encoding]
            )
    except NotImplementedError as error:
        raise UnsupportedFormatError(
            f"the installed gguf package can not decode {encoding}",
            hint="convert the tensor to another type with llama-quantize",
        ) from error
    return torch.from_numpy(values)
