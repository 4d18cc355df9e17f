"""Small head files for the tests of the loaders."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

V, H = 16, 32


def weights(rows: int = V, columns: int = H, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def safetensors(path: Path, metadata: dict[str, str] | None = None, **tensors: Tensor) -> Path:
    """Tensor names use __ for a dot."""
    named = {name.replace("__", "."): tensor.contiguous() for name, tensor in tensors.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(named, path, metadata=metadata)
    return path


def model_folder(folder: Path, config: dict[str, object], **tensors: Tensor) -> Path:
    safetensors(folder / "model.safetensors", **tensors)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def gguf_file(
    path: Path,
    tensors: dict[str, np.ndarray | Tensor],
    arch: str = "llama",
    kinds: dict[str, gguf.GGMLQuantizationType] | None = None,
    **values: object,
) -> Path:
    """A GGUF file; `kinds` quantizes tensors, key-values use __ for a dot."""
    writer = gguf.GGUFWriter(path, arch)
    for key, value in values.items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        if isinstance(value, list):
            writer.add_array(key.replace("__", "."), value)
        else:
            add(key.replace("__", "."), value)
    for name, tensor in tensors.items():
        data = tensor.numpy() if isinstance(tensor, Tensor) else tensor
        kind = (kinds or {}).get(name)
        if kind is not None:
            data = gguf.quants.quantize(data, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
