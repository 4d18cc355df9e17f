"""What paths mean: files, shards, indexes, folders, links, and what is refused with which words."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from file_writers import SHARED, Raw, gguf_bytes, key_value, safetensors_bytes, tensor, u16
from file_writers import write_split as split
from safetensors.torch import load_file, save_file

from audit.errors import (
    AuditError,
    BadUsageError,
    MismatchError,
    NotFoundError,
    UnreadableError,
    UnsupportedFormatError,
)
from audit.files.opening import open_container

GOLDEN = SHARED / "golden" / "qwen35-mtp"
INDEX = "model.safetensors.index.json"
needs_golden = pytest.mark.skipif(not GOLDEN.exists(), reason="needs ../shared/golden")


def write_index(folder: Path, weight_map: object, name: str = INDEX) -> Path:
    path = folder / name
    path.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return path


@pytest.fixture
def sharded(tmp_path):
    """Two shards and their index: a in the first, b and c in the second."""
    first, second = (f"model-0000{n}-of-00002.safetensors" for n in (1, 2))
    save_file({"a": torch.ones(2)}, tmp_path / first, metadata={"format": "pt"})
    save_file({"b": torch.zeros(3), "c": torch.zeros(1)}, tmp_path / second)
    write_index(tmp_path, {"a": first, "b": second, "c": second})
    (tmp_path / "config.json").write_text('{"hidden_size": 2}')
    return tmp_path, first, second


@pytest.mark.parametrize("opened", ["", INDEX, "model-00001-of-00002.safetensors"])
def test_folder_index_and_shard_open_the_same_set(sharded, opened):
    folder, first, second = sharded
    container = open_container(folder / opened)
    assert container.path == folder / opened
    assert container.files == (folder / first, folder / second)
    assert set(container.entries) == {"a", "b", "c"}
    assert container.entries["b"].path == folder / second
    assert container.metadata == {"format": "pt"}
    assert container.config == {"hidden_size": 2}
    assert container.values("a").tolist() == [1.0, 1.0]


def test_file_that_the_index_does_not_list_is_opened_alone(sharded):
    folder, *_ = sharded
    save_file({"d2t": torch.arange(3)}, folder / "draft.safetensors")
    assert set(open_container(folder / "draft.safetensors").entries) == {"d2t"}


def test_missing_shard_is_named(sharded):
    folder, _, second = sharded
    (folder / second).unlink()
    with pytest.raises(NotFoundError, match=second):
        open_container(folder)


def test_tensor_that_its_shard_does_not_hold(sharded):
    folder, first, second = sharded
    write_index(folder, {"a": first, "b": second, "c": first})
    with pytest.raises(MismatchError, match=f"lists tensor c in {first}, which does not hold it"):
        open_container(folder)


def test_tensor_in_two_shards(sharded):
    folder, _, second = sharded
    save_file({"a": torch.zeros(1), "b": torch.zeros(3), "c": torch.zeros(1)}, folder / second)
    with pytest.raises(MismatchError, match="tensor a is in two shards"):
        open_container(folder)


@pytest.mark.parametrize(
    "shard", ["../x.safetensors", "/etc/passwd", "a/../../b", "..", "", "a\\b", "C:x", "a\0b", 3]
)
def test_shards_outside_the_folder(tmp_path, shard):
    write_index(tmp_path, {"a": shard})
    with pytest.raises(UnreadableError, match="which is not a file beside it"):
        open_container(tmp_path)


@pytest.mark.parametrize("shard", ["x" * 300, "sub/x.safetensors"])
def test_shards_that_can_not_be(tmp_path, shard):
    write_index(tmp_path, {"a": shard})
    with pytest.raises(AuditError, match=shard[:10]):
        open_container(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {}}'])
def test_malformed_index(tmp_path, text):
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(UnreadableError, match=INDEX):
        open_container(tmp_path)


def test_folder_with_one_safetensors_of_any_name(tmp_path):
    save_file({"a": torch.ones(2)}, tmp_path / "adapter.safetensors")
    assert set(open_container(tmp_path).entries) == {"a"}
    save_file({"b": torch.ones(2)}, tmp_path / "model.safetensors")
    assert set(open_container(tmp_path).entries) == {"b"}


def test_folders_that_could_mean_several_models(tmp_path):
    for name in ("one", "two"):
        save_file({"a": torch.ones(2)}, tmp_path / f"{name}.safetensors")
    with pytest.raises(BadUsageError, match=r"one\.safetensors, two\.safetensors") as caught:
        open_container(tmp_path)
    assert "name one of them" in caught.value.hint
    (tmp_path / "x.gguf").write_bytes(gguf_bytes())
    with pytest.raises(BadUsageError, match=r"one\.safetensors, two\.safetensors, x\.gguf"):
        open_container(tmp_path)


def test_index_beside_an_unlisted_single_file(sharded):
    folder, *_ = sharded
    save_file({"a": torch.ones(2)}, folder / "model.safetensors")
    with pytest.raises(BadUsageError, match=f"{INDEX}, model.safetensors"):
        open_container(folder)


def test_two_ggufs_in_a_folder(tmp_path):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(gguf_bytes())
    with pytest.raises(BadUsageError, match=r"a\.gguf, b\.gguf"):
        open_container(tmp_path)


def test_empty_folder_and_pickles(tmp_path):
    with pytest.raises(NotFoundError, match="holds no safetensors and no GGUF"):
        open_container(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK\x03\x04rest")
    for path in (tmp_path, tmp_path / "pytorch_model.bin"):
        with pytest.raises(UnsupportedFormatError, match="PyTorch pickle") as caught:
            open_container(path)
        assert "convert it to safetensors" in caught.value.hint


@pytest.mark.parametrize("data", [b"", b"\x80\x02}q", b"garbage, not a model"])
def test_pickle_by_suffix_or_magic(tmp_path, data):
    (tmp_path / "x.pt").write_bytes(data)
    with pytest.raises(UnsupportedFormatError, match="PyTorch pickle"):
        open_container(tmp_path / "x.pt")


def test_other_files_are_neither(tmp_path):
    (tmp_path / "x.txt").write_bytes(b"hello, this is text")
    with pytest.raises(UnsupportedFormatError, match="neither safetensors nor GGUF"):
        open_container(tmp_path / "x.txt")


def test_git_lfs_pointer(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(UnreadableError, match="Git LFS pointer"):
        open_container(path)


def test_missing_paths_suggest_near_ones(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "model.safetensors").write_bytes(b"")
    with pytest.raises(NotFoundError) as caught:
        open_container(tmp_path / "models" / "modle.safetensors")
    assert caught.value.hint.endswith("models/model.safetensors?")
    with pytest.raises(NotFoundError) as caught:
        open_container(tmp_path / "modles" / "model.safetensors")
    assert caught.value.hint == f"did you mean {tmp_path / 'models'}?"
    with pytest.raises(NotFoundError) as caught:
        open_container(tmp_path / "models" / "qqq")
    assert "nothing with a similar name" in caught.value.hint
    with pytest.raises(NotFoundError) as caught:
        open_container(tmp_path / "models" / "model.safetensors" / "x")
    assert "is not a folder" in caught.value.hint


@pytest.mark.parametrize("name", ["a\0b", "x" * 300])
def test_names_that_no_file_can_have(tmp_path, name):
    with pytest.raises(AuditError):
        open_container(tmp_path / name)


def test_pipes_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "x.gguf")
    with pytest.raises(UnreadableError, match="not a regular file"):
        open_container(tmp_path / "x.gguf")


def test_cache_snapshot_of_links(tmp_path):
    """Hugging Face's cache: snapshots/<commit>/<name> links to blobs/<hash> without suffix."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "c0ffee"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    save_file({"a": torch.ones(2)}, blobs / "aaa")
    (blobs / "bbb").write_text('{"vocab_size": 7}')
    (snapshot / "model.safetensors").symlink_to(Path("../../blobs/aaa"))
    (snapshot / "config.json").symlink_to(Path("../../blobs/bbb"))
    for path in (snapshot, snapshot / "model.safetensors"):
        container = open_container(path)
        assert container.config == {"vocab_size": 7}
        assert container.entries["a"].path == snapshot / "model.safetensors"
        assert container.values("a").tolist() == [1.0, 1.0]
    assert open_container(blobs / "aaa").format == "safetensors"
    (blobs / "ccc").write_bytes(gguf_bytes())
    assert open_container(blobs / "ccc").format == "gguf"
    (blobs / "bbb").unlink()
    with pytest.raises(NotFoundError, match=r"config\.json is a broken symbolic link"):
        open_container(snapshot)
    (blobs / "aaa").unlink()
    with pytest.raises(NotFoundError, match=r"broken symbolic link to .*blobs/aaa") as caught:
        open_container(snapshot)
    assert "blobs" in caught.value.hint


