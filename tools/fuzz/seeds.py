"""Valid inputs for the fuzzer of the readers, and the words that its mutations may use.

One seed for every kind of file and for every packed format, so that a mutation of one byte reaches
each decoder and each reader of a configuration. Needs no atheris.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter, quants
from safetensors.torch import save
from torch import Tensor

DIVIDER = b"\xff|\xff"
_MODEL, _CONFIG = "model.safetensors", "config.json"
KINDS: tuple[tuple[str, ...], ...] = (
    ("model.gguf",),
    (_MODEL,),
    ("model.safetensors.index.json", "model-00001-of-00001.safetensors"),
    (_CONFIG, _MODEL),
    (_CONFIG, "hf_quant_config.json", _MODEL),
    (_CONFIG, "quantize_config.json", _MODEL),
    (_CONFIG, "tokenizer.json", _MODEL),
    (_CONFIG, "generation_config.json", _MODEL),
    ("model-00001-of-00002.gguf", "model-00002-of-00002.gguf"),
)
"""Files of one input, by its first byte; several of them are opened as a folder."""

_N, _K = 16, 128
_WORDS = (
    "lm_head.weight", "model.embed_tokens.weight", "output.weight", "token_embd.weight",
    "dtype", "shape", "data_offsets", "__metadata__", "weight_map", "F32", "BF16", "F8_E4M3",
    "U8", "I32", "BOOL", "quantization_config", "quant_method", "config_groups", "num_bits",
    "group_size", "targets", "Linear", "ignore", "re:", "tie_word_embeddings", "text_config",
    "vocab_size", "hidden_size", "mtp_num_hidden_layers", "num_nextn_predict_layers",
    "eos_token_id", "suppress_tokens", "added_tokens", "general.alignment", "general.architecture",
    "tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "split.no", "split.count",
    "llama.nextn_predict_layers", "weight_scale", "weight_packed", "weight_zero_point", "g_idx",
    "qweight", "qzeros", "scales", "quant_state.bitsandbytes__nf4", "absmax", "tensor_names",
    "W_q", "d2t", "t2d", "null", "true", "1e999", "-1", "9223372036854775808", "[[[[", "}}}}",
)  # fmt: skip
_NUMBERS = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)


def write_all(folder: Path) -> None:
    """One file per seed into `folder`, and `readers.dict` beside the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in all_seeds():
        (folder / name).write_bytes(data)
    raw = [word.encode() for word in _WORDS]
    raw += [number.to_bytes(8, "little") for number in _NUMBERS]
    lines = ['"' + "".join(f"\\x{byte:02x}" for byte in word) + '"' for word in raw]
    (folder.parent / "readers.dict").write_text("\n".join(lines) + "\n")


def all_seeds() -> Iterator[tuple[str, bytes]]:
    """Name and bytes of every seed."""
    plain = save(_plain(), metadata={"format": "pt"})
    config = {"model_type": "llama", "hidden_size": _K, "vocab_size": _N, "rms_norm_eps": 1e-6}
    shard = KINDS[2][1]
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(_plain(), shard)}
    yield "gguf", _seed(0, _gguf(("F32",)))
    yield "gguf-blocks", _seed(0, _gguf(("Q4_0", "Q8_0", "Q5_1", "F16", "BF16")))
    yield "safetensors", _seed(1, plain)
    yield "empty", _seed(1, b"\x02" + bytes(7) + b"{}")
    yield "index", _seed(2, _json(index), plain)
    yield "config", _seed(3, _json(config | {"tie_word_embeddings": False}), plain)
    yield "tokenizer", _seed(6, _json(config | {"eos_token_id": [1]}), _json(_tokenizer()), plain)
    generation = {"eos_token_id": [1, 2], "suppress_tokens": [3]}
    yield "generation", _seed(7, _json(config), _json(generation), plain)
    for name, tensors, settings in _packed():
        head = save({f"lm_head.{leaf}": tensor for leaf, tensor in tensors.items()})
        yield f"packed-{name}", _seed(3, _json(config | {"quantization_config": settings}), head)
    yield "modelopt", _seed(4, _json(config), _json(_modelopt()), save(_fp8("lm_head.")))
    yield "gptq-beside", _seed(5, _json(config), _json({"bits": 4, "lm_head": True}), plain)
    parts = [_gguf(("F32",), split=(number, 2)) for number in range(2)]
    yield "split", _seed(8, *parts)


def _seed(kind: int, *parts: bytes) -> bytes:
    return bytes([kind]) + DIVIDER.join(parts)


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _plain() -> dict[str, Tensor]:
    return {
        "lm_head.weight": _bytes(_N, _K).bfloat16(),
        "model.norm.weight": torch.ones(_K),
        "d2t": torch.arange(_N),
        "t2d": torch.ones(_N, dtype=torch.bool),
    }


def _bytes(*shape: int, top: int = 120) -> Tensor:
    return (torch.arange(int(np.prod(shape))) % top).to(torch.uint8).view(shape)


