"""What would load without a word and be wrong is refused by name, for every format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from audit.errors import AuditError, MismatchError, UnreadableError, UnsupportedFormatError
from audit.heads import HeadOptions, load_head
from tests.packed.cases import CASES
from tests.packed.more_writers import awq, gptq, torchao
from tests.packed.writers import STEM, Case, ct_config, ct_ints, fp8, modelopt

NEEDED = [(name, leaf) for name, make in CASES.items() for leaf in make().needed]
DIMENSIONS = [
    (name, leaf, dim)
    for name, leaf in NEEDED
    for dim in range(min(2, max(1, CASES[name]().tensors[leaf].ndim)))
]
SHAPES = {"SCALE_SHAPE", "PACKED_SHAPE", "DECLARED_VS_STORED", "PACKED_UNSUPPORTED"}


def refusal(folder: Path, case: Case) -> AuditError:
    with pytest.raises(AuditError) as caught:
        load_head(case.write(folder))
    assert caught.value.hint and str(folder) in caught.value.where
    return caught.value


@pytest.mark.parametrize(("name", "leaf"), NEEDED)
def test_a_missing_part_is_an_error(tmp_path: Path, name: str, leaf: str) -> None:
    case = CASES[name]()
    del case.tensors[leaf]
    assert refusal(tmp_path, case).code == "SCALE_MISSING"


@pytest.mark.parametrize(("name", "leaf", "dim"), DIMENSIONS)
def test_a_part_of_another_shape_is_an_error(
    tmp_path: Path, name: str, leaf: str, dim: int
) -> None:
    case = CASES[name]()
    old = case.tensors[leaf]
    raw = old.view(torch.uint8) if old.dtype.itemsize == 1 else old
    raw = raw.reshape(1) if raw.ndim == 0 else raw
    wrong = torch.cat([raw, raw.narrow(dim, 0, 1)], dim)
    if old.ndim == 0:  # one number may be stored as () or (1,); two are too many
        wrong = torch.cat([raw, raw, raw])
    case.tensors[leaf] = wrong.view(old.dtype)
    error = refusal(tmp_path, case)
    assert error.code in SHAPES or isinstance(error, UnreadableError | UnsupportedFormatError)


def test_a_head_that_should_be_plain_and_is_packed(tmp_path: Path) -> None:
    for number, (name, change) in enumerate(
        {
            "ct-int4": {"ignore": ["lm_head"]},
            "ct-nvfp4": {"ignore": ["re:.*lm_head"]},
            "mo-nvfp4": {"exclude_modules": ["lm_head"]},
            "mo-int4": {"exclude_modules": ["*lm_head*"]},
            "fp8-block": {"modules_to_not_convert": ["lm_head"]},
            "bnb-nf4": {"llm_int8_skip_modules": ["lm_head"]},
            "gptq-4": {"lm_head": False},
            "gptq-8": {"dynamic": {"-:lm_head": {}}},
        }.items()
    ):
        case = CASES[name]()
        assert case.quantization is not None
        case.quantization |= change
        error = refusal(tmp_path / str(number), case)
        assert error.code == "DECLARED_VS_STORED" and "config.json" in error.message


@pytest.mark.parametrize(
    "config",
    [
        ct_config("pack-quantized", {"num_bits": 4}),
        modelopt("NVFP4"),
        {"quant_method": "gptq", "bits": 4, "lm_head": True},
    ],
)
def test_a_head_that_should_be_packed_and_is_plain(tmp_path: Path, config: dict[str, Any]) -> None:
    """vllm-omni PR#4528, mistral.rs PR#2348."""
    case = Case({"weight": torch.randn(8, 16)}, torch.zeros(8, 16).numpy(), "", config)
    error = refusal(tmp_path, case)
    assert error.code == "DECLARED_VS_STORED" and "plain F32" in error.message


