"""The files themselves: other readers open them, keys keep their types, bytes are reproducible."""

from __future__ import annotations

import json

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType, GGUFValueType
from safetensors import safe_open

from audit.errors import BadUsageError
from audit.files import open_container
from audit.forge.quantize import quantize_rows
from audit.forge.writers import Stored, copied, stored, stored_bytes, write_gguf, write_safetensors

KEYS = {
    "general.file_type": (7, GGUFValueType.UINT32, None),
    "general.alignment": (64, GGUFValueType.UINT32, None),
    "split.count": (1, GGUFValueType.UINT16, None),
    "llama.block_count": (3, GGUFValueType.UINT16, None),
    "llama.big": (2**40, GGUFValueType.UINT64, None),
    "llama.eps": (1e-5, GGUFValueType.FLOAT32, None),
    "llama.flag": (True, GGUFValueType.BOOL, None),
    "tokenizer.ggml.tokens": (
        [b"a", b"\xff\xfe", "ä".encode()], GGUFValueType.ARRAY, GGUFValueType.STRING,
    ),
    "tokenizer.ggml.scores": ([0.5, -1.0, 3.0], GGUFValueType.ARRAY, GGUFValueType.FLOAT32),
    "tokenizer.ggml.token_type": ([1, 5, 3], GGUFValueType.ARRAY, GGUFValueType.INT8),
}  # fmt: skip


def source(path):
    writer = gguf.GGUFWriter(path, "llama")
    writer.data_alignment = 64
    for name, (value, kind, items) in KEYS.items():
        writer.add_key_value(name, value, kind, items)
    writer.add_tensor("x.weight", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return open_container(path)


def test_gguf_keeps_keys_with_their_types_and_drops_what_speaks_of_other_tensors(tmp_path):
    container = source(tmp_path / "src.gguf")
    weight = torch.randn(5, 64)
    raw = quantize_rows(weight, "Q4_0")
    out = write_gguf(
        tmp_path / "out.gguf",
        [stored_bytes("output.weight", "Q4_0", raw, (5, 64)), copied(container, "x.weight"),
         stored("d2t", torch.arange(5))],
        source=container, keys={".vocab_size": 9, "note.x": 1.5}, made={"cut": "q4_0"},
    )  # fmt: skip
    reader = gguf.GGUFReader(out)
    names = set(reader.fields)
    assert not names & {"general.file_type", "general.alignment", "split.count", ".vocab_size"}
    assert "llama.vocab_size" not in names  # the source has an architecture: its keys stand
    assert reader.get_field("general.architecture").contents() == "llama"
    assert json.loads(reader.get_field("forge").contents()) == {"cut": "q4_0"}
    assert reader.get_field("general.quantization_version").contents() == 2
    for name in set(KEYS) & names:
        value, kind, items = KEYS[name]
        field = reader.get_field(name)
        assert field.types == ([kind] if items is None else [kind, items]), name
        if name != "tokenizer.ggml.tokens":
            assert field.contents() == pytest.approx(value)
    tokens = reader.get_field("tokenizer.ggml.tokens")
    assert [bytes(tokens.parts[i]) for i in tokens.data] == KEYS["tokenizer.ggml.tokens"][0]
    kinds = {t.name: (t.tensor_type, t.shape.tolist()) for t in reader.tensors}
    assert kinds["output.weight"] == (GGMLQuantizationType.Q4_0, [64, 5])
    assert kinds["d2t"] == (GGMLQuantizationType.I64, [5])
    own = open_container(out)
    assert torch.equal(own.rows_of("output.weight"), raw)
    assert own.values("x.weight").tolist() == [[0, 1, 2], [3, 4, 5]]


def test_gguf_without_a_source_gets_an_architecture_of_its_own(tmp_path):
    out = write_gguf(tmp_path / "a.gguf", [stored("x", torch.ones(3))], keys={".vocab_size": 9})
    metadata = open_container(out).metadata
    assert metadata == {"general.architecture": "head-audit", "head-audit.vocab_size": 9}


def test_safetensors_is_what_the_library_reads_and_order_changes_nothing(tmp_path):
    tensors = [
        stored("b.mask", torch.tensor([True, False, True])),
        stored("a.weight", torch.randn(3, 5).bfloat16()),
        stored("d2t", torch.arange(7)),
        stored("codes", torch.randn(2, 3).to(torch.float8_e4m3fn)),
    ]
    made = {"cut": "fp8", "b": 1, "a": None}
    one = write_safetensors(tmp_path / "1.safetensors", tensors, made=made)
    two = write_safetensors(tmp_path / "2.safetensors", tensors[::-1], made=made)
    assert one.read_bytes() == two.read_bytes()
    with safe_open(one, "pt") as file:
        assert file.metadata() == {"forge": '{"a":null,"b":1,"cut":"fp8"}'}
        for tensor in tensors:
            raw = torch.cat([t.flatten() for t in tensor.tiles()])
            assert torch.equal(file.get_tensor(tensor.name).flatten().view(torch.uint8), raw)
    assert open_container(one).entries["codes"].encoding == "F8_E4M3"


def test_a_failure_leaves_nothing_behind(tmp_path):
    def broken():
        yield torch.zeros(4, dtype=torch.uint8)
        raise RuntimeError("stop")

    bad = Stored("x", "F32", (2,), broken)
    for write, name in ((write_gguf, "x.gguf"), (write_safetensors, "x.safetensors")):
        path = tmp_path / name
        path.write_text("before")
        with pytest.raises(RuntimeError, match="stop"):
            write(path, [bad])
        assert path.read_text() == "before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.gguf", "x.safetensors"]


def test_encodings_of_the_other_container_are_refused(tmp_path):
    with pytest.raises(BadUsageError, match="GGUF has no type BOOL"):
        write_gguf(tmp_path / "x.gguf", [stored("t2d", torch.tensor([True]))])
    raw = torch.zeros(1, 18, dtype=torch.uint8)
    with pytest.raises(BadUsageError, match="safetensors has no type Q4_0"):
        write_safetensors(tmp_path / "x.safetensors", [stored_bytes("x", "Q4_0", raw, (1, 32))])
    assert list(tmp_path.iterdir()) == []
