"""Decoding: ggml's own floats for every type, by both paths, on any bytes."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from file_writers import SHARED, Raw, gguf_bytes, write_blocks
from gguf import quants

from audit.errors import MismatchError, UnsupportedFormatError
from audit.files import chunks, decode
from audit.files.decode import bits_per_weight, decode_rows, is_float_encoding, row_bytes
from audit.files.encodings import ENCODINGS, GGML_TYPES
from audit.files.ggml_blocks import DECODERS
from audit.files.opening import open_container

GOLDEN = SHARED / "golden" / "ggml_blocks.npz"
# fmt: off
GOLDEN_TYPES = [
    "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K",
    "Q5_K", "Q6_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S",
    "IQ2_S", "IQ4_XS", "IQ1_M", "TQ1_0", "TQ2_0", "MXFP4", "NVFP4", "Q1_0",
]
# fmt: on


def bits_of(values: torch.Tensor | np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(np.uint32)


@pytest.fixture(scope="module")
def golden():
    if not GOLDEN.exists():
        pytest.skip("needs ../shared/golden")
    with np.load(GOLDEN) as arrays:
        return dict(arrays)


def test_golden_file_holds_no_other_types(golden):
    assert {key.removesuffix(".blocks") for key in golden if key.endswith(".blocks")} == set(
        GOLDEN_TYPES
    )


@pytest.mark.parametrize("kind", GOLDEN_TYPES)
def test_ggml_floats_bit_for_bit_through_a_file(golden, kind, tmp_path):
    blocks, expected = golden[f"{kind}.blocks"], golden[f"{kind}.values"]
    path = tmp_path / f"{kind}.gguf"
    write_blocks(path, {"before": (blocks[:1], kind), "w": (blocks, kind)})
    container = open_container(path)
    entry = container.entries["w"]
    assert (entry.encoding, entry.shape) == (kind, expected.shape)
    raw = container.rows_of("w")
    assert np.array_equal(raw.numpy(), blocks)
    assert np.array_equal(bits_of(decode_rows(raw, kind, 512)), bits_of(expected))
    assert np.array_equal(bits_of(decode_rows(raw[3:9], kind, 512)), bits_of(expected[3:9]))
    assert np.array_equal(bits_of(container.values("w")), bits_of(expected))


@pytest.mark.parametrize("kind", sorted(set(DECODERS) - {"Q1_0", "Q2_0"}))
def test_any_bytes_as_gguf_decodes_them(kind):
    """Among random blocks are infinite, NaN and denormal scales, and every code."""
    columns = 2 * ENCODINGS[kind].block
    raw = np.random.default_rng(0).integers(
        0, 256, (3000, row_bytes(kind, columns)), dtype=np.uint8
    )
    with np.errstate(all="ignore"):
        expected = quants.dequantize(raw, gguf.GGMLQuantizationType[kind])
    got = decode_rows(torch.from_numpy(raw), kind, columns).numpy()
    numbers = ~np.isnan(expected)
    assert np.array_equal(numbers, ~np.isnan(got))
    assert np.array_equal(bits_of(got)[numbers], bits_of(expected)[numbers])
    assert numbers.mean() > 0.8


@pytest.mark.parametrize("kind", sorted(DECODERS))
@pytest.mark.parametrize("place", [0, 1, 3, 8])
def test_single_blocks_wherever_they_lie(kind, place):
    packing = ENCODINGS[kind]
    raw = torch.randint(0, 100, (2, packing.size), dtype=torch.uint8)
    moved = torch.zeros(place + 2 * packing.size, dtype=torch.uint8)
    moved[place:] = raw.flatten()
    for row in range(2):
        start = place + row * packing.size
        block = moved[start : start + packing.size].unsqueeze(0)
        expected = decode_rows(raw, kind, packing.block)[row]
        assert torch.equal(decode_rows(block, kind, packing.block)[0], expected)


def test_threads_and_chunks_change_nothing():
    rows = chunks._MANY_CHUNKS * chunks.CPU_CHUNK // 640 + 7
    raw = torch.randint(0, 256, (rows, row_bytes("Q4_0", 640)), dtype=torch.uint8)
    raw[:, 1::18] = 0x20
    whole = decode_rows(raw, "Q4_0", 640)
    pieces = torch.cat([decode_rows(part, "Q4_0", 640) for part in raw.split(100)])
    assert torch.equal(whole, pieces)


def test_q2_0_by_hand(tmp_path):
    """d = 0.5, then bytes 0b11_10_01_00: codes 0, 1, 2, 3 are -d, 0, d, 2d."""
    block = np.frombuffer(np.float16(0.5).tobytes() + b"\xe4" * 16, dtype=np.uint8)
    path = tmp_path / "q.gguf"
    path.write_bytes(gguf_bytes([Raw("w", (64, 2), 42, 0)], data=block.tobytes() * 2))
    expected = torch.tensor([-0.5, 0.0, 0.5, 1.0]).repeat(2, 16)
    assert torch.equal(open_container(path).values("w"), expected)


def test_q1_0_by_hand():
    block = np.float16(-2.0).tobytes() + b"\x05" + bytes(15)
    got = decode_rows(torch.frombuffer(bytearray(block), dtype=torch.uint8)[None], "Q1_0", 128)
    assert got[0, :4].tolist() == [-2.0, 2.0, -2.0, 2.0]
    assert (got[0, 4:] == 2.0).all()


def test_nvfp4_scale_7f_is_zero_not_nan():
    raw = torch.full((1, 36), 0x77, dtype=torch.uint8)
    raw[0, :4] = torch.tensor([0x7F, 0x7E, 0x38, 0x00])
    got = decode_rows(raw, "NVFP4", 64).view(4, 16)
    assert got[:, 0].tolist() == [0.0, 448.0 * 6, 6.0, 0.0]


@pytest.mark.parametrize(
    ("encoding", "dtype"),
    [(name, dtype) for name, dtype in decode.FLOAT_DTYPES.items() if dtype.itemsize <= 2],
)
def test_every_16_and_8_bit_float(encoding, dtype):
    size = dtype.itemsize
    values = torch.arange(256**size, dtype=torch.int32)
    raw = values.to(torch.uint16 if size == 2 else torch.uint8).view(torch.uint8).view(256, -1)
    got = decode_rows(raw, encoding, 256 ** (size - 1))
    expected = raw.view(dtype).float()
    assert torch.equal(got.isnan(), expected.isnan())
    assert torch.equal(got.nan_to_num(), expected.nan_to_num())


def test_result_is_a_copy_and_not_the_map(tmp_path):
    path = tmp_path / "f.gguf"
    path.write_bytes(gguf_bytes([Raw("w", (8, 1), 0, 0)], data=bytes(32)))
    container = open_container(path)
    decode_rows(container.rows_of("w"), "F32", 8).fill_(1.0)
    assert container.values("w").sum() == 0


@pytest.mark.parametrize("encoding", ["F32", "Q4_0", "IQ4_NL", "Q2_K"])
@pytest.mark.parametrize(("rows", "columns"), [(0, 256), (3, 0)])
def test_nothing_decodes_to_nothing(encoding, rows, columns):
    raw = torch.empty(rows, row_bytes(encoding, columns), dtype=torch.uint8)
    assert decode_rows(raw, encoding, columns).shape == (rows, columns)


@pytest.mark.parametrize("encoding", ["Q8_1", "Q8_K", "I8", "U8", "BOOL", "F4", "C64"])
def test_types_without_weights_are_named(encoding):
    raw = torch.zeros(1, row_bytes(encoding, 256), dtype=torch.uint8)
    with pytest.raises(UnsupportedFormatError, match=f"{encoding}"):
        decode_rows(raw, encoding, 256)


def test_sizes():
    assert row_bytes("Q6_K", 512) == 420
    assert row_bytes("Q2_0", 640) == 180
    assert row_bytes("F4", 10) == 5
    assert bits_per_weight("Q4_K") == 4.5
    assert bits_per_weight("F6_E2M3") == 6.0
    assert is_float_encoding("BF16")
    assert is_float_encoding("F8_E4M3")
    assert not is_float_encoding("Q8_0")
    assert not is_float_encoding("I8")
    assert GGML_TYPES[41][0] == "Q1_0"
    with pytest.raises(UnsupportedFormatError, match="GGML_97 is not known"):
        bits_per_weight("GGML_97")
    with pytest.raises(MismatchError, match="blocks hold 256"):
        row_bytes("Q6_K", 640)
    with pytest.raises(MismatchError, match="take 36 bytes"):
        decode_rows(torch.zeros(2, 18, dtype=torch.uint8), "Q4_0", 64)
