"""Section G: files that are cut, lie about themselves, or lack what they declare."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from audit.blocks.preflight import check_container
from audit.files import open_container
from tests.blocks.test_mtp_layouts import qwen
from tests.bugs.use import inspect, matrix, model, refused, told, write
from tests.files.file_writers import Raw, gguf_bytes, safetensors_bytes, tensor
from tests.heads.files import gguf_file

V, H = 24, 64


def test_bug_64_a_shard_shorter_than_its_header(tmp_path: Path) -> None:
    path = write(tmp_path / "m.safetensors", a=matrix(4, 4), lm_head__weight=matrix(V, H))
    path.write_bytes(path.read_bytes()[:-100])
    message = refused("inspect", path)
    assert (
        message.startswith("FILE_CUT")
        and "100 bytes of tensor lm_head.weight are missing" in message
    )


@pytest.mark.parametrize("size", [99_992, 99_994, 99_999, 100_000, 100_008])
def test_bug_65_header_lengths_at_the_edge(tmp_path: Path, size: int) -> None:
    header = '{"lm_head.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}'
    data = safetensors_bytes(header + " " * (size - len(header)), struct.pack("<4f", 1, 2, 3, 4))
    path = tmp_path / "m.safetensors"
    path.write_bytes(data)
    assert inspect(path)["head"]["rows"] == 2


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (safetensors_bytes({"a": tensor("U8", [2], 0, 2)}, b"abc"), "1 trailing bytes"),
        (safetensors_bytes({"a": tensor("U8", [1], 1, 2)}, b"ab"), "1 bytes between the header"),
        (
            safetensors_bytes(
                {"a": tensor("U8", [2], 0, 2), "b": tensor("U8", [2], 1, 3)}, b"abc"
            ),
            "overlap: a and b",
        ),
        (safetensors_bytes("{}", length=2**63), "claims a header of 9223372036854775808 bytes"),
        (safetensors_bytes({"a": tensor("U8", [2**62, 4], 0, 0)}), "takes 18446744073709551616"),
    ],
)  # fmt: skip
def test_bug_65_bytes_that_no_one_or_two_own(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(data)
    message = refused("inspect", path)
    assert words in message and str(path) in message


def test_bug_66_gguf_bounds(tmp_path: Path) -> None:
    path = gguf_file(tmp_path / "m.gguf", {"output.weight": matrix(V, H).numpy()})
    whole = path.read_bytes()
    for size in range(0, len(whole), 97):
        path.write_bytes(whole[:size])
        assert refused("inspect", path)
    far = Raw("output.weight", (H, V), 0, 2**64 - 32)
    path.write_bytes(gguf_bytes([far], data=bytes(64)))
    assert "bytes of tensor output.weight are missing" in refused("inspect", path)


def test_bug_69_mtp_declared_and_absent_or_the_reverse(tmp_path: Path) -> None:
    lost = model(tmp_path / "lost", {"num_nextn_predict_layers": 1}, lm_head__weight=matrix(V, H))
    ((severity, sentence),) = told(inspect(lost), "MTP_DECLARED_ABSENT")
    assert severity == "warning" and "declares 1 MTP layer(s)" in sentence
    assert refused("inspect", lost, "--head", "mtp").startswith("MTP_DECLARED_ABSENT")
    found, _ = qwen(tmp_path / "found", declared=None)
    assert [s for s, _ in told(inspect(found, "--head", "lm"), "MTP_PRESENT_UNDECLARED")] == [
        "note"
    ]
    sound, _ = qwen(tmp_path / "sound", declared=1)
    assert not [c for c, _, _ in check_container(open_container(sound)) if c.startswith("MTP_")]
    in_gguf = gguf_file(
        tmp_path / "m.gguf", {"output.weight": matrix(V, H).numpy()},
        llama__nextn_predict_layers=1,
    )  # fmt: skip
    assert told(inspect(in_gguf), "MTP_DECLARED_ABSENT")


def test_bug_70_types_of_the_draft_beside_the_trunks(tmp_path: Path) -> None:
    tensors = {
        "output.weight": matrix(V, H).numpy(),
        "blk.0.ffn_up.weight": matrix(H, H).numpy(),
        "blk.1.ffn_up.weight": matrix(H, H).numpy(),
        "blk.1.nextn.eh_proj.weight": matrix(H, 2 * H).numpy(),
    }
    kinds = {"blk.1.ffn_up.weight": "Q8_0", "blk.0.ffn_up.weight": "Q8_0",
             "blk.1.nextn.eh_proj.weight": "Q4_0"}  # fmt: skip
    for name, low in (("q4", False), ("tq2", True)):
        types = {n: gguf.GGMLQuantizationType[k] for n, k in kinds.items()}
        if low:
            tensors["blk.1.nextn.eh_proj.weight"] = matrix(H, 256).numpy()
            types["blk.1.nextn.eh_proj.weight"] = gguf.GGMLQuantizationType.TQ2_0
        path = gguf_file(
            tmp_path / f"{name}.gguf", tensors, kinds=types, llama__nextn_predict_layers=1
        )
        found = inspect(path, "--head", "lm")
        ((_, sentence),) = told(found, "DRAFT_TYPES")
        draft, trunk = sentence.split(", the trunk as ")
        assert ("TQ2_0 (1)" if low else "Q4_0 (1)") in draft and "Q8_0 (1)" in draft
        assert trunk == "Q8_0 (1)"
        flagged = told(found, "LOW_BIT_DRAFT")
        assert bool(flagged) == low
        if low:
            assert flagged[0][0] == "warning"
            assert "blk.1.nextn.eh_proj.weight TQ2_0" in flagged[0][1]


def test_bug_71_nan_blocks_in_quantized_rows(tmp_path: Path) -> None:
    path = gguf_file(
        tmp_path / "m.gguf", {"output.weight": matrix(V, H).numpy()},
        kinds={"output.weight": gguf.GGMLQuantizationType.Q8_0},
    )  # fmt: skip
    entry = open_container(path).entries["output.weight"]
    data = bytearray(path.read_bytes())
    row = 2 * 34  # two blocks of 32 values
    for number in (5, 6):
        at = entry.offset + number * row
        data[at : at + 2] = np.float16(np.nan).tobytes()
    path.write_bytes(bytes(data))
    message = refused("inspect", path)
    assert message.startswith("NON_FINITE: 2 rows of") and "ids 5 to 6" in message
    folder, _ = qwen(tmp_path / "mtp")
    container = open_container(folder)
    entry = container.entries["mtp.fc.weight"]
    data = bytearray(entry.path.read_bytes())
    data[entry.offset : entry.offset + 4] = np.float32(np.nan).tobytes()
    entry.path.write_bytes(bytes(data))
    assert refused("inspect", folder, "--head", "mtp").startswith("NON_FINITE: mtp.fc.weight")
    assert torch.isnan(open_container(folder).values("mtp.fc.weight")).any()