def test_loop_of_links(tmp_path):
    (tmp_path / "a.gguf").symlink_to(tmp_path / "b.gguf")
    (tmp_path / "b.gguf").symlink_to(tmp_path / "a.gguf")
    with pytest.raises(NotFoundError, match="broken symbolic link"):
        open_container(tmp_path / "a.gguf")


def test_sharded_snapshot_of_links(sharded):
    folder, first, second = sharded
    snapshot = folder / "snapshots"
    snapshot.mkdir()
    for number, name in enumerate((first, second, INDEX)):
        (folder / name).rename(folder / f"blob{number}")
        (snapshot / name).symlink_to(folder / f"blob{number}")
    assert set(open_container(snapshot).entries) == {"a", "b", "c"}
    assert set(open_container(snapshot / second).entries) == {"a", "b", "c"}


def test_any_shard_of_a_split_gguf_opens_the_set(tmp_path):
    paths = split(tmp_path)
    for path in (tmp_path, *paths):
        container = open_container(path)
        assert container.files == tuple(paths)
        assert container.metadata["general.name"] == "whole"
        for number in range(3):
            assert container.entries[f"t{number}"].path == paths[number]
            assert container.values(f"t{number}").tolist() == [float(number)] * 8


def test_two_split_sets_in_a_folder(tmp_path):
    split(tmp_path, "m")
    split(tmp_path, "n", 2)
    with pytest.raises(BadUsageError, match=r"m-00001-of-00003\.gguf, n-00001-of-00002\.gguf"):
        open_container(tmp_path)