def _words(rows: int, columns: int) -> Tensor:
    return _bytes(rows, columns * 4).view(torch.int32)


def _fp8(prefix: str = "") -> dict[str, Tensor]:
    codes = _bytes(_N, _K).view(torch.float8_e4m3fn)
    return {f"{prefix}weight": codes, f"{prefix}weight_scale": torch.ones(_N, 1)}


def _modelopt() -> dict[str, Any]:
    return {"quantization": {"quant_algo": "FP8", "exclude_modules": ["*.mlp"]}}


def _packed() -> Iterator[tuple[str, Mapping[str, Tensor], Mapping[str, Any]]]:
    """Format, tensors by leaf name, `quantization_config`."""
    weights = {"num_bits": 4, "group_size": 32, "symmetric": False, "strategy": "group"}
    compressed = {
        "quant_method": "compressed-tensors",
        "ignore": ["re:.*mlp.*"],
        "config_groups": {"a": {"targets": ["Linear"], "weights": weights}},
    }
    half = torch.ones(_N, _K // 32, dtype=torch.float16)
    yield "ct4", {
        "weight_packed": _words(_N, _K // 8), "weight_scale": half,
        "weight_zero_point": _words(_N // 8, _K // 32), "weight_shape": torch.tensor([_N, _K]),
    }, compressed  # fmt: skip
    yield "ct-nvfp4", {
        "weight_packed": _bytes(_N, _K // 2), "weight_global_scale": torch.ones(1),
        "weight_scale": _bytes(_N, _K // 16).view(torch.float8_e4m3fn),
    }, {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}  # fmt: skip
    yield "fp8", _fp8(), {"quant_method": "fp8"}
    yield "gptq", {
        "qweight": _words(_K // 8, _N), "qzeros": _words(_K // 32, _N // 8),
        "scales": half.T.contiguous(), "g_idx": (torch.arange(_K) // 32).int(),
    }, {"quant_method": "gptq", "bits": 4, "group_size": 32, "lm_head": True}  # fmt: skip
    yield "awq", {
        "qweight": _words(_K, _N // 8), "qzeros": _words(_K // 32, _N // 8),
        "scales": half.T.contiguous(),
    }, {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}  # fmt: skip
    state = {"shape": [_N, _K], "blocksize": 64, "nested_blocksize": 256, "nested_offset": 0.5}
    text = torch.tensor(list(_json(state | {"dtype": "bfloat16"})), dtype=torch.uint8)
    yield "bnb4", {
        "weight": _bytes(_N * _K // 2, 1), "weight.quant_map": torch.linspace(-1, 1, 16),
        "weight.quant_state.bitsandbytes__nf4": text, "weight.absmax": _bytes(_N * _K // 64),
        "weight.nested_absmax": torch.ones(1), "weight.nested_quant_map": torch.ones(256),
    }, {"quant_method": "bitsandbytes", "load_in_4bit": True}  # fmt: skip
    yield "hqq", {
        "W_q": _bytes(_N // 2 * _K // 64, 64), "scale": torch.ones(_N * _K // 64, 1),
        "zero": torch.ones(_N * _K // 64, 1), "shape": torch.tensor([_N, _K]),
        "nbits": torch.tensor(4), "axis": torch.tensor(1), "group_size": torch.tensor(64),
    }, {"quant_method": "hqq"}  # fmt: skip


def _tokenizer() -> dict[str, Any]:
    words = {word: i for i, word in enumerate(["<s>", "</s>", "<0x0A>", "a", "7", " ", "é", "中"])}
    added = [{"id": 1, "content": "</s>", "special": True}, {"id": 8, "content": "<|im_end|>"}]
    decoder = {"type": "Sequence", "decoders": [{"type": "ByteLevel"}]}
    return {"model": {"type": "BPE", "vocab": words}, "added_tokens": added, "decoder": decoder}


def _gguf(kinds: tuple[str, ...], split: tuple[int, int] | None = None) -> bytes:
    """A small GGUF whose head, and whose further tensors, are of these types."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "seed.gguf"
        writer = GGUFWriter(path, "llama")
        if split:
            writer.add_uint16("split.no", split[0])
            writer.add_uint16("split.count", split[1])
            writer.add_int32("split.tensors.count", 4)
        writer.add_block_count(1)
        writer.add_token_list(["a", "b", "<0x0A>"])
        writer.add_token_types([1, 3, 6])
        writer.add_final_logit_softcapping(30.0)
        names = ["output.weight", *(f"blk.0.t{i}.weight" for i in range(1, len(kinds)))]
        names = names if not split or split[0] else ["token_embd.weight"]
        for name, kind in zip(names, kinds, strict=False):
            type_ = GGMLQuantizationType[kind]
            data = quants.quantize(_bytes(_N, 64).float().numpy(), type_)
            writer.add_tensor(name, data, raw_dtype=type_)
        writer.add_tensor(f"norm{split[0] if split else 0}", np.ones(64, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path.read_bytes()
