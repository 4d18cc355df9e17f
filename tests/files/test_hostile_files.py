"""Damaged files of both kinds either open or raise AuditError; nothing else may escape."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import numpy as np
import torch
from file_writers import ARRAY, STRING, Raw, gguf_bytes, key_value, string, u32
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from audit.errors import AuditError
from audit.files.opening import open_container

TOKENS = struct.pack("<IQ", STRING, 3) + string("a") + string("bc") + string("")
SCORES = struct.pack("<IQ2f", 6, 2, 0.5, 1.0)
GGUF = gguf_bytes(
    [Raw("output.weight", (32, 2), 8, 0), Raw("d2t", (4,), 27, 96), Raw("n", (3,), 0, 128)],
    [
        key_value("general.architecture", STRING, string("qwen35")),
        key_value("tokens", ARRAY, TOKENS),
        key_value("scores", ARRAY, SCORES),
        u32("general.alignment", 32),
    ],
    np.arange(140, dtype=np.uint8).tobytes(),
)
SAFETENSORS = save(
    {
        "lm_head.weight": torch.ones(4, 8, dtype=torch.bfloat16),
        "d2t": torch.arange(4),
        "t2d": torch.ones(3, dtype=torch.bool),
        "scale": torch.tensor(2.0),
    },
    metadata={"format": "pt"},
)


def use_everything(data: bytes, name: str) -> None:
    """Open the bytes as a file and decode every tensor."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        try:
            container = open_container(path)
        except AuditError as error:
            assert str(error)
            assert error.as_json()["error"]["message"]
            return
        for name in container.entries:
            assert name.isprintable()
            for read in (container.bytes_of, container.rows_of, container.values):
                try:
                    read(name)
                except AuditError as error:
                    assert str(error)


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Some bytes changed, a run replaced by the ends of integer ranges, perhaps cut."""
    result = bytearray(data)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(result) - 1))
        result[at] = draw(st.integers(0, 255))
    if draw(st.booleans()):
        at = draw(st.integers(0, len(result) - 8))
        extreme = draw(st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]))
        result[at : at + 8] = extreme.to_bytes(8, "little")
    if draw(st.booleans()):
        del result[draw(st.integers(0, len(result))) :]
    return bytes(result)


@settings(max_examples=400, deadline=None)
@given(damaged(GGUF))
def test_damaged_gguf(data):
    use_everything(data, "x.gguf")


@settings(max_examples=400, deadline=None)
@given(damaged(SAFETENSORS))
def test_damaged_safetensors(data):
    use_everything(data, "x.safetensors")


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=80), st.sampled_from(["x.gguf", "x.safetensors", "x", "x.bin"]))
def test_any_bytes(data, name):
    use_everything(data, name)


def test_the_undamaged_files_open():
    use_everything(GGUF, "x.gguf")
    with tempfile.TemporaryDirectory() as folder:
        for data, name in ((GGUF, "x.gguf"), (SAFETENSORS, "x.safetensors")):
            path = Path(folder) / name
            path.write_bytes(data)
            container = open_container(path)
            for tensor in container.entries:
                container.values(tensor)


def test_every_byte_of_both_headers_flipped():
    for data, name in ((GGUF, "x.gguf"), (SAFETENSORS, "x.safetensors")):
        for at in range(0, len(data), 3):
            changed = bytearray(data)
            changed[at] ^= 0xFF
            use_everything(bytes(changed), name)