def test_missing_split_shards_are_named(tmp_path):
    paths = split(tmp_path)
    paths[0].unlink()
    paths[1].unlink()
    with pytest.raises(NotFoundError, match=f"{paths[0].name}, {paths[1].name}"):
        open_container(paths[2])


def test_huge_split_count_in_a_name(tmp_path):
    (tmp_path / "m-00001-of-99999.gguf").write_bytes(gguf_bytes())
    with pytest.raises(NotFoundError, match="and 99993 more"):
        open_container(tmp_path)


def test_split_files_that_were_renamed(tmp_path):
    paths = split(tmp_path, count=2)
    first, second = (path.read_bytes() for path in paths)
    paths[0].write_bytes(second)
    paths[1].write_bytes(first)
    with pytest.raises(MismatchError, match="says that it is number 1"):
        open_container(tmp_path)
    paths[0].write_bytes(gguf_bytes())
    with pytest.raises(MismatchError, match="number None"):
        open_container(tmp_path)
    alone = tmp_path / "alone.gguf"
    alone.write_bytes(first)
    with pytest.raises(MismatchError, match="of 2 shards"):
        open_container(alone)


def test_split_count_of_tensors(tmp_path):
    values = [u16("split.no", 0), u16("split.count", 1), u16("split.tensors.count", 2)]
    path = tmp_path / "m-00001-of-00001.gguf"
    path.write_bytes(gguf_bytes([Raw("a", (8,), 0, 0)], values, bytes(32)))
    with pytest.raises(MismatchError, match="says that its set has 2 tensors, its files have 1"):
        open_container(path)
    path.write_bytes(gguf_bytes(values=[key_value("split.count", 2, b"\0\0")]))
    assert open_container(path).entries == {}


def test_tensor_in_two_splits(tmp_path):
    paths = split(tmp_path, count=2)
    values = [u16("split.no", 1), u16("split.count", 2)]
    paths[1].write_bytes(gguf_bytes([Raw("t0", (8,), 0, 0)], values, bytes(32)))
    with pytest.raises(MismatchError, match="tensor t0 is in two shards"):
        open_container(tmp_path)


def test_magic_decides_over_a_wrong_suffix(tmp_path):
    (tmp_path / "x.safetensors").write_bytes(gguf_bytes())
    assert open_container(tmp_path / "x.safetensors").format == "gguf"
    (tmp_path / "x.gguf").write_bytes(safetensors_bytes({"a": tensor("U8", [1], 0, 1)}, b"\0"))
    assert open_container(tmp_path / "x.gguf").format == "safetensors"


@needs_golden
def test_golden_checkpoint_has_the_same_head_in_both_formats():
    hf = open_container(GOLDEN / "hf")
    full = open_container(GOLDEN / "full-bf16.gguf")
    assert hf.config["vocab_size"] == 1024
    assert full.metadata["general.architecture"] == "qwen35"
    pairs = {
        "lm_head.weight": "output.weight",
        "model.embed_tokens.weight": "token_embd.weight",
        "mtp.fc.weight": "blk.4.nextn.eh_proj.weight",
    }
    for name, other in pairs.items():
        assert hf.entries[name].shape == full.entries[other].shape
        assert torch.equal(hf.bytes_of(name), full.bytes_of(other))
    assert len(hf.entries) == len(full.entries)
    # The converter adds the 1 of Qwen's (1 + w) norms.
    assert torch.equal(hf.values("model.norm.weight") + 1, full.values("output_norm.weight"))


@needs_golden
@pytest.mark.parametrize("kind", ["Q4_0", "Q4_K_M", "Q8_0", "bf16"])
def test_golden_quantized_heads_are_near_the_original(kind):
    weight = open_container(GOLDEN / "hf").values("lm_head.weight")
    head = open_container(GOLDEN / f"mtp-{kind}.gguf").values("output.weight")
    assert head.shape == weight.shape
    assert (head - weight).abs().max() < 0.1 * weight.abs().max()


@needs_golden
def test_golden_expected_file_reads_as_the_library_reads_it():
    container = open_container(GOLDEN / "expected.safetensors")
    for name, value in load_file(GOLDEN / "expected.safetensors").items():
        assert torch.equal(container.values(name).to(value.dtype), value)
