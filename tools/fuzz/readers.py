"""Coverage-guided fuzzing of the readers: `python tools/fuzz/readers.py SEEDS -max_total_time=N`.

Needs `pip install atheris`; run by hand, never in CI. Each input is a file, or a folder of files,
that is opened, inspected and decoded whole. Only an AuditError may come out; libFuzzer's own limits
watch time and memory (-timeout, -rss_limit_mb). `--make-seeds FOLDER` writes the inputs to
start from.

The first byte of an input says what it is: a GGUF, a safetensors file, a safetensors file with an
index, or with a configuration beside it. Two parts of one input are divided by a marker.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import struct
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["audit", "gguf"]):
    from audit.errors import AuditError
    from audit.files import open_container
    from audit.heads import HeadOptions
    from audit.inspection import inspect_head

DIVIDER = b"\xff|\xff"
KINDS = ("gguf", "safetensors", "index", "config")
_SHARED_MEMORY = Path("/dev/shm")


def lay_out(data: bytes, folder: Path) -> Path:
    """Write one input's files; the path that is then opened."""
    kind = KINDS[data[0] % len(KINDS)] if data else "gguf"
    first, _, second = data[1:].partition(DIVIDER)
    if kind == "gguf":
        return _write(folder / "model.gguf", data[1:])
    if kind == "safetensors":
        return _write(folder / "model.safetensors", data[1:])
    if kind == "index":
        _write(folder / "model-00001-of-00002.safetensors", second)
        _write(folder / "model.safetensors.index.json", first)
        return folder
    _write(folder / "model.safetensors", second)
    _write(folder / "config.json", first)
    return folder


def use_everything(path: Path) -> None:
    """Open, inspect and decode. Whatever is wrong with the files must be told by an AuditError."""
    with contextlib.suppress(AuditError):
        container = open_container(path)
        for name in container.entries:
            for read in (container.bytes_of, container.rows_of, container.values):
                with contextlib.suppress(AuditError):
                    read(name)
    with contextlib.suppress(AuditError):
        inspect_head(path, HeadOptions())


def one_input(data: bytes) -> None:
    """What libFuzzer calls."""
    place = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
    folder = Path(tempfile.mkdtemp(dir=place, prefix="audit-fuzz-"))
    try:
        use_everything(lay_out(data, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_seeds(folder: Path) -> None:
    """Valid inputs of every kind."""
    import numpy as np
    import torch
    from gguf import GGUFWriter
    from safetensors.torch import save

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        "lm_head.weight": torch.ones(8, 32, dtype=torch.bfloat16),
        "model.norm.weight": torch.ones(32),
        "d2t": torch.arange(8),
    }
    plain = save(tensors, metadata={"format": "pt"})
    config = {"model_type": "llama", "hidden_size": 32, "vocab_size": 8}
    shard = "model-00001-of-00002.safetensors"
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(tensors, shard)}
    path = folder / "tmp.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_token_list(["a", "b", "c"])
    writer.add_final_logit_softcapping(30.0)
    writer.add_tensor("output.weight", np.ones((8, 32), np.float32))
    writer.add_tensor("output_norm.weight", np.ones(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    _write(folder / "gguf", b"\x00" + path.read_bytes())
    path.unlink()
    _write(folder / "safetensors", b"\x01" + plain)
    _write(folder / "index", b"\x02" + json.dumps(index).encode() + DIVIDER + plain)
    _write(folder / "config", b"\x03" + json.dumps(config).encode() + DIVIDER + plain)
    _write(folder / "short", b"\x01" + struct.pack("<Q", 2) + b"{}")


def _write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def main() -> None:
    """Entry point."""
    if "--make-seeds" in sys.argv:
        make_seeds(Path(sys.argv[-1]))
        return
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
