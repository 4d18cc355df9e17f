"""Time decoding a whole head of every format against a bare copy of its float32 result.

    python benchmarks/decode.py                          # the issue's size: 262,144 x 640
    python benchmarks/decode.py --rows 32768 --only GPTQ

Both sides run in one process and alternately, with one thread, and both put their result into fresh
memory; the ratio of their best CPU times is printed, so that other work on the machine counts
little. GGUF rows are 768 wide where 640 is no whole number of blocks, with fewer of them, so that
every result has about as many weights. A ratio inside one run means something on any machine; a
time does not.

The target is 3. Above it are fields of 3, 5 and 6 bits, which straddle bytes and words: torch has
no unaligned loads, so words are first copied to overlapping pairs. So are some of ggml's types,
whose codes or scales lie in several places of a block: each step is a pass of torch's over the
codes, and of a chunk that fits the cache a third of a pass is the call itself.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
import torch
from safetensors.torch import save_file
from torch import Tensor

from audit.files.decode import decode_rows, row_bytes
from audit.files.encodings import ENCODINGS
from audit.files.ggml_blocks import DECODERS
from audit.heads import load_head

Tensors = dict[str, Tensor]

_CODES = torch.Generator().manual_seed(0)


def _bytes(*shape: int, top: int = 256) -> Tensor:
    return torch.randint(0, top, shape, dtype=torch.uint8, generator=_CODES)


def _words(rows: int, columns: int) -> Tensor:
    return _bytes(rows, columns * 4).view(torch.int32)


def _scales(*shape: int) -> Tensor:
    return torch.rand(shape, generator=_CODES).mul_(0.01).add_(0.001)


def _fp8(*shape: int) -> Tensor:
    return _bytes(*shape, top=0x7F).view(torch.float8_e4m3fn)


def _ct(n: int, k: int, bits: int, zeros: bool) -> Tensors:
    tensors = {
        "weight_packed": _words(n, math.ceil(k * bits / 32)),
        "weight_scale": _scales(n, k // 128).half(), "weight_shape": torch.tensor([n, k]),
    }  # fmt: skip
    if zeros:
        tensors["weight_zero_point"] = _words(math.ceil(n * bits / 32), k // 128)
    return tensors


def _gptq(n: int, k: int, bits: int, order: bool) -> Tensors:
    groups = torch.arange(k, dtype=torch.int32) // 128
    return {
        "qweight": _words(k * bits // 32, n), "qzeros": _words(k // 128, n * bits // 32),
        "scales": _scales(k // 128, n).half(),
        "g_idx": groups[torch.randperm(k, generator=_CODES)] if order else groups,
    }  # fmt: skip


def _bnb(n: int, k: int, nested: bool) -> Tensors:
    blocks = n * k // 64
    state = {"shape": [n, k], "blocksize": 64, "nested_blocksize": 256, "nested_offset": 0.1}
    tensors = {
        "weight": _bytes(n * k // 2, 1), "weight.quant_map": _scales(16),
        "weight.quant_state.bitsandbytes__nf4": torch.tensor(
            list(json.dumps(state).encode()), dtype=torch.uint8
        ),
    }  # fmt: skip
    if not nested:
        return tensors | {"weight.absmax": _scales(blocks)}
    return tensors | {
        "weight.absmax": _bytes(blocks), "weight.nested_absmax": _scales(math.ceil(blocks / 256)),
        "weight.nested_quant_map": _scales(256),
    }  # fmt: skip


def _hqq(n: int, k: int) -> Tensors:
    numbers = {"nbits": 4, "axis": 1, "group_size": 64}
    return {
        "W_q": _bytes(n * k // 128, 64), "scale": _scales(n * k // 64, 1),
        "zero": _scales(n * k // 64, 1), "shape": torch.tensor([n, k]),
        **{key: torch.tensor(value) for key, value in numbers.items()},
    }  # fmt: skip


_GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": True}

PACKED: dict[str, Callable[[int, int], Tensors]] = {
    "FP8 row": lambda n, k: {"weight": _fp8(n, k), "weight_scale": _scales(n, 1)},
    "FP8 128x128": lambda n, k: {
        "weight": _fp8(n, k), "weight_scale_inv": _scales(math.ceil(n / 128), math.ceil(k / 128)),
    },
    "MXFP8": lambda n, k: {"weight": _fp8(n, k), "weight_scale": _bytes(n, k // 32, top=120)},
    "INT8 row": lambda n, k: {
        "weight": _bytes(n, k).view(torch.int8), "weight_scale": _scales(n, 1),
    },
    "CT-INT8": lambda n, k: _ct(n, k, 8, False),
    "CT-INT4": lambda n, k: _ct(n, k, 4, False),
    "CT-INT4 zeros": lambda n, k: _ct(n, k, 4, True),
    "CT-INT3": lambda n, k: _ct(n, k, 3, False),
    "CT-INT5": lambda n, k: _ct(n, k, 5, False),
    "CT-INT6": lambda n, k: _ct(n, k, 6, False),
    "CT-INT2": lambda n, k: _ct(n, k, 2, False),
    "CT-NVFP4": lambda n, k: {
        "weight_packed": _bytes(n, k // 2), "weight_scale": _fp8(n, k // 16),
        "weight_global_scale": torch.tensor([3.0]),
    },
    "CT-MXFP4": lambda n, k: {
        "weight_packed": _bytes(n, k // 2), "weight_scale": _bytes(n, k // 32, top=120),
    },
    "ModelOpt-INT4": lambda n, k: {
        "weight": _bytes(n // 2, k), "weight_scale": _scales(n, k // 128),
    },
    "GPTQ-4": lambda n, k: _gptq(n, k, 4, False),
    "GPTQ-4 order": lambda n, k: _gptq(n, k, 4, True),
    "GPTQ-3": lambda n, k: _gptq(n, k, 3, False),
    "GPTQ-8": lambda n, k: _gptq(n, k, 8, False),
    "AWQ-4": lambda n, k: {
        "qweight": _words(k, n // 8), "qzeros": _words(k // 128, n // 8),
        "scales": _scales(k // 128, n).half(),
    },
    "BNB-NF4": lambda n, k: _bnb(n, k, False),
    "BNB-NF4 nested": lambda n, k: _bnb(n, k, True),
    "BNB-INT8": lambda n, k: {"weight": _bytes(n, k).view(torch.int8), "SCB": _scales(n)},
    "HQQ-4": _hqq,
}  # fmt: skip
"""Format -> tensors of a random head [n, k] by leaf name."""


@click.command()
@click.option("--rows", default=262_144, show_default=True)
@click.option("--hidden", default=640, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--only", default="", help="formats whose name holds this text")
def main(rows: int, hidden: int, rounds: int, only: str) -> None:
    """Print a table of ratios."""
    torch.set_num_threads(1)
    click.echo(f"{rows} x {hidden}, one thread; copy = torch.clone of the float32 result")
    click.echo(f"{'format':16} {'copy':>8} {'decode':>8} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for name, make in PACKED.items():
            if only in name:
                where = Path(folder) / name.replace(" ", "-")
                _report(name, _packed(where, name, make(rows, hidden)), rounds)
                (where / "model.safetensors").unlink()
    for encoding in DECODERS:
        if only in encoding:
            _report(encoding, _blocks(encoding, rows, hidden), rounds)


def _packed(folder: Path, name: str, tensors: Tensors) -> Callable[[], Tensor]:
    folder.mkdir()
    named = {f"lm_head.{leaf}": tensor for leaf, tensor in tensors.items()}
    save_file(named, folder / "model.safetensors")
    if name.startswith(("GPTQ", "CT-INT")):
        bits = int(name.split()[0][-1])
        config = _GPTQ | {"bits": bits}
        if name.startswith("CT"):
            weights = {"num_bits": bits, "group_size": 128, "symmetric": "zeros" not in name}
            groups = {"a": {"targets": ["Linear"], "weights": weights}}
            config = {"quant_method": "compressed-tensors", "config_groups": groups}
        (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
    rows = load_head(folder).rows
    return lambda: rows.tile(0, rows.count)


def _blocks(encoding: str, rows: int, hidden: int) -> Callable[[], Tensor]:
    block = ENCODINGS[encoding].block
    columns = hidden if hidden % block == 0 else -(-hidden // block) * block
    raw = _bytes(rows * hidden // columns, row_bytes(encoding, columns))
    return lambda: decode_rows(raw, encoding, columns)


def _report(name: str, decode: Callable[[], Tensor], rounds: int) -> None:
    """One line: best times in seconds, each side in turn in every round."""
    dense = decode()
    best = [math.inf, math.inf]
    for _ in range(rounds):
        for side, work in enumerate((dense.clone, decode)):
            start = time.thread_time()
            work()
            best[side] = min(best[side], time.thread_time() - start)
    click.echo(f"{name:16} {best[0]:8.3f} {best[1]:8.3f} {best[1] / best[0]:6.2f}")


if __name__ == "__main__":
    main()
