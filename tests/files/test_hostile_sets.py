"""Sets of shards, configurations and headers that want too much: refused, and at what cost."""

from __future__ import annotations

import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import pytest
import torch
from file_writers import (
    ARRAY,
    STRING,
    U8,
    U16,
    Raw,
    gguf_bytes,
    key_value,
    safetensors_bytes,
    string,
    tensor,
    u16,
    u32,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from audit.errors import AuditError, BadUsageError, MismatchError, NotFoundError, UnreadableError
from audit.files.opening import open_container
from audit.heads import HeadOptions
from audit.inspection import inspect_head

INDEX = "model.safetensors.index.json"
FACTOR = 40
"""Bytes of Python objects per byte of the file: an empty list takes 64 and is 3 bytes of JSON."""


def shard(folder: Path, number: int, count: int, name: str, stem: str = "model") -> Path:
    path = folder / f"{stem}-{number:05d}-of-{count:05d}.safetensors"
    save_file({name: torch.ones(4, 8)}, path)
    return path


def test_shards_without_an_index_are_one_set(tmp_path):
    first, second = (shard(tmp_path, n, 2, f"t{n}") for n in (1, 2))
    for opened in (first, second, tmp_path):
        assert set(open_container(opened).entries) == {"t1", "t2"}
    second.unlink()
    for opened in (first, tmp_path):
        with pytest.raises(NotFoundError, match=second.name):
            open_container(opened)


def test_an_index_that_leaves_a_shard_out(tmp_path):
    first, _, third = (shard(tmp_path, n, 3, f"t{n}") for n in (1, 2, 3))
    weight_map = {"t1": first.name, "t3": third.name}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(MismatchError, match=r"named model-\*-of-00003, and number 2 is not"):
        open_container(tmp_path)
    other = shard(tmp_path, 1, 1, "t9", stem="other")
    weight_map = {
        "t9": other.name,
        **{f"t{n}": f"model-{n:05d}-of-00003.safetensors" for n in (1, 2, 3)},
    }
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(MismatchError, match="beside those of another set"):
        open_container(tmp_path)


def test_split_and_single_files_in_one_folder(tmp_path):
    for n in (1, 2):
        shard(tmp_path, n, 2, f"t{n}")
    save_file({"a": torch.ones(2)}, tmp_path / "model.safetensors")
    # Without an index nothing says that the set is meant, and model.safetensors is what is loaded.
    assert set(open_container(tmp_path).entries) == {"a"}
    save_file({"a": torch.ones(2)}, tmp_path / "other.safetensors")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(BadUsageError, match=r"model-00001-of-00002\.safetensors, other"):
        open_container(tmp_path)
    data = gguf_bytes([Raw("t", (8,), 0, 0)], [u16("split.no", 0)], bytes(32))
    (tmp_path / "s").mkdir()
    for name in ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "single.gguf"):
        (tmp_path / "s" / name).write_bytes(data)
    with pytest.raises(BadUsageError, match=r"m-00001-of-00002\.gguf, single\.gguf"):
        open_container(tmp_path / "s")


def test_a_shard_that_is_a_dangling_link(tmp_path):
    shard(tmp_path, 1, 2, "t1")
    (tmp_path / "model-00002-of-00002.safetensors").symlink_to(tmp_path / "blobs" / "gone")
    with pytest.raises(NotFoundError, match="broken symbolic link"):
        open_container(tmp_path)


def opened(folder: Path, data: bytes, name: str):
    path = folder / name
    path.write_bytes(data)
    return open_container(path)


TENSOR = [Raw("w", (8,), 0, 0)]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (
            key_value("general.architecture", U8, b"\x07"),
            "general.architecture, which is not a word",
        ),
        (key_value("general.architecture", STRING, string("x" * 99)), "not a word of up to 64"),
        (key_value("general.architecture", STRING, string("a\nb")), "not a word"),
        (u32("tokenizer.ggml.tokens", 3), "tokenizer.ggml.tokens, which is not a list of texts"),
        (
            key_value("tokenizer.ggml.token_type", STRING, string("x")),
            "not a list of whole numbers",
        ),
        (key_value("llama.block_count", STRING, string("4")), "not a whole number"),
        (key_value("llama.nextn_predict_layers", ARRAY, struct.pack("<IQ", U8, 0)), "whole number"),
        (u32("llama.vocab_size", 2**32 - 1), "not a whole number up to 2147483647"),
        (key_value("split.count", STRING, string("2")), "split.count, which is not a whole number"),
        (key_value("k" * 1025, U8, b"\0"), "a key of 1025 bytes"),
    ],
)
def test_key_values_of_another_kind(tmp_path, value, words):
    with pytest.raises(UnreadableError, match=words):
        opened(tmp_path, gguf_bytes(TENSOR, [value], bytes(32)), "m.gguf")


