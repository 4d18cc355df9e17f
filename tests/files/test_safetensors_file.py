"""Safetensors headers: what the library writes is read, what the format forbids is refused."""

from __future__ import annotations

import pytest
import torch
from file_writers import safetensors_bytes, tensor
from safetensors.torch import save, save_file

from audit.errors import AuditError, NotFoundError, UnreadableError, UnsupportedFormatError
from audit.files.opening import open_container

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E8M0": torch.float8_e8m0fnu,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "U16": torch.uint16,
    "U32": torch.uint32,
    "U64": torch.uint64,
    "BOOL": torch.bool,
}


@pytest.fixture
def refused(tmp_path):
    """Opens bytes as a safetensors file and gives the error."""

    def opened(data: bytes) -> AuditError:
        path = tmp_path / "model.safetensors"
        path.write_bytes(data)
        with pytest.raises(AuditError) as caught:
            open_container(path)
        assert "model.safetensors" in str(caught.value)
        return caught.value

    return opened


@pytest.mark.parametrize("encoding", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 4), (0, 4)])
def test_every_dtype_written_by_the_library_reads_back(tmp_path, encoding, shape):
    count = torch.Size(shape).numel()
    original = torch.arange(1, count + 1).to(DTYPES[encoding]).reshape(shape)
    path = tmp_path / "x.safetensors"
    save_file({"x": original, "odd.u8": torch.tensor([7], dtype=torch.uint8)}, path)
    container = open_container(path)
    entry = container.entries["x"]
    assert (entry.encoding, entry.shape, entry.path) == (encoding, shape, path)
    kind = original.dtype.is_floating_point
    expected = original.float() if kind else original.to(torch.int64)
    expected = original if encoding == "BOOL" else expected
    got = container.values("x")
    assert got.dtype == expected.dtype
    assert torch.equal(got, expected)


def test_tensors_that_the_header_misaligns_read_back(tmp_path):
    header = {"a": tensor("U8", [1], 0, 1), "b": tensor("F32", [2, 2], 1, 17)}
    values = torch.tensor([[1.5, -2.0], [0.0, 3.0]])
    path = tmp_path / "x.safetensors"
    path.write_bytes(safetensors_bytes(header, b"\x01" + values.numpy().tobytes()))
    container = open_container(path)
    assert container.entries["b"].offset % 4
    assert torch.equal(container.values("b"), values)
    assert container.rows_of("b").shape == (2, 8)


def test_metadata_and_config_are_given(tmp_path):
    save_file({"x": torch.zeros(2)}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert open_container(tmp_path).config is None
    (tmp_path / "config.json").write_text('{"vocab_size": 2, "limit": [0.0, Infinity]}')
    container = open_container(tmp_path)
    assert container.metadata == {"format": "pt"}
    assert container.config["vocab_size"] == 2


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1, "a": 2}', "[" * 100_000])
def test_malformed_config_is_unreadable(tmp_path, text):
    save_file({"x": torch.zeros(2)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UnreadableError, match=r"config\.json has content that is"):
        open_container(tmp_path)


@pytest.mark.parametrize("cut", [1, 100, 600])
def test_shard_shorter_than_its_header_says_how_much(refused, cut):
    data = save({"lm_head.weight": torch.zeros(16, 16), "norm": torch.zeros(4)})
    error = refused(data[:-cut])
    assert isinstance(error, UnreadableError)
    assert error.code == "FILE_CUT"
    assert error.exit_code == 2
    name = "norm" if cut == 1 else "lm_head.weight"
    missing = cut if cut == 1 else cut - 16
    assert f"{missing} bytes of tensor {name} are missing" in str(error)


def test_cut_inside_the_header(refused):
    data = save({"x": torch.zeros(4)})
    assert "bytes of its header are missing" in str(refused(data[:20]))
    assert "too few for a header" in str(refused(data[:5]))
    assert refused(b"").code == "FILE_CUT"


def test_absurd_header_length(refused):
    assert "the limit is 100000000" in str(refused(safetensors_bytes({}, length=2**63)))


@pytest.mark.parametrize("length", range(99_994, 100_001, 3))
def test_header_lengths_around_a_power_of_ten_are_read(tmp_path, length):
    path = tmp_path / "x.safetensors"
    text = '{"__metadata__": {"x": "%s"}}'
    path.write_bytes(safetensors_bytes(text % ("y" * (length - len(text) + 2))))
    assert open_container(path).entries == {}


F32 = tensor("F32", [2], 0, 8)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b"\xff{}", "not valid JSON"),
        ("{'a': 1}", "not valid JSON"),
        ("[1]", "not a JSON object"),
        ('{"a": {"b": ' + "[" * 50_000, "nested too deeply"),
        ('{"a": {}, "a": {}}', "'a' comes twice"),
        ('{"a": {"dtype": "F32", "dtype": "F16"}}', "'dtype' comes twice"),
        ({"a": 3}, "without dtype, shape and data_offsets"),
        ({"a": {"dtype": "F32", "shape": [2]}}, "without dtype, shape and data_offsets"),
        ({"a": tensor("F32", [-2], 0, 8)}, "impossible shape"),
        ({"a": tensor("F32", [True, 2], 0, 8)}, "impossible shape"),
        ({"a": tensor("F32", [2.0], 0, 8)}, "impossible shape"),
        ({"a": tensor("F32", "2", 0, 8)}, "impossible shape"),
        ({"a": tensor("F32", [1] * 40 + [2], 0, 8)}, "impossible shape"),
        ({"a": tensor("F32", [2**64 + 2], 0, 8)}, "impossible shape"),
        ({"a": tensor("F32", [2**62, 4, 2], 0, 8)}, "takes 147573952589676412928"),
        ({"a": tensor("F32", [2], 8, 0)}, "impossible offsets"),
        ({"a": tensor("F32", [2], -8, 0)}, "impossible offsets"),
        ({"a": tensor("F32", [2], False, 8)}, "impossible offsets"),
        ({"a": F32 | {"data_offsets": [0]}}, "impossible offsets"),
        ({"a": tensor("F32", [3], 0, 8)}, "gives tensor a 8 bytes, but F32 [3] takes 12"),
        ({"a": tensor("F4", [3], 0, 2)}, "gives tensor a 2 bytes, but F4 [3] takes 2"),
        ({"a": F32, "b": tensor("F32", [2], 4, 12)}, "overlap: a and b"),
        ({"a": F32, "b": F32}, "overlap: a and b"),
        ({"a": F32, "b": tensor("F32", [1], 12, 16)}, "4 bytes between a and b"),
        ({"a": tensor("F32", [3], 4, 16)}, "4 bytes between the header and a"),
        ({"a": F32}, "8 trailing bytes"),
        ({"__metadata__": {"a": 1}, "a": F32}, "strings to strings"),
        ({"__metadata__": [], "a": F32}, "strings to strings"),
        ({"a\nb": F32}, "can not be printed"),
        ('{"\\ud800": {}}', "can not be printed"),
        ('{"a": %s}' % ("9" * 5000), "not valid JSON"),
    ],
)  # fmt: skip
def test_forbidden_headers(refused, header, words):
    error = refused(safetensors_bytes(header, bytes(16)))
    assert isinstance(error, UnreadableError)
    assert words in str(error)


