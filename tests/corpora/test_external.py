"""Sources: local files of every format through the same streaming code, filters, hashes, errors."""

from __future__ import annotations

import csv
import json
import unicodedata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from audit.corpora import corpus_documents, read_corpus, verify
from audit.corpora.external import pinned
from audit.corpora.fetching import fetch_corpus
from audit.corpora.keeping import script_share
from audit.errors import BadUsageError, MismatchError, NotFoundError, UnreadableError
from tests.corpora.making import sha256, source_corpus, source_toml

TEXTS = [f"Row {i} tells of {i * i} {'sheep' if i % 3 else 'geese'}." + " And on." * (i % 7)
         for i in range(60)]  # fmt: skip
ROWS = [{"id": i, "body": text, "meta": {"turns": [text]}} for i, text in enumerate(TEXTS)]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "never")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The same rows as JSON Lines, a JSON list, Parquet, CSV and one text file each."""
    folder = tmp_path / "odd [name] *"
    (folder / "texts").mkdir(parents=True)
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    (folder / "rows.json").write_text(json.dumps(ROWS))
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "rows.parquet")
    with (folder / "rows.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ["id", "body"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(ROWS)
    for i, text in enumerate(TEXTS):
        (folder / "texts" / f"{i:02}.txt").write_text(f"{text}\n\n\n\nsecond part")
    return folder


def drawn(
    folder: Path, documents: int, filter_: dict[str, Any] | None = None, **source: Any
) -> list[str]:
    """Texts drawn from JSON Lines unless `source` says otherwise."""
    base = {"kind": "local", "format": "json", "paths": ["rows.jsonl"], "column": "body"}
    corpus = source_corpus(folder, documents, base | source, filter_)
    found = corpus_documents(corpus)
    assert [d.name for d in found] == [f"{n:04}.txt" for n in range(1, len(found) + 1)]
    return [document.text for document in found]


def test_every_format_draws_the_same(folder: Path) -> None:
    expected = drawn(folder, 20)
    assert len(set(expected)) == 20 and set(expected) < set(TEXTS)
    for source in (
        {"paths": ["rows.json"]},
        {"format": "parquet", "paths": ["*.parquet"]},
        {"format": "parquet", "paths": ["rows.parquet"], "column": "meta.turns"},
        {"format": "csv", "paths": ["rows.csv"]},
    ):
        assert drawn(folder, 20, **source) == expected


def test_each_text_file_is_a_row(folder: Path) -> None:
    found = drawn(folder, 60, format="text", paths=["texts/*.txt"], column="text")
    assert sorted(found) == sorted(f"{text}\n\n\n\nsecond part" for text in TEXTS)
    assert found != sorted(found)


def test_a_seed_decides_everything(folder: Path) -> None:
    first = drawn(folder, 60, seed=5)
    assert first == drawn(folder, 60, seed=5) != drawn(folder, 60, seed=6)
    assert sorted(first) == sorted(TEXTS) and first != TEXTS
    assert drawn(folder, 13, seed=5) == first[:13]
    assert drawn(folder, 60, seed=5, buffer=1) == TEXTS


@pytest.mark.parametrize(
    ("filter_", "kept"),
    [
        ({"min_characters": 50}, lambda text: len(text) >= 50),
        ({"max_characters": 50}, lambda text: len(text) <= 50),
        ({"min_characters": 40, "max_characters": 60}, lambda text: 40 <= len(text) <= 60),
        ({"contains": ["geese"]}, lambda text: "geese" in text),
        ({"contains": ["geese", "on."]}, lambda text: "geese" in text and "on." in text),
        ({"excludes": ["geese", "Row 1"]}, lambda text: "geese" not in text and "Row 1" not in text),
        ({"script": "LATIN", "min_script_share": 1.0}, lambda text: True),
    ],
)
def test_filters_against_brute_force(folder: Path, filter_: dict[str, Any], kept: Any) -> None:
    everything = drawn(folder, 60, seed=2)
    expected = [text for text in everything if kept(text)]
    assert 0 < len(expected)
    assert drawn(folder, len(expected), filter_, seed=2) == expected
    assert drawn(folder, 3, filter_, seed=2) == expected[:3]


def test_scripts_are_told_apart() -> None:
    mixed = "Слово word שלום 字字 12 ..."
    letters = [c for c in mixed if c.isalpha()]
    counts = {"CYRILLIC": 5, "LATIN": 4, "HEBREW": 4, "CJK": 2, "GREEK": 0}
    assert len(letters) == sum(counts.values())
    for script, count in counts.items():
        assert script_share(mixed, script) == count / len(letters)
    assert script_share("1234 ...", "LATIN") == 0.0
    assert unicodedata.name("字").startswith("CJK ")


def test_blank_null_and_repeated_rows_are_left_out(folder: Path) -> None:
    rows = [{"body": text} for text in ("a one", None, "", " \n", "a one", "\ufeffb two", "c")]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert sorted(drawn(folder, 3)) == ["a one", "b two", "c"]
    with pytest.raises(BadUsageError, match="only 3 different ones of 7 rows pass"):
        drawn(folder, 4)


def test_a_filter_that_keeps_nothing_does_not_read_for_ever(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("audit.corpora.external._ROWS_PER_DOCUMENT", 10)
    with pytest.raises(BadUsageError, match="only 0 different ones of 20 rows pass"):
        drawn(folder, 2, {"contains": ["nothing has this"]})


def test_the_hash_of_what_is_drawn(folder: Path) -> None:
    texts = drawn(folder, 4)
    lines = "".join(f"{sha256(t.encode())}  documents/{n:04}.txt\n" for n, t in enumerate(texts, 1))
    right = sha256(lines.encode())
    source = {"kind": "local", "format": "json", "paths": ["rows.jsonl"], "column": "body"}
    text = source_toml(4, source)
    path = folder / "manifest.toml"
    path.write_text(text.replace("documents = 4", f'documents = 4\nsha256 = "{right}"'))
    assert [document.text for document in corpus_documents(read_corpus(folder))] == texts
    path.write_text(text.replace("documents = 4", f'documents = 4\nsha256 = "{"0" * 64}"'))
    with pytest.raises(MismatchError, match=f"sha256 is {right}"):
        corpus_documents(read_corpus(folder))


def test_a_fetched_corpus_is_a_corpus_of_its_own(folder: Path, tmp_path: Path) -> None:
    texts = drawn(folder, 5, seed=9)
    source = read_corpus(folder)
    seen: list[tuple[int, int]] = []
    kept = fetch_corpus(source, tmp_path / "kept", progress=lambda *state: seen.append(state))
    assert seen == [(n, 5) for n in range(1, 6)]
    (folder / "rows.jsonl").unlink()
    again = read_corpus(tmp_path / "kept")
    assert again == kept and not again.external and "seed 9" in str(again.manifest.source)
    verify(again)
    assert [document.text for document in corpus_documents(again)] == texts
    with pytest.raises(BadUsageError, match="holds its text already"):
        fetch_corpus(again, tmp_path / "twice")
    with pytest.raises(BadUsageError, match="is there already"):
        fetch_corpus(source, tmp_path / "kept")
    with pytest.raises(BadUsageError, match="has no revision"):
        fetch_corpus(source, tmp_path / "third", revision="a" * 40)
    assert pinned(source) is source and not (tmp_path / "third").exists()


def test_files_that_are_missing_or_elsewhere(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"names 'no/\*\.jsonl', but there is no such file"):
        drawn(folder, 1, paths=["rows.jsonl", "no/*.jsonl"])
    (tmp_path / "secret.jsonl").write_text('{"body": "secret"}')
    (folder / "link.jsonl").symlink_to(tmp_path / "secret.jsonl")
    with pytest.raises(UnreadableError, match="leads out of the corpus folder"):
        drawn(folder, 1, paths=["link.jsonl"])
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "secret.jsonl").write_text('{"body": "secret"}')
    (folder / "way").symlink_to(tmp_path / "more")
    with pytest.raises(UnreadableError, match="leads out of the corpus folder"):
        drawn(folder, 1, paths=["way/*.jsonl"])


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"column": "nope"}, "row 1 of made after the shuffle: there is no field 'nope'"),
        ({"column": "id"}, "row 1 of made after the shuffle: 'id' is a number"),
        ({"paths": ["texts/01.txt"]}, "datasets cannot read the files of made: JSON parse error"),
        ({"format": "parquet"}, "datasets cannot read the files of made: Parquet magic"),
    ],
)
def test_wrong_files_are_said_in_a_sentence(
    folder: Path, source: dict[str, Any], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UnreadableError, match=words) as caught:
        drawn(folder, 1, **source)
    assert caught.value.hint and capfd.readouterr() == ("", "")


def test_nothing_is_left_in_the_users_cache(folder: Path, tmp_path: Path) -> None:
    drawn(folder, 2)
    assert not (tmp_path / "never").exists()