def test_names_too_long_to_be_shown(tmp_path):
    with pytest.raises(UnreadableError, match="a tensor name of 5000 bytes"):
        opened(tmp_path, gguf_bytes([Raw("n" * 5000, (8,), 0, 0)], data=bytes(32)), "m.gguf")
    header = {"n" * 5000: tensor("U8", [1], 0, 1)}
    with pytest.raises(UnreadableError, match="whose name has 5000 characters") as caught:
        opened(tmp_path, safetensors_bytes(header, b"\0"), "m.safetensors")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("opener", ["[", '{"a":'])
@pytest.mark.parametrize("depth", [70, 900, 200_000])
def test_deep_nesting_in_every_json(tmp_path, opener, depth):
    closer = "]" if opener == "[" else "}"
    deep = '{"x": ' + opener * depth + "0" + closer * depth + "}"
    with pytest.raises(UnreadableError, match="nested too deeply"):
        opened(tmp_path, safetensors_bytes(deep), "m.safetensors")
    save_file({"lm_head.weight": torch.eye(4)}, tmp_path / "m.safetensors")
    for name in ("config.json", INDEX):
        (tmp_path / name).write_text(deep)
        with pytest.raises(UnreadableError, match="nested too deeply"):
            open_container(tmp_path / "m.safetensors")
        (tmp_path / name).unlink()


def test_a_configuration_of_gigabytes_is_not_read(tmp_path):
    save_file({"lm_head.weight": torch.eye(4)}, tmp_path / "m.safetensors")
    with (tmp_path / "config.json").open("wb") as stream:
        stream.truncate(1 << 34)  # a sparse file: it takes no disk
    with pytest.raises(UnreadableError, match="larger than"):
        open_container(tmp_path / "m.safetensors")
    (tmp_path / "config.json").unlink()
    with (tmp_path / INDEX).open("wb") as stream:
        stream.truncate(1 << 34)
    with pytest.raises(UnreadableError, match="larger than"):
        open_container(tmp_path / "m.safetensors")


@pytest.mark.parametrize("number", ["1" + "0" * 400, "1e999", "-1", "1e30", "NaN", '"8"', "[8]"])
@pytest.mark.parametrize("key", ["vocab_size", "hidden_size", "num_hidden_layers", "eos_token_id"])
def test_numbers_that_no_model_has(tmp_path, key, number):
    save_file({"lm_head.weight": torch.randn(4, 8)}, tmp_path / "m.safetensors")
    (tmp_path / "config.json").write_text(f'{{"{key}": {number}, "model_type": "llama"}}')
    try:
        inspect_head(tmp_path, HeadOptions()).model_dump_json()
    except AuditError as error:
        assert len(str(error)) < 1000