def test_a_plain_head_that_the_configuration_leaves_out(tmp_path: Path) -> None:
    config = ct_config("pack-quantized", {"num_bits": 4}, ignore=["lm_head"])
    weight = torch.randn(8, 16)
    case = Case({"weight": weight}, weight.numpy(), "F32", config)
    assert torch.equal(load_head(case.write(tmp_path)).rows.tile(0, 8), weight)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("ct-int4-ragged", {"num_bits": 8}),
        ("ct-int4-ragged", {"group_size": 16}),
        ("gptq-4", {"bits": 8}),
        ("gptq-4", {"group_size": 64}),
        ("gptq-4", {"quant_method": "awq"}),
        ("awq", {"quant_method": "gptq", "lm_head": True}),
        ("awq", {"bits": 8}),
        ("awq", {"group_size": 10}),
        ("bnb-nf4", {"load_in_8bit": True}),
        ("bnb-int8", {"load_in_4bit": True}),
        ("hqq-4", {"nbits": 2}),
        ("mo-nvfp4", {"quant_method": "compressed-tensors", "config_groups": {}}),
        ("fp8-block", {"quant_method": "bitsandbytes"}),
        ("torchao-Int8Tensor", {"quant_method": "hqq"}),
    ],
)
def test_a_configuration_of_another_export(
    tmp_path: Path, name: str, change: dict[str, Any]
) -> None:
    case = CASES[name]()
    assert case.quantization is not None
    groups = case.quantization.get("config_groups")
    target = groups["group_0"]["weights"] if groups else case.quantization
    target |= change
    error = refusal(tmp_path, case)
    assert error.code == "DECLARED_VS_STORED", error.message


def test_gptq_versions_differ_by_one_step(tmp_path: Path) -> None:
    """A symmetric file of one version that claims to be the other is caught; so is no word."""
    case = gptq(24, 96, 4, 32, version=1, sym=True)
    assert case.quantization is not None
    case.quantization["checkpoint_format"] = "gptq_v2"
    assert refusal(tmp_path / "a", case).code == "DECLARED_VS_STORED"
    case.quantization = None
    told = load_head(case.write(tmp_path / "b"))
    assert torch.equal(told.rows.tile(0, 24), torch.from_numpy(case.weight))
    silent = gptq(24, 96, 4, 32, version=1)
    silent.quantization = None
    assert "version 1 from 2" in refusal(tmp_path / "c", silent).message
    (tmp_path / "c" / "quantize_config.json").write_text(json.dumps({"bits": 4, "group_size": 32}))
    assert load_head(tmp_path / "c").record.encoding == "GPTQ-4 g32 v1"


def test_act_order_needs_its_order(tmp_path: Path) -> None:
    case = gptq(24, 96, 4, 32, order=True)
    del case.tensors["g_idx"]
    assert refusal(tmp_path / "a", case).code == "SCALE_MISSING"
    case = gptq(24, 96, 4, 32, order=True)
    case.tensors["g_idx"][3] = 7
    assert refusal(tmp_path / "b", case).code == "PACKED_SHAPE"
    plain = gptq(24, 96, 4, 32)
    del plain.tensors["g_idx"]
    rows = load_head(plain.write(tmp_path / "c")).rows
    assert torch.equal(rows.tile(0, 24), torch.from_numpy(plain.weight))


def test_bits_that_the_widths_do_not_tell(tmp_path: Path) -> None:
    case = ct_ints(8, 640, 8, 128)
    case.quantization = None
    assert "may have 7 or 8 bits" in refusal(tmp_path, case).message


def test_layouts_of_kernels_are_refused_by_name(tmp_path: Path) -> None:
    swizzled = torchao(19, 96, "NVFP4Tensor")
    text = swizzled.metadata[f"{STEM}.weight"]
    swizzled.metadata[f"{STEM}.weight"] = text.replace("false", "true")
    assert "swizzled" in refusal(tmp_path / "a", swizzled).message
    tiled = torchao(19, 96, "Int4Tensor")
    name = f"{STEM}.weight"
    tiled.metadata[name] = tiled.metadata[name].replace("Int4Tensor", "Int4TilePackedTo4dTensor")
    assert "Int4TilePackedTo4dTensor" in refusal(tmp_path / "b", tiled).message
    gemv = awq(24, 70, 35)
    assert gemv.quantization is not None
    gemv.quantization["version"] = "gemv"
    assert "gemv" in refusal(tmp_path / "c", gemv).message
    none = torch.zeros(4, 4).numpy()
    for number, (leaf, kind) in enumerate({"trellis": "EXL3", "q_weight": "EXL2"}.items()):
        case = Case({leaf: torch.zeros(8, 8, 16, dtype=torch.int16)}, none, "")
        assert kind in refusal(tmp_path / f"d{number}", case).message


