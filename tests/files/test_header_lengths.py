"""Header lengths whose bytes look like another format's magic."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from audit.files import open_container


@pytest.mark.parametrize("length", [640, 896, 1152, 1408])
def test_a_header_length_that_looks_like_a_pickle(tmp_path: Path, length: int) -> None:
    """640 is 80 02 00 .. in bytes, the start of a pickle of protocol 2."""
    entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    header = json.dumps({"lm_head.weight": entry}).encode().ljust(length)
    path = tmp_path / "head.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + header + bytes(4))
    assert list(open_container(path).entries) == ["lm_head.weight"]
