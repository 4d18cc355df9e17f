"""The trace file: round trip, same bytes, and a refusal for everything that is not a trace."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from audit.errors import BadUsageError, MismatchError, NotFoundError, UnreadableError
from audit.provenance import sha256_file
from audit.traces import Trace, lookahead_rows, read_trace, write_trace

FIELDS = ("hidden", "token", "oracle", "sequence", "position")


def tensors_of(trace: Trace) -> dict[str, torch.Tensor]:
    return {name: getattr(trace, name) for name in FIELDS} | dict(trace.states)


def info_of(trace: Trace) -> dict[str, object]:
    return json.loads(trace.info.model_dump_json(by_alias=True))


def save(path: Path, tensors: dict[str, torch.Tensor], info: object) -> Path:
    """Write a file past all checks; `info` is an object, or text as it shall stand."""
    text = info if isinstance(info, str) else json.dumps(info)
    save_file({k: v.contiguous() for k, v in tensors.items()}, path, metadata={"trace": text})
    return path


def test_round_trip_keeps_every_value_and_the_record_names_the_file(trace, tmp_path):
    path = tmp_path / "new" / "t.trace.safetensors"
    written = write_trace(trace, path)
    back = read_trace(path)
    assert back.info == trace.info
    for name, tensor in tensors_of(trace).items():
        stored = tensors_of(back)[name]
        assert stored.dtype == tensor.dtype
        assert torch.equal(stored, tensor)
    assert (back.positions, back.sequences, back.hidden_size) == (5, 2, 4)
    assert back.record() == written.record()
    assert back.record().sha256 == sha256_file(path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_dtype_of_states_is_kept(trace, tmp_path, dtype):
    path = tmp_path / "t.trace.safetensors"
    write_trace(replace(trace, hidden=trace.hidden.to(dtype)), path)
    assert read_trace(path).hidden.dtype == dtype


def test_same_content_gives_same_bytes_and_one_metadata_key(trace, tmp_path):
    first, second, third = (tmp_path / f"{n}.trace.safetensors" for n in "abc")
    write_trace(trace, first)
    write_trace(replace(trace, hidden=trace.hidden.T.contiguous().T), second)
    write_trace(read_trace(first), third)
    assert first.read_bytes() == second.read_bytes() == third.read_bytes()
    raw = first.read_bytes()
    header = json.loads(raw[8 : 8 + struct.unpack("<Q", raw[:8])[0]])
    assert list(header["__metadata__"]) == ["trace"]


def test_a_trace_can_be_written_over_the_file_that_it_is_mapped_from(trace, tmp_path):
    path = tmp_path / "t.trace.safetensors"
    write_trace(trace, path)
    before = path.read_bytes()
    write_trace(read_trace(path), path)
    assert path.read_bytes() == before


def test_states_that_share_one_storage_are_written(trace, tmp_path):
    wide = torch.randn(5, 4)
    path = tmp_path / "t.trace.safetensors"
    write_trace(replace(trace, hidden=wide, states={"layer_1": wide}), path)
    assert torch.equal(read_trace(path).states["layer_1"], wide)


def test_a_failed_write_leaves_nothing(trace, tmp_path):
    with pytest.raises(UnreadableError, match=r"names the states \['layer_1'\].*holds \[\]"):
        write_trace(replace(trace, states={}), tmp_path / "t.trace.safetensors")
    with pytest.raises(UnreadableError, match="`token` is -7 at row 2"):
        bad = replace(trace, token=torch.tensor([1, 2, -7, 4, 5]))
        write_trace(bad, tmp_path / "t.trace.safetensors")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="needs a path that cannot be a folder")
def test_an_unwritable_place_is_a_usage_error(trace, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadUsageError, match="cannot be written"):
        write_trace(trace, tmp_path / "file" / "t.trace.safetensors")


def test_a_trace_in_no_file_has_no_record(trace):
    with pytest.raises(BadUsageError, match="in no file yet"):
        trace.record()


BAD_VALUES = {
    "token below zero": ("token", torch.tensor([1, 2, 3, -4, 5]), "`token` is -4 at row 3"),
    "oracle below -1": ("oracle", torch.tensor([2, -2, 3, 4, 5]), "`oracle` is -2 at row 1"),
    "int32": ("oracle", torch.tensor([2, 3, 1, 5, 6], dtype=torch.int32), "is int32, not int64"),
    "float64": ("hidden", torch.zeros(5, 4, dtype=torch.float64), "`hidden` is float64"),
    "flat hidden": ("hidden", torch.zeros(5), r"shape \[5\], not \[positions, width\]"),
    "no width": ("hidden", torch.zeros(5, 0), r"shape \[5, 0\]"),
    "square token": ("token", torch.zeros(5, 1, dtype=torch.int64), r"`token` has the shape"),
    "short column": ("position", torch.tensor([0, 1, 2, 0]), "`position` has 4 rows, `hidden`"),
    "short state": ("layer_1", torch.ones(4, 2), "`layer_1` has 4 rows, `hidden` has 5"),
    "starts late": ("sequence", torch.tensor([1, 1, 1, 2, 2]), "starts with 1, not 0"),
    "skips": ("sequence", torch.tensor([0, 0, 0, 2, 2]), "goes from 0 to 2 at row 3"),
    "returns": ("sequence", torch.tensor([0, 1, 0, 1, 1]), "goes from 1 to 0 at row 2"),
    "position gap": ("position", torch.tensor([0, 1, 3, 0, 1]), "is 3 at row 2, not 2"),
    "position runs on": ("position", torch.tensor([0, 1, 2, 3, 4]), "is 3 at row 3, not 0"),
}


@pytest.mark.parametrize("case", BAD_VALUES)
def test_values_that_no_trace_can_hold_are_refused(trace, tmp_path, case):
    name, tensor, message = BAD_VALUES[case]
    path = save(tmp_path / "t.safetensors", tensors_of(trace) | {name: tensor}, info_of(trace))
    with pytest.raises(UnreadableError, match=message) as caught:
        read_trace(path)
    assert caught.value.where == str(path)
    assert caught.value.hint


@pytest.mark.parametrize("name", [*FIELDS, "layer_1"])
def test_a_missing_tensor_is_named(trace, tmp_path, name):
    tensors = tensors_of(trace)
    del tensors[name]
    with pytest.raises(UnreadableError, match=f"lacks the tensor {name}"):
        read_trace(save(tmp_path / "t.safetensors", tensors, info_of(trace)))


def test_no_positions_at_all_is_refused(trace, tmp_path):
    empty = {name: tensor[:0] for name, tensor in tensors_of(trace).items()}
    with pytest.raises(UnreadableError, match="holds no positions"):
        read_trace(save(tmp_path / "t.safetensors", empty, info_of(trace)))


@pytest.mark.parametrize("name", ["hidden", "layer_1"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_states_fail_closed_with_their_rows(trace, tmp_path, name, value):
    tensors = tensors_of(trace) | {name: tensors_of(trace)[name].clone()}
    tensors[name][3, 1] = value
    message = rf"^NON_FINITE: 1/5 positions of `{name}` hold NaN or infinity \(rows 3\)"
    with pytest.raises(UnreadableError, match=message):
        read_trace(save(tmp_path / "t.safetensors", tensors, info_of(trace)))


BAD_INFO = {
    "no JSON": ("{", "trace metadata .* is invalid"),
    "NaN": ('{"schema_version": NaN}', "NaN is not JSON"),
    "a list": ([], "not a JSON object"),
    "empty": ({}, "is invalid: model: Field required"),
    "newer": ({"schema_version": 99}, "schema 99, newer than 1"),
}


@pytest.mark.parametrize("case", BAD_INFO)
def test_bad_metadata_is_refused(trace, tmp_path, case):
    info, message = BAD_INFO[case]
    with pytest.raises(UnreadableError, match=message):
        read_trace(save(tmp_path / "t.safetensors", tensors_of(trace), info))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"register": "nowhere"}, "register: Input should be"),
        ({"stage": "layer_3"}, "stage: Input should be"),
        ({"colour": "red"}, "colour: Extra inputs"),
        ({"states": [{"tensor": "hidden", "layer": 1}]}, "the name of a tensor of the format"),
        ({"states": [{"tensor": "counted", "layer": 1}]}, "the name of a tensor of the format"),
        ({"states": [{"tensor": "layer_1", "layer": 1}] * 2}, "two states have one name"),
    ],
)
def test_metadata_with_a_wrong_field_names_the_field(trace, tmp_path, change, message):
    path = save(tmp_path / "t.safetensors", tensors_of(trace), info_of(trace) | change)
    with pytest.raises(UnreadableError, match=message):
        read_trace(path)


def test_plain_weights_are_said_to_be_no_trace(tmp_path):
    save_file({"lm_head.weight": torch.zeros(2, 2)}, tmp_path / "head.safetensors")
    with pytest.raises(UnreadableError, match="is a safetensors file but not a trace"):
        read_trace(tmp_path / "head.safetensors")


@pytest.mark.parametrize("kept", [0, 5, 100, -1, -100])
def test_a_cut_file_is_refused(trace, tmp_path, kept):
    path = tmp_path / "t.trace.safetensors"
    write_trace(trace, path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UnreadableError, match="cannot be read as a safetensors file"):
        read_trace(path)


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path):
    with pytest.raises(NotFoundError, match="no trace at"):
        read_trace(tmp_path / "none.trace.safetensors")
    with pytest.raises(UnreadableError, match="is a folder"):
        read_trace(tmp_path)


def test_unnamed_tensors_and_metadata_of_other_tools_are_ignored(trace, tmp_path):
    path = tmp_path / "t.trace.safetensors"
    metadata = {"trace": json.dumps(info_of(trace)), "format": "pt"}
    save_file(tensors_of(trace) | {"more": torch.zeros(1)}, path, metadata=metadata)
    assert set(read_trace(path).states) == {"layer_1"}
    assert "more" in load_file(path)


def test_lookahead_rows_by_hand(trace):
    """Sequences (0, 1, 2) and (3, 4); the oracle at row 2 is -1.

    L = 1: every row but 2. L = 2: 0 -> 1 and 3 -> 4; 1 -> 2 has no oracle, 2 and 4 no next row.
    L = 3: only 0 -> 2, which has no oracle: nothing is left.
    """
    rows, targets = lookahead_rows(trace, 1)
    assert rows.tolist() == targets.tolist() == [0, 1, 3, 4]
    rows, targets = lookahead_rows(trace, 2)
    assert (rows.tolist(), targets.tolist()) == ([0, 3], [1, 4])
    for lookahead in (3, 5, 6, 99):
        with pytest.raises(MismatchError, match=f"no position .* {lookahead} tokens ahead"):
            lookahead_rows(trace, lookahead)
    full = replace(trace, oracle=torch.tensor([2, 3, 4, 5, 6]))
    assert [r.tolist() for r in lookahead_rows(full, 3)] == [[0], [2]]


def test_lookahead_below_one_is_a_usage_error(trace):
    with pytest.raises(BadUsageError, match="lookahead 0"):
        lookahead_rows(trace, 0)


def test_reading_traces_never_loads_transformers():
    code = "import sys, audit.traces; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