def test_an_unknown_method_is_not_guessed(tmp_path: Path) -> None:
    case = CASES["gptq-4"]()
    case.quantization = {"quant_method": "novel-quant", "bits": 4}
    assert "novel-quant" in refusal(tmp_path, case).message


def test_a_matrix_that_is_there_twice(tmp_path: Path) -> None:
    case = CASES["gptq-4"]()
    case.tensors["weight"] = torch.randn(32, 96)
    assert refusal(tmp_path, case).code == "STORED_TWICE"
    for choice in ("lm_head.weight", "lm_head.qweight"):
        with pytest.raises(MismatchError, match="STORED_TWICE"):
            load_head(tmp_path, HeadOptions(tensor=choice))


def test_scales_without_a_place_in_the_format(tmp_path: Path) -> None:
    """kekzl/imp PR#1428: companions found and not used mean that the weight is not what it says."""
    case = CASES["fp8-row"]()
    case.tensors["weight_scale_2"] = torch.tensor(3.0)
    error = refusal(tmp_path, case)
    assert error.code == "SCALE_UNUSED" and "lm_head.weight_scale_2" in error.message


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_global_scales_must_be_numbers(tmp_path: Path, bad: float) -> None:
    case = CASES["mo-nvfp4"]()
    case.tensors["weight_scale_2"] = torch.tensor(bad)
    assert refusal(tmp_path, case).code == "NON_FINITE"


def test_a_tied_head_may_be_packed(tmp_path: Path) -> None:
    case = fp8(19, 64, "weight_scale", (19, 1))
    folder = case.write(tmp_path, "model.embed_tokens")
    config = {"tie_word_embeddings": True, "model_type": "llama"}
    (folder / "config.json").write_text(json.dumps(config))
    head = load_head(folder)
    assert head.record.tied and torch.equal(head.rows.tile(0, 19), torch.from_numpy(case.weight))


@pytest.mark.parametrize("named", ["lm_head", "lm_head.weight", "lm_head.qweight"])
def test_a_packed_tensor_may_be_named(tmp_path: Path, named: str) -> None:
    case = CASES["gptq-4"]()
    head = load_head(case.write(tmp_path), HeadOptions(tensor=named))
    assert head.record.tensors[0] == "lm_head.qweight"


def test_a_bias_beside_packed_codes(tmp_path: Path) -> None:
    case = CASES["awq"]()
    case.tensors["bias"] = torch.arange(24.0)
    head = load_head(case.write(tmp_path))
    assert head.bias is not None and torch.equal(head.bias, torch.arange(24.0))


def test_hostile_quantization_states(tmp_path: Path) -> None:
    key = "weight.quant_state.bitsandbytes__nf4"
    for number, state in enumerate(
        [
            {"shape": [2**40, 2**40], "blocksize": 64}, {"shape": [19], "blocksize": 64},
            {"shape": [19, 128], "blocksize": 0}, {"shape": [19, 128], "blocksize": True}, [],
            {"shape": [19, 127], "blocksize": 64}, {"shape": [-19, -128], "blocksize": 64},
        ]
    ):  # fmt: skip
        case = CASES["bnb-nf4"]()
        case.tensors[key] = torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)
        refusal(tmp_path / str(number), case)


def test_empty_codes(tmp_path: Path) -> None:
    codes = {"ct-int4": "weight_packed", "gptq-4": "qweight", "awq": "qweight", "hqq-4": "W_q"}
    for name, leaf in {**codes, "mo-nvfp4": "weight", "int8-row": "weight"}.items():
        case = CASES[name]()
        case.tensors[leaf] = case.tensors[leaf][:0]
        refusal(tmp_path / name, case)


def test_plain_names_of_other_things_stay_plain(tmp_path: Path) -> None:
    """A tensor that merely ends in .weight, without a layer's name, is read as before."""
    save_file({"weight": torch.randn(8, 16)}, tmp_path / "h.safetensors")
    head = load_head(tmp_path / "h.safetensors", HeadOptions(tensor="weight"))
    assert head.record.encoding == "F32"