@pytest.mark.parametrize("dtype", ["F31", 7, None, "f32"])
def test_unknown_dtype(refused, dtype):
    error = refused(safetensors_bytes({"a": tensor(dtype, [2], 0, 8)}, bytes(8)))
    assert isinstance(error, UnsupportedFormatError)
    assert "tensor a" in str(error)
    assert "unknown dtype" in str(error)


def test_sub_byte_tensor_is_an_entry_without_values(tmp_path):
    path = tmp_path / "x.safetensors"
    header = {"a": tensor("F4", [2, 8], 0, 8), "b": tensor("F6_E2M3", [4], 8, 11)}
    path.write_bytes(safetensors_bytes(header, bytes(11)))
    container = open_container(path)
    assert container.entries["a"].nbytes == 8
    assert container.rows_of("a").shape == (2, 4)
    with pytest.raises(UnsupportedFormatError, match="F4 can not be decoded"):
        container.values("a")


def test_values_that_can_not_be_are_unreadable(tmp_path):
    path = tmp_path / "x.safetensors"
    header = {"t2d": tensor("BOOL", [2], 0, 2), "u": tensor("U64", [1], 2, 10)}
    path.write_bytes(safetensors_bytes(header, b"\x01\x02" + b"\xff" * 8))
    container = open_container(path)
    with pytest.raises(UnreadableError, match="other bytes than 0 and 1"):
        container.values("t2d")
    with pytest.raises(UnreadableError, match=r"2\^63"):
        container.values("u")


def test_unknown_name_suggests_near_ones(tmp_path):
    save_file({"lm_head.weight": torch.zeros(2, 2)}, tmp_path / "model.safetensors")
    with pytest.raises(NotFoundError, match=r"no tensor 'lm_head\.wieght'") as caught:
        open_container(tmp_path).bytes_of("lm_head.wieght")
    assert caught.value.hint == "did you mean lm_head.weight?"


def test_rows_of_a_vector_are_refused(tmp_path):
    save_file({"norm": torch.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(UnsupportedFormatError, match="not rows by columns"):
        open_container(tmp_path).rows_of("norm")


def test_file_that_shrank_after_opening(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"x": torch.zeros(64)}, path)
    container = open_container(path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(UnreadableError, match="changed since it was opened: 10 bytes"):
        container.bytes_of("x")


def test_bytes_are_one_shared_view(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"x": torch.arange(8)}, path)
    container = open_container(path)
    assert container.bytes_of("x").data_ptr() == container.bytes_of("x").data_ptr()
    assert path.read_bytes()[-64:] == bytes(container.bytes_of("x").tolist())
