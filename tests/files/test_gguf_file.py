"""GGUF headers: what the library writes is read, what does not fit the file is refused."""

from __future__ import annotations

import struct
import time

import gguf
import numpy as np
import pytest
import torch
from file_writers import (
    ARRAY,
    F32,
    STRING,
    U8,
    U32,
    U64,
    Raw,
    finish,
    gguf_bytes,
    key_value,
    string,
    u32,
)

from audit.errors import AuditError, UnreadableError, UnsupportedFormatError
from audit.files.opening import open_container


@pytest.fixture
def opened(tmp_path):
    def open_bytes(data: bytes):
        path = tmp_path / "model.gguf"
        path.write_bytes(data)
        return open_container(path)

    return open_bytes


@pytest.fixture
def refused(opened):
    def error_of(data: bytes) -> AuditError:
        with pytest.raises(AuditError) as caught:
            opened(data)
        assert "model.gguf" in str(caught.value)
        return caught.value

    return error_of


def test_what_the_library_writes(tmp_path):
    path = tmp_path / "x.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 3)
    writer.add_float32("llama.eps", 0.5)
    writer.add_bool("llama.flag", True)
    writer.add_int64("llama.long", -(2**40))
    writer.add_array("tokens", ["a", "ü", ""])
    writer.add_array("scores", [0.5, -1.0])
    writer.add_array("types", [1, 6])
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    writer.add_tensor("w", weights)
    writer.add_tensor("d2t", np.arange(5, dtype=np.int64))
    finish(writer)
    container = open_container(path)
    assert container.format == "gguf"
    assert container.config is None
    assert container.entries["w"].shape == (3, 4)
    assert torch.equal(container.values("w"), torch.from_numpy(weights))
    assert container.values("d2t").tolist() == [0, 1, 2, 3, 4]
    expected = {
        "general.architecture": "llama",
        "llama.block_count": 3,
        "llama.eps": 0.5,
        "llama.flag": True,
        "llama.long": -(2**40),
        "tokens": ["a", "ü", ""],
        "scores": [0.5, -1.0],
        "types": [1, 6],
    }
    assert {key: container.metadata[key] for key in expected} == expected


def test_tokens_that_are_not_utf8_stay_distinct_and_printable(opened):
    tokens = struct.pack("<IQ", STRING, 2) + string(b"\xe2\x96") + string(b"\xe2\x97")
    found = opened(gguf_bytes(values=[key_value("tokens", ARRAY, tokens)])).metadata["tokens"]
    assert found == ["\\xe2\\x96", "\\xe2\\x97"]


def test_unknown_type_fails_only_when_asked_for(opened):
    tensors = [Raw("strange", (32, 2), 97, 0), Raw("plain", (8,), 0, 64)]
    container = opened(gguf_bytes(tensors, data=bytes(64) + np.ones(8, "<f4").tobytes()))
    strange = container.entries["strange"]
    assert (strange.encoding, strange.nbytes, strange.shape) == ("GGML_97", None, (2, 32))
    assert container.values("plain").tolist() == [1.0] * 8
    for method in (container.bytes_of, container.rows_of, container.values):
        with pytest.raises(UnsupportedFormatError, match=r"strange.*ggml type 97"):
            method("strange")


def test_type_42_is_named_even_where_gguf_does_not_know_it(opened):
    container = opened(gguf_bytes([Raw("w", (128, 2), 42, 0)], data=bytes(72)))
    assert container.entries["w"].encoding == "Q2_0"
    assert container.entries["w"].nbytes == 72


def test_q2_0_of_a_fork_gets_a_hint(refused):
    error = refused(gguf_bytes([Raw("w", (128, 2), 42, 0)], data=bytes(68)))
    assert "4 bytes of tensor w are missing" in str(error)
    assert "fork" in error.hint


def test_empty_tensor_and_scalar(opened):
    tensors = [Raw("none", (0, 3), 0, 0), Raw("one", (), 0, 0)]
    container = opened(gguf_bytes(tensors, data=struct.pack("<f", 2.5)))
    assert container.values("none").shape == (3, 0)
    assert container.values("one").item() == 2.5


def array_in_array(depth: int) -> bytes:
    inner = struct.pack("<IQ", U8, 1) + b"\x07"
    for _ in range(depth):
        inner = struct.pack("<IQ", ARRAY, 1) + inner
    return key_value("deep", ARRAY, inner)


def test_arrays_nest_within_bounds(opened, refused):
    assert opened(gguf_bytes(values=[array_in_array(2)])).metadata["deep"] == [[[7]]]
    assert "nests arrays deeper" in str(refused(gguf_bytes(values=[array_in_array(9)])))
    assert "nests arrays deeper" in str(refused(gguf_bytes(values=[array_in_array(5000)])))


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
def test_other_alignments(opened, alignment):
    values = [u32("general.alignment", alignment)]
    data = gguf_bytes([Raw("x", (1,), 0, 0)], values, struct.pack("<f", 4.0), alignment=alignment)
    assert opened(data).values("x").item() == 4.0


@pytest.mark.parametrize("version", [1, 4, 2**31])
def test_other_versions(refused, version):
    error = refused(gguf_bytes(version=version))
    assert isinstance(error, UnsupportedFormatError)
    assert f"version {version}" in str(error)


