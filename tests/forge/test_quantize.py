"""Encoders against ggml's own bytes, gguf's decoder and brute force."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import quants
from gguf.constants import GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from audit.errors import MismatchError, UnreadableError, UnsupportedFormatError
from audit.files import decode_rows
from audit.files.encodings import GGML_TYPES
from audit.forge import tiles
from audit.forge.nvfp4 import encode_nvfp4, tensor_scale, ue4m3_values
from audit.forge.quantize import ENCODABLE, encoded_tiles, quantize_rows
from audit.heads.rows import DenseRows

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden" / "ggml_blocks.npz"
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


@pytest.fixture(scope="module")
def golden():
    if not GOLDEN.exists():
        pytest.skip("needs ../shared/golden")
    with np.load(GOLDEN) as arrays:
        return dict(arrays)


def random(rows: int, columns: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * scale


def by_gguf(raw: torch.Tensor, encoding: str) -> np.ndarray:
    return quants.dequantize(raw.numpy(), GGMLQuantizationType[encoding])


def relative_error(values, weights) -> float:
    return float(np.linalg.norm(np.asarray(values) - weights) / np.linalg.norm(weights))


def test_all_that_gguf_encodes_is_encodable():
    """A newer gguf that encodes more must show up here."""
    weight, can = np.ones((1, 256), np.float32), {"NVFP4"}
    for kind in GGMLQuantizationType:
        try:
            quants.quantize(weight, kind)
        except NotImplementedError:
            continue
        can.add(kind.name)
    assert can == set(ENCODABLE)


@pytest.mark.parametrize("encoding", ["Q8_0", "MXFP4", "TQ1_0", "TQ2_0", "NVFP4"])
def test_bytes_are_ggmls(golden, encoding):
    """The types whose golden blocks were made without an importance matrix."""
    raw = quantize_rows(torch.from_numpy(golden["weights"]), encoding)
    assert np.array_equal(raw.numpy(), golden[f"{encoding}.blocks"])


@pytest.mark.parametrize("encoding", ["Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_error_is_near_that_of_ggml_with_an_importance_matrix(golden, encoding):
    weights = golden["weights"]
    ours = relative_error(
        by_gguf(quantize_rows(torch.from_numpy(weights), encoding), encoding), weights
    )
    assert ours < 1.15 * relative_error(golden[f"{encoding}.values"], weights)


@pytest.mark.parametrize("encoding", ENCODABLE)
def test_both_decoders_agree_and_tiles_change_nothing(encoding, monkeypatch):
    weight = random(37, 256)
    raw = quantize_rows(weight, encoding)
    values = decode_rows(raw, encoding, 256)
    assert np.array_equal(values.numpy(), by_gguf(raw, encoding))
    assert relative_error(values, weight.numpy()) < (0.9 if encoding.startswith("TQ") else 0.2)
    monkeypatch.setattr(tiles, "TILE_WEIGHTS", 3 * 256)
    parts = list(encoded_tiles(DenseRows(weight), encoding))
    assert len(parts) == 13 and torch.equal(torch.cat(parts), raw)


@pytest.mark.parametrize("encoding", ["F16", "BF16", "F32"])
def test_float_types_are_torchs_and_ggufs_casts(encoding):
    weight = random(8, 33, scale=3.0)
    raw = quants.quantize(weight.numpy(), GGMLQuantizationType[encoding])
    assert quantize_rows(weight, encoding).numpy().tobytes() == raw.tobytes()


def test_k_quants_are_refused_with_the_command_that_makes_them():
    made = {
        "Q4_K": "llama-quantize --output-tensor-type q4_k REF.gguf OUT.gguf Q4_K_M",
        "Q6_K": "llama-quantize --output-tensor-type q6_k REF.gguf OUT.gguf Q6_K",
        "IQ2_XXS": "llama-quantize --imatrix IMATRIX.gguf --output-tensor-type iq2_xxs "
        "REF.gguf OUT.gguf IQ2_XXS",
    }
    for encoding, command in made.items():
        with pytest.raises(
            UnsupportedFormatError, match=f"{encoding} is not encoded here"
        ) as error:
            quantize_rows(random(2, 256), encoding)
        assert error.value.hint == command


def test_every_other_ggml_type_is_refused_and_says_what_to_do():
    for name, _ in GGML_TYPES.values():
        if name not in ENCODABLE:
            with pytest.raises(UnsupportedFormatError) as error:
                quantize_rows(random(2, 256), name)
            assert error.value.hint


def test_rows_that_are_no_blocks_and_weights_out_of_range_are_refused():
    with pytest.raises(
        MismatchError, match="rows of 96 weights can not be NVFP4, whose blocks hold 64"
    ) as e:
        quantize_rows(random(2, 96), "NVFP4")
    assert "Q4_0" in e.value.hint and "TQ2_0" not in e.value.hint
    with pytest.raises(MismatchError, match="beyond Q8_0, which ends at 65504"):
        quantize_rows(random(2, 32, scale=1e6), "Q8_0")
    for bad in (torch.nan, torch.inf):
        weight = random(3, 32)
        weight[1, 5] = bad
        with pytest.raises(UnreadableError, match="row 1 of the matrix holds NaN or infinity"):
            quantize_rows(weight, "BF16")


def brute_force_nvfp4(group: np.ndarray, code: int) -> np.ndarray:
    scale = float(ue4m3_values(torch.tensor([code], dtype=torch.int32)))
    nearest = np.abs(np.abs(group)[:, None] - FP4 * scale).argmin(1)
    return np.sign(group) * FP4[nearest] * scale


def test_nvfp4_error_is_within_5_percent_of_ggmls(golden):
    weights = golden["weights"]
    ggml = relative_error(golden["NVFP4.values"], weights)
    raw = encode_nvfp4(torch.from_numpy(weights))
    assert relative_error(by_gguf(raw, "NVFP4"), weights) == pytest.approx(ggml, rel=1e-6)
    searched = [
        relative_error(
            by_gguf(encode_nvfp4(torch.from_numpy(weights), neighbours=n), "NVFP4"), weights
        )
        for n in (1, 2, 4)
    ]
    assert searched == sorted(searched, reverse=True) and searched[0] < 0.95 * ggml


def test_nvfp4_search_finds_the_best_of_all_codes():
    weight = random(2, 64, scale=0.5)
    values = decode_rows(encode_nvfp4(weight, neighbours=126), "NVFP4", 64).numpy()
    for got, group in zip(values.reshape(-1, 16), weight.numpy().reshape(-1, 16), strict=True):
        best = min(np.square(brute_force_nvfp4(group, c) - group).sum() for c in range(127))
        assert np.square(got - group).sum() == pytest.approx(best, rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(np.float32, (1, 64), elements=st.floats(-1e4, 1e4, width=32, allow_subnormal=False)),
    st.integers(0, 3),
)
def test_nvfp4_rounds_to_the_nearest_value_of_its_own_scale(weights, neighbours):
    raw = encode_nvfp4(torch.from_numpy(weights), neighbours=neighbours)
    values = by_gguf(raw, "NVFP4")
    assert np.array_equal(values, decode_rows(raw, "NVFP4", 64).numpy())
    for g, code in enumerate(raw[0, :4].tolist()):
        part = slice(16 * g, 16 * g + 16)
        expected = brute_force_nvfp4(weights[0, part].astype(np.float64), code)
        assert (
            np.abs(
                np.abs(values[0, part] - weights[0, part]) - np.abs(expected - weights[0, part])
            ).max()
            < 1e-2
        )
        assert code <= 0x7E
    assert not ((raw[0, 4:] & 15) == 8).any() and not ((raw[0, 4:] >> 4) == 8).any()  # no -0


def test_nvfp4_scale_sidecar_only_where_the_scales_would_leave_their_range():
    assert tensor_scale(1.0) == 1.0 and tensor_scale(6 * 448.0) == 1.0 and tensor_scale(0.0) == 1.0
    for size in (1e-4, 1e5):
        weight = random(16, 128, scale=size)
        scale = tensor_scale(float(weight.abs().max()))
        with_it = decode_rows(encode_nvfp4(weight, scale=scale), "NVFP4", 128) * scale
        without = decode_rows(encode_nvfp4(weight), "NVFP4", 128)
        assert relative_error(with_it, weight.numpy()) < 0.12
        assert relative_error(without, weight.numpy()) > 0.5