def hostile(size: int) -> dict[str, bytes]:
    """Files of about `size` bytes that want as much memory as they can get."""
    count = size // 3
    strings = struct.pack("<IQ", STRING, size // 8) + bytes(8 * (size // 8))
    nested = struct.pack("<IQ", ARRAY, size // 12) + struct.pack("<IQ", U8, 0) * (size // 12)
    numbers = struct.pack("<IQ", U16, size // 2) + b"\xff\x7f" * (size // 2)
    infos = [Raw(f"{n:x}", (0,), 0, 0) for n in range(size // 32)]
    keys = [key_value(f"{n:x}", U8, b"\0") for n in range(size // 18)]
    cut = struct.pack("<IQ", STRING, size // 8) + bytes(8 * (size // 8) - 8) + b"\xff" * 8
    return {
        "lists.safetensors": safetensors_bytes('{"a":[' + "[]," * count + "0]}"),
        "objects.safetensors": safetensors_bytes('{"a":[' + "{}," * count + "0]}"),
        "names.safetensors": safetensors_bytes(
            "{" + ",".join(f'"{n:x}":0' for n in range(size // 9)) + "}"
        ),
        "strings.gguf": gguf_bytes(values=[key_value("k", ARRAY, strings)]),
        "cut.gguf": gguf_bytes(values=[key_value("k", ARRAY, cut)]),
        "nested.gguf": gguf_bytes(values=[key_value("k", ARRAY, nested)]),
        "numbers.gguf": gguf_bytes(values=[key_value("k", ARRAY, numbers)]),
        "tensors.gguf": gguf_bytes(infos),
        "keys.gguf": gguf_bytes(values=keys),
    }


@pytest.mark.parametrize("name", hostile(64))
def test_memory_is_bounded_by_the_files_size(tmp_path, name):
    data = hostile(60_000)[name]
    started = time.process_time()
    tracemalloc.start()
    try:
        opened(tmp_path, data, name)
    except AuditError as error:
        assert len(str(error)) < 1000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < FACTOR * len(data), f"{peak / len(data):.0f} bytes per byte"
    assert time.process_time() - started < 20


_CHILD = """
import resource, sys
from pathlib import Path
from audit.errors import AuditError
from audit.files.opening import open_container
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = used + int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for name in sys.argv[2:]:
    try:
        open_container(Path(name))
    except AuditError:
        pass
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited on Linux only")
def test_a_process_with_little_memory_reads_them_all(tmp_path):
    """Every hostile file of 400 KB, and claims of 2^60 things, within 24 MB of address space."""
    assert hasattr(resource, "RLIMIT_AS")
    size = 400_000
    files = hostile(size) | {
        "claims.gguf": gguf_bytes(counts=(2**60, 2**60)),
        "claims2.gguf": gguf_bytes(
            values=[key_value("k", ARRAY, struct.pack("<IQ", STRING, 2**59))]
        ),
        "claims3.safetensors": struct.pack("<Q", 99_000_000) + b"{",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    names = [str(tmp_path / name) for name in files]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(size * FACTOR + (8 << 20)), *names],
        capture_output=True, text=True, timeout=120, env=environment,
    )  # fmt: skip
    assert done.stdout.strip() == "done", done.stderr[-2000:]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["model", "vocab", "added_tokens", "id", "content", "decoder", "type", "decoders",
             "text_config", "quantization", "config_groups", "targets", "weights", "a"]
        ),
        inner,
        max_size=3,
    ),
    max_leaves=8,
)  # fmt: skip
KEYS = (
    "model_type", "vocab_size", "hidden_size", "text_config", "tie_word_embeddings",
    "eos_token_id", "final_logit_softcapping", "logit_scale", "rms_norm_eps", "suppress_tokens",
    "quantization_config", "num_nextn_predict_layers", "mtp_num_hidden_layers", "model",
    "added_tokens", "unpadded_vocab_size", "num_hidden_layers", "my_logit_scale", "quant_algo",
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.sampled_from(KEYS), JSON, max_size=5),
    st.sampled_from(
        ["config.json", "generation_config.json", "tokenizer.json", "hf_quant_config.json",
         "quantize_config.json"]
    ),
)  # fmt: skip
def test_any_configuration_is_read_or_refused(content, name):
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        save_file({"lm_head.weight": torch.randn(4, 8)}, folder / "model.safetensors")
        (folder / name).write_text(json.dumps(content))
        try:
            inspect_head(folder, HeadOptions()).model_dump_json()
        except AuditError as error:
            assert error.as_json()["error"]["message"]


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["lm_head.weight", "d2t", "t2d", "model.norm.weight", "x"]),
        st.fixed_dictionaries(
            {
                "dtype": st.sampled_from(["F32", "BF16", "U8", "I64", "BOOL", "F4", "F8_E4M3", 3]),
                "shape": st.lists(
                    st.sampled_from([0, 1, 2, 4, 8, 2**31, 2**62, 2**63, -1, 1.0, True, None]),
                    max_size=4,
                ),
                "data_offsets": st.lists(
                    st.sampled_from([0, 1, 8, 16, 32, 64, 2**63 - 1, 2**64, -8, "8"]), max_size=3
                ),
            }
        ),
        max_size=3,
    ),
    st.integers(0, 70),
)
def test_any_header_is_read_or_refused(header, size):
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "m.safetensors"
        path.write_bytes(safetensors_bytes(header, bytes(size)))
        try:
            container = open_container(path)
        except AuditError as error:
            assert len(str(error)) < 1000
            return
        spans = sorted((e.offset, e.offset + (e.nbytes or 0)) for e in container.entries.values())
        # The oracle: the entries tile the data without a hole.
        at = 8 + int.from_bytes(path.read_bytes()[:8], "little")
        for begin, end in spans:
            assert begin == at
            at = end
        assert at == path.stat().st_size