def test_big_endian(refused):
    error = refused(gguf_bytes(order=">"))
    assert isinstance(error, UnsupportedFormatError)
    assert "big-endian" in str(error)


W = Raw("w", (8,), 0, 0)
HUGE = struct.pack("<Q", 2**64 - 1)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"GGU", "bytes of the magic number are missing"),
        (b"GGML" + bytes(40), "is not GGUF"),
        (b"GGUF\x03\0\0\0", "bytes of the number of tensors are missing"),
        (gguf_bytes(counts=(2**60, 0)), "claims 1152921504606846976 tensors"),
        (gguf_bytes(counts=(0, 2**63)), "claims 9223372036854775808 key-values"),
        (gguf_bytes(counts=(2, 1), values=[array_in_array(1)]), "2 tensor infos are missing"),
        (gguf_bytes(values=[HUGE + bytes(40)]), "bytes of a key are missing"),
        (gguf_bytes(values=[key_value("k", STRING, HUGE)]), "bytes of key k are missing"),
        (gguf_bytes(values=[key_value("k", 13, b"")]), "unknown value type 13"),
        (gguf_bytes(values=[key_value(b"\xff\xfe", U8, b"\0")]), "not UTF-8"),
        (gguf_bytes(values=[key_value("a\0b", U8, b"\0")]), "can not be printed"),
        (gguf_bytes(values=[u32("k", 1), u32("k", 2)]), "key k twice"),
        (gguf_bytes(values=[key_value("k", ARRAY, struct.pack("<I", U32) + HUGE)]), "items of key"),
        (gguf_bytes(values=[key_value("k", ARRAY, struct.pack("<I", U64) + HUGE)]), "items of key"),
        (
            gguf_bytes(values=[key_value("k", ARRAY, struct.pack("<IQ", STRING, 2) + HUGE * 2)]),
            "strings 0 to 1 of key k",
        ),
        (gguf_bytes([W], [u32("general.alignment", 24)], bytes(32)), "not a power of two"),
        (gguf_bytes([W], [u32("general.alignment", 0)], bytes(32)), "not a power of two"),
        (
            gguf_bytes([W], [key_value("general.alignment", STRING, string("x"))], bytes(32)),
            "not a power of two",
        ),
        (
            gguf_bytes(values=[key_value("general.alignment", F32, struct.pack("<f", 32))]),
            "not a power of two",
        ),
        (gguf_bytes([W, W], data=bytes(32)), "tensor w twice"),
        (gguf_bytes([Raw("w", (1,) * 5, 0, 0)], data=bytes(32)), "5 dimensions"),
        (gguf_bytes([Raw("w", (), 0, 0, 2**32 - 1)], data=bytes(32)), "4294967295 dimensions"),
        (gguf_bytes([Raw("w", (2**33, 2**31), 0, 0)], data=bytes(32)), "impossible shape"),
        (gguf_bytes([Raw("w", (2**32, 2**31), 0, 0)], data=bytes(32)), "impossible shape"),
        (gguf_bytes([Raw("w", (0, 2**63), 0, 0)], data=bytes(32)), "impossible shape"),
        (gguf_bytes([Raw("w", (48,), 2, 0)], data=bytes(32)), "Q4_0 has blocks of 32"),
        (gguf_bytes([Raw("w", (8,), 0, 8)], data=bytes(64)), "not a multiple of 32"),
        (gguf_bytes([Raw("w", (8,), 0, 2**64 - 32)], data=bytes(64)), "bytes of tensor w are miss"),
        (gguf_bytes([Raw("w", (8,), 97, 2**63)], data=bytes(64)), "bytes of tensor w are missing"),
        (gguf_bytes([Raw("w", (9,), 0, 0)], data=bytes(32)), "4 bytes of tensor w are missing"),
        (
            gguf_bytes([Raw("v", (9,), 0, 0), Raw("w", (8,), 0, 32)], data=bytes(64)),
            "overlap: v and w",
        ),
        (
            gguf_bytes([Raw("v", (9,), 97, 0), Raw("w", (8,), 0, 0)], data=bytes(64)),
            "overlap: v and w",
        ),
    ],
)
def test_what_does_not_fit_the_file(refused, data, words):
    error = refused(data)
    assert isinstance(error, UnreadableError)
    assert error.exit_code == 2
    assert words in str(error)


def test_every_head_of_a_small_file_is_refused(refused):
    whole = gguf_bytes([W], [u32("k", 1)], bytes(32))
    for size in range(1, len(whole)):
        assert isinstance(refused(whole[:size]), UnreadableError)


@pytest.mark.real
def test_real_file_reads_as_the_library_reads_it(gemma_gguf):
    started = time.process_time()
    container = open_container(gemma_gguf)
    assert time.process_time() - started < 2.0
    reader = gguf.GGUFReader(gemma_gguf)
    assert len(container.entries) == len(reader.tensors)
    for tensor in reader.tensors:
        entry = container.entries[tensor.name]
        assert (entry.encoding, entry.offset) == (tensor.tensor_type.name, tensor.data_offset)
        assert (entry.shape, entry.nbytes) == (tuple(tensor.shape[::-1]), tensor.n_bytes)
    for key, field in reader.fields.items():
        if not key.startswith("GGUF."):
            assert container.metadata[key] == field.contents()
