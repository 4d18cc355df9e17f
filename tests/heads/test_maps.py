"""Vocabulary maps: the two encodings, every source, and what must never be guessed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from audit.errors import AuditError, BadUsageError, MismatchError, NotFoundError, UnreadableError
from audit.heads import HeadOptions, load_candidate, load_head, trim_reference
from audit.heads.head import Head
from audit.heads.vocab_map import drop_duplicates, read_id_list, resolve_d2t
from tests.heads.files import H, V, gguf_file, safetensors, weights

ROWS = [1, 5, 9, 13]


@pytest.fixture
def ref(tmp_path: Path) -> Head:
    return load_head(safetensors(tmp_path / "ref.safetensors", lm_head__weight=weights()))


def candidate(tmp_path: Path, ref: Head, options: HeadOptions | None = None, **more) -> Head:
    path = safetensors(tmp_path / "cand.safetensors", lm_head__weight=weights()[ROWS], **more)
    head = load_candidate(path, options or HeadOptions(), ref)
    assert isinstance(head, Head)
    return head


def offsets(ids: list[int]) -> torch.Tensor:
    return torch.tensor(ids) - torch.arange(len(ids))


def test_a_missing_map_is_never_identity(tmp_path: Path, ref: Head) -> None:
    with pytest.raises(MismatchError, match=r"MAP_MISSING: 4 rows < 16 ids and no d2t") as caught:
        candidate(tmp_path, ref)
    assert all(way in caught.value.hint for way in ("--map", "d2t", "--trim"))


@pytest.mark.parametrize("as_offsets", [True, False])
def test_d2t_of_either_encoding(tmp_path: Path, ref: Head, as_offsets: bool) -> None:
    # Read the other way, 13 + 3 runs past the vocabulary, and the offsets 1,4,7,10 are no ids
    # that t2d keeps.
    d2t = offsets(ROWS) if as_offsets else torch.tensor(ROWS)
    t2d = torch.zeros(V, dtype=torch.bool)
    t2d[ROWS] = True
    head = candidate(tmp_path, ref, d2t=d2t, t2d=t2d)
    assert head.ids.tolist() == ROWS and "t2d confirms" in (head.record.map_source or "")


def test_offsets_that_run_past_the_vocabulary_are_absolute() -> None:
    d2t = torch.tensor([0, 1, 2, 3, 4, 5])
    found = resolve_d2t(d2t, 8, None, "auto", Path("x"))
    assert found.ids.tolist() == [0, 1, 2, 3, 4, 5] and "absolute" in found.source


def test_repeated_values_are_offsets() -> None:
    found = resolve_d2t(torch.tensor([2, 2, 2, 5]), 16, None, "auto", Path("x"))
    assert found.ids.tolist() == [2, 3, 4, 8] and "offset" in found.source


def test_frequency_ordered_offsets_may_be_negative() -> None:
    ids = [9, 1, 13, 0]
    found = resolve_d2t(offsets(ids), 16, None, "auto", Path("x"))
    assert found.ids.tolist() == ids


def test_both_readings_fit_so_the_user_must_say() -> None:
    d2t = torch.tensor([1, 3, 4])
    with pytest.raises(MismatchError, match=r"MAP_AMBIGUOUS") as caught:
        resolve_d2t(d2t, 16, None, "auto", Path("x"))
    assert "--d2t-convention" in caught.value.hint
    assert resolve_d2t(d2t, 16, None, "offset", Path("x")).ids.tolist() == [1, 4, 6]
    assert resolve_d2t(d2t, 16, None, "absolute", Path("x")).ids.tolist() == [1, 3, 4]


def test_neither_reading_fits() -> None:
    with pytest.raises(MismatchError, match=r"MAP_RANGE.*outside 0..15, the first at row 1: 40"):
        resolve_d2t(torch.tensor([0, 40, 3]), 16, None, "auto", Path("x"))


def test_map_that_contradicts_t2d() -> None:
    t2d = torch.zeros(16, dtype=torch.bool)
    t2d[:4] = True
    with pytest.raises(MismatchError, match=r"agrees with t2d neither"):
        resolve_d2t(torch.tensor([7, 8, 9, 10]), 16, t2d, "auto", Path("x"))


def test_all_zero_map_of_a_smaller_head() -> None:
    zeros = torch.zeros(4, dtype=torch.int64)
    with pytest.raises(MismatchError, match=r"MAP_ZERO"):
        resolve_d2t(zeros, 16, None, "auto", Path("x"))
    assert resolve_d2t(zeros, 16, None, "offset", Path("x")).ids.tolist() == [0, 1, 2, 3]
    assert resolve_d2t(zeros, 4, None, "auto", Path("x")).ids.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_gguf_maps_are_absolute(tmp_path: Path, ref: Head, dtype: type) -> None:
    ids = [13, 1, 9, 5]
    tensors = {"output.weight": weights()[ids], "d2t": np.array(ids, dtype=dtype)}
    head = load_candidate(gguf_file(tmp_path / "c.gguf", tensors), HeadOptions(), ref)
    assert isinstance(head, Head) and head.ids.tolist() == ROWS
    assert torch.equal(head.rows.tile(0, 4), weights()[ROWS])


def test_t2d_alone_names_the_kept_ids(tmp_path: Path, ref: Head) -> None:
    t2d = torch.zeros(V, dtype=torch.bool)
    t2d[ROWS] = True
    assert candidate(tmp_path, ref, t2d=t2d).ids.tolist() == ROWS


@pytest.mark.parametrize("suffix", [".txt", ".json", ".npy", ".safetensors", ".pt"])
def test_map_files_of_every_kind(tmp_path: Path, ref: Head, suffix: str) -> None:
    path = tmp_path / f"map{suffix}"
    if suffix == ".txt":
        path.write_text("".join(f"{i}\n" for i in ROWS))
    elif suffix == ".json":
        path.write_text(json.dumps({"token_map": ROWS}))
    elif suffix == ".npy":
        np.save(path, np.array(ROWS, dtype=np.int32))
    elif suffix == ".safetensors":
        safetensors(path, ids=torch.tensor(ROWS))
    else:
        torch.save(ROWS, path)
    assert candidate(tmp_path, ref, HeadOptions(map=path)).ids.tolist() == ROWS


class _Runs:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("code from a stranger ran",))


def test_pickled_code_is_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(_Runs(), tmp_path / "map.pt")
    with pytest.raises(UnreadableError, match=r"not a list of ids"):
        read_id_list(tmp_path / "map.pt")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.txt", "1\ntwo\n", "line 2 holds 'two', which is no id"),
        ("a.txt", "1,2\n", "line 1 holds '1,2', which is no id"),
        ("a.txt", "9" * 5000, "line 1 holds '9{40}', which is no id"),
        ("a.txt", "", "it is empty"),
        ("a.json", "[]", "it is empty"),
        ("a.json", "[123456789012345678901234]", "something else than ids"),
        ("a.json", "[18446744073709551615]", "something else than ids"),
        ("a.json", '["one", "two"]', "something else than ids"),
        ("a.json", '{"a": [1], "b": [2]}', "2 lists"),
        ("a.json", "[1, 2.5]", "something else than ids"),
        ("a.json", "[[1], [2]]", r"it is a table of shape \[2, 1\]"),
        ("a.npy", "junk", "it can not be read as .npy"),
        ("a.pt", "junk", "it can not be read as .pt"),
    ],
)
def test_files_that_are_no_lists(tmp_path: Path, name: str, content: str, words: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UnreadableError, match=words):
        read_id_list(tmp_path / name)


def test_a_windows_list_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf5\r\n-1\r\n\r\n70 71\r\n")
    assert read_id_list(tmp_path / "a.txt").tolist() == [5, -1, 70, 71]


def test_missing_lists_and_unknown_suffixes(tmp_path: Path) -> None:
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(UnreadableError, match="it is a folder"):
        read_id_list(tmp_path / "folder.txt")
    with pytest.raises(NotFoundError):
        read_id_list(tmp_path / "none.txt")
    with pytest.raises(BadUsageError, match=r"\.csv"):
        read_id_list(tmp_path / "map.csv")


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([1, 5, 9], "3 entries for a head of 4 rows"),
        ([1, 5, 9, 16], "outside 0..15, the first at row 3: 16"),
        ([1, 5, 9, -1], "outside 0..15"),
        ([1, 5, 5, 9], "named by more than one row, the first is 5"),
    ],
)
def test_faulty_maps(tmp_path: Path, ref: Head, ids: list[int], words: str) -> None:
    path = tmp_path / "map.json"
    path.write_text(json.dumps(ids))
    with pytest.raises(MismatchError, match=f"MAP_RANGE.*{words}"):
        candidate(tmp_path, ref, HeadOptions(map=path))


def test_fr_spec_list_with_an_appended_stop_id(tmp_path: Path, ref: Head) -> None:
    torch.save([*ROWS, 1], tmp_path / "freq.pt")
    head = candidate(tmp_path, ref, HeadOptions(map=tmp_path / "freq.pt"))
    assert head.ids.tolist() == ROWS


def test_trim_cuts_the_references_own_rows(tmp_path: Path, ref: Head) -> None:
    card = tmp_path / "ranks.txt"
    card.write_text("13\n1\n9\n1\n5\n")
    head = trim_reference(ref, card)
    assert head.ids.tolist() == ROWS and not head.is_full
    assert torch.equal(head.rows.tile(0, 4), weights()[ROWS])
    assert "dropped: 1" in " ".join(head.record.notes)
    assert head.record.sha256 != ref.record.sha256
    card.write_text("99\n")
    with pytest.raises(MismatchError, match=r"MAP_RANGE"):
        trim_reference(ref, card)


@given(st.lists(st.integers(0, 30), min_size=1))
def test_duplicates_keep_their_first_place(ids: list[int]) -> None:
    assert drop_duplicates(torch.tensor(ids)).tolist() == list(dict.fromkeys(ids))


@given(st.sets(st.integers(0, 63), min_size=1, max_size=20), st.randoms())
def test_any_map_is_found_again_when_t2d_is_there(kept: set[int], random) -> None:
    ids = list(kept)
    random.shuffle(ids)
    t2d = torch.zeros(64, dtype=torch.bool)
    t2d[ids] = True
    if len(ids) == 64:
        return
    assert resolve_d2t(offsets(ids), 64, t2d, "auto", Path("x")).ids.tolist() == ids
    found = resolve_d2t(torch.tensor(ids), 64, t2d, "auto", Path("x")).ids
    assert sorted(found.tolist()) == sorted(ids)


def test_vocabularies_that_cannot_be_aligned(tmp_path: Path, ref: Head) -> None:
    path = safetensors(tmp_path / "c.safetensors", lm_head__weight=weights(18))
    with pytest.raises(AuditError, match=r"VOCABULARY: c.safetensors has 18 rows, .* has 16"):
        load_candidate(path, HeadOptions(), ref)


def test_hidden_sizes_differ(tmp_path: Path, ref: Head) -> None:
    path = safetensors(tmp_path / "c.safetensors", lm_head__weight=weights(V, H - 4))
    with pytest.raises(MismatchError, match=r"reads 28 hidden channels.* reads 32") as caught:
        load_candidate(path, HeadOptions(), ref)
    assert "--keep-index" in caught.value.hint


def test_a_narrower_head_with_its_kept_channels(tmp_path: Path, ref: Head) -> None:
    kept = [i for i in range(H) if i % 8]
    path = safetensors(tmp_path / "c.safetensors", lm_head__weight=weights()[:, kept])
    index = tmp_path / "keep.json"
    index.write_text(json.dumps(kept))
    head = load_candidate(path, HeadOptions(keep_index=index), ref)
    assert isinstance(head, Head)
    states = weights(3, H, seed=7)
    logits = head.project_in(states) @ head.rows.tile(0, V).T
    torch.testing.assert_close(logits, states[:, kept] @ weights()[:, kept].T)
    index.write_text(json.dumps(kept[:-1]))
    with pytest.raises(MismatchError, match=r"names 27 channels, the head has 28"):
        load_candidate(path, HeadOptions(keep_index=index), ref)
