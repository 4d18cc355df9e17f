"""Manifests: what is read, what is refused, and what verifying finds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from audit.corpora import Document, corpus_documents, find_corpus, load_corpora, read_corpus, verify
from audit.corpora.manifest import Manifest
from audit.corpora.writing import manifest_toml, sealed, write_corpus
from audit.errors import BadUsageError, NotFoundError, UnreadableError
from tests.corpora.making import HEAD, sha256, source_toml, stored_corpus, stored_toml

TEXT = {"b.txt": "zwei\r\n".encode(), "a.txt": "one\n".encode()}
LOCAL = {"kind": "local", "format": "json", "paths": ["x.jsonl"]}
HUB = {"kind": "hub", "id": "me/set", "revision": "main"}


def test_text_is_checked_and_read_in_the_order_of_names(tmp_path: Path) -> None:
    corpus = stored_corpus(tmp_path / "c", TEXT)
    verify(corpus)
    assert corpus_documents(corpus) == [Document("a.txt", "one\n"), Document("b.txt", "zwei\r\n")]


def test_the_hash_is_what_sha256sum_prints(tmp_path: Path) -> None:
    corpus = stored_corpus(tmp_path / "c", TEXT)
    printed = subprocess.run(
        "sha256sum documents/*", shell=True, cwd=corpus.folder, capture_output=True, check=True
    ).stdout
    assert corpus.manifest.sha256 == sha256(printed)
    documents = corpus_documents(corpus)
    assert sealed(corpus.manifest, documents) == corpus.manifest


def test_every_difference_is_named(tmp_path: Path) -> None:
    names = [f"{n:02}.txt" for n in range(30)]
    corpus = stored_corpus(tmp_path / "c", {name: name.encode() for name in names})
    folder = corpus.folder / "documents"
    for name in names[:12]:
        (folder / name).unlink()
    for name in names[12:20]:
        (folder / name).write_text("other")
    (folder / "extra.txt").write_text("x")
    (folder / "sub").mkdir()
    with pytest.raises(UnreadableError) as caught:
        verify(corpus)
    found = dict.fromkeys(re.findall(r"(\w+) documents/([\w.]+)", caught.value.message))
    assert list(found) == [
        *(("missing", name) for name in names[:12]),
        *(("changed", name) for name in names[12:20]),
        ("extra", "extra.txt"),
        ("extra", "sub"),
    ]
    with pytest.raises(UnreadableError, match="made: missing documents/00.txt"):
        corpus_documents(corpus)


def test_several_corpora_are_verified_to_the_end(tmp_path: Path) -> None:
    corpora = [stored_corpus(tmp_path / name, TEXT) for name in ("one", "two", "three")]
    (corpora[0].folder / "documents/a.txt").write_text("x")
    (corpora[2].folder / "documents/b.txt").unlink()
    with pytest.raises(UnreadableError, match=r"changed documents/a\.txt.*missing documents/b"):
        verify(*corpora)
    verify(corpora[1])


def test_a_hash_that_is_not_that_of_the_files(tmp_path: Path) -> None:
    corpus = stored_corpus(tmp_path / "c", TEXT)
    path = corpus.folder / "manifest.toml"
    path.write_text(re.sub(r'(?m)^sha256 = "\w+"', f'sha256 = "{"0" * 64}"', path.read_text()))
    with pytest.raises(UnreadableError, match=r"sha256 is not the hash of \[files\]"):
        verify(read_corpus(corpus.folder))


def test_links_lead_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(TEXT["a.txt"])
    corpus = stored_corpus(tmp_path / "c", TEXT)
    (corpus.folder / "documents/a.txt").unlink()
    (corpus.folder / "documents/a.txt").symlink_to(secret)
    with pytest.raises(UnreadableError, match="leading elsewhere documents/a.txt"):
        verify(corpus)
    outside = stored_corpus(tmp_path / "d", TEXT)
    inside = tmp_path / "e"
    inside.mkdir()
    (inside / "documents").symlink_to(outside.folder / "documents")
    (inside / "manifest.toml").write_text(stored_toml(TEXT))
    with pytest.raises(UnreadableError, match=r"elsewhere documents/a\.txt, leading elsewhere"):
        verify(read_corpus(inside))


def refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "manifest.toml").write_text(text)
    with pytest.raises(UnreadableError, match=words) as caught:
        read_corpus(tmp_path)
    assert caught.value.where == str(tmp_path / "manifest.toml") and caught.value.hint


@pytest.mark.parametrize(
    "key", ["schema", "name", "register", "language", "title", "description", "licence"]
)
def test_every_key_is_needed(tmp_path: Path, key: str) -> None:
    text = re.sub(rf"(?m)^{key} = .*\n", "", stored_toml(TEXT))
    refused(tmp_path, text, f"{key}: Field required")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('name = "made"', 'name = "made"\nauthor = "me"'), "author: Extra inputs"),
        (("schema = 1", "schema = 2"), "schema: Input should be 1"),
        (('name = "made"', 'name = "../made"'), "name: String should match"),
        (("domain_shift", "elsewhere"), "register: Input should be"),
        (("documents = 2", "documents = 3"), r"documents is 3, but \[files\] lists 2"),
        (("documents = 2", "documents = 0"), "documents: Input should be greater"),
        (('source = "a test"', 'source = ""'), "source: String should have"),
        (('source = "a test"\n', ""), "source: Field required"),
        (('"a.txt" = "', '"a.txt" = "x'), "files.a.txt: String should match"),
        (("[files]", "[texts]"), "texts: Extra inputs"),
        (("[files]", "[files"), "Expected ']'"),
    ],
)
def test_wrong_keys_are_named(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    text = stored_toml(TEXT)
    assert change[0] in text
    refused(tmp_path, text.replace(*change), words)


@pytest.mark.parametrize("name", ["../x.txt", "a/b.txt", "..", "", "/etc/passwd", "a\\\\b"])
def test_files_cannot_be_named_outside(tmp_path: Path, name: str) -> None:
    text = stored_toml({"a.txt": b"x"}).replace('"a.txt"', f'"{name}"')
    refused(tmp_path, text, "is not the plain name of a file")


@pytest.mark.parametrize("path", ["../x.jsonl", "a/../../x", "/etc/*", "~/x", "", "a\\\\b"])
def test_sources_cannot_be_named_outside(tmp_path: Path, path: str) -> None:
    text = source_toml(1, {**LOCAL, "paths": ["good.jsonl", path]})
    refused(tmp_path, text, r"source\.paths\.1: .* does not stay inside")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({k: v for k, v in HUB.items() if k != "revision"}, "source.revision: Field required"),
        ({k: v for k, v in HUB.items() if k != "id"}, "source.id: Field required"),
        ({**HUB, "id": "set"}, "source.id: String should match"),
        ({**HUB, "id": "../../etc/passwd"}, "source.id: String should match"),
        ({**HUB, "paths": ["x"]}, "source.paths: Extra inputs"),
        ({**LOCAL, "revision": "main"}, "source.revision: Extra inputs"),
        ({**LOCAL, "format": "pickle"}, "source.format: Input should be"),
        ({**LOCAL, "paths": []}, "source.paths: Tuple should have at least 1"),
        ({**LOCAL, "seed": -1}, "source.seed: Input should be greater"),
        ({**LOCAL, "buffer": 0}, "source.buffer: Input should be greater"),
        ({**LOCAL, "kind": "ftp"}, "source: it is neither words nor a table of kind 'hub' or"),
        ({**LOCAL, "kind": "words"}, "source: it is neither words nor a table"),
        ({"format": "json"}, "source: it is neither words nor a table"),
    ],
)
def test_wrong_sources_are_named(tmp_path: Path, source: dict[str, object], words: str) -> None:
    refused(tmp_path, source_toml(1, source), words)


def test_wrong_filters_are_named(tmp_path: Path) -> None:
    for key, value in (("min_script_share", 1.5), ("min_characters", 0), ("regex", "x")):
        refused(tmp_path, source_toml(1, LOCAL, {key: value}), rf"source\.filter\.{key}: ")


def test_text_and_source_exclude_each_other(tmp_path: Path) -> None:
    refused(tmp_path, source_toml(1, LOCAL) + f'[files]\n"a" = "{"0" * 64}"\n', "exclude each other")
    refused(tmp_path, f'{HEAD}source = "words"\ndocuments = 1\n', r"needs \[files\] and sha256")


def test_a_manifest_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"there is no manifest\.toml"):
        read_corpus(tmp_path)
    with pytest.raises(NotFoundError, match="there is no corpus in"):
        load_corpora(tmp_path)
    for data in (b"\xff", b"x = " + b"[" * 100_000, b"source = 5"):
        (tmp_path / "manifest.toml").write_bytes(data)
        with pytest.raises(UnreadableError, match="not a corpus manifest"):
            read_corpus(tmp_path)


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    odd = 'quote " and \\ and \x7f and \x01 and \N{GRINNING FACE} and \u2028'
    for text in (
        stored_toml(TEXT),
        source_toml(3, {**HUB, "config": "c d", "seed": 7}, {"contains": ["x"], "script": "CJK"}),
        source_toml(3, LOCAL),
    ):
        (tmp_path / "manifest.toml").write_text(text)
        manifest = read_corpus(tmp_path).manifest.model_copy(update={"description": odd})
        (tmp_path / "manifest.toml").write_text(manifest_toml(manifest), encoding="utf-8")
        assert read_corpus(tmp_path).manifest == manifest
    for corpus in load_corpora():
        path = tmp_path / "manifest.toml"
        path.write_text(manifest_toml(corpus.manifest), encoding="utf-8")
        assert read_corpus(tmp_path).manifest == corpus.manifest


def manifest() -> Manifest:
    words = {"source": "words", "documents": 1, "sha256": "0" * 64, "files": {"x": "0" * 64}}
    common = dict(line.split(" = ") for line in HEAD.splitlines())
    fields = {key: value.strip('"') for key, value in common.items()} | words
    return Manifest.model_validate(fields | {"schema": 1})


def test_writing_a_corpus_is_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [Document("0001.txt", "one"), Document("0002.txt", "zwei ü")]
    written = write_corpus(manifest(), documents, tmp_path / "deep" / "c")
    verify(written)
    assert corpus_documents(read_corpus(tmp_path / "deep" / "c")) == documents
    with pytest.raises(BadUsageError, match="is there already"):
        write_corpus(manifest(), documents, tmp_path / "deep" / "c")
    with pytest.raises(BadUsageError, match="cannot be made"):
        write_corpus(manifest(), documents, tmp_path / "deep/c/manifest.toml/x")

    def stop(*args: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("audit.corpora.writing.manifest_toml", stop)
    with pytest.raises(KeyboardInterrupt):
        write_corpus(manifest(), documents, tmp_path / "half")
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]


def test_finding_by_name_by_folder_and_by_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_corpus("german").manifest.language == "de"
    assert find_corpus("wikipedia-de").external
    made = stored_corpus(tmp_path / "mine" / "c", TEXT)
    assert find_corpus(str(made.folder)) == made
    assert find_corpus("made", tmp_path / "mine") == made
    with pytest.raises(BadUsageError, match="there is no corpus 'german'"):
        find_corpus("german", tmp_path / "mine")
    with pytest.raises(BadUsageError, match="no corpus 'germn'") as caught:
        find_corpus("germn")
    assert caught.value.hint.startswith("did you mean german?")
    # A name is never shadowed by a folder that happens to lie here.
    monkeypatch.chdir(tmp_path)
    stored_corpus(tmp_path / "german", TEXT)
    assert find_corpus("german").manifest.name == "german"
    assert find_corpus("./german").manifest.name == "made"


def test_reading_corpora_loads_neither_torch_nor_datasets() -> None:
    code = (
        "import sys, audit.corpora as c; [c.corpus_documents(x) for x in c.load_corpora()];"
        "c.external_corpora(); sys.exit(bool({'torch', 'datasets', 'pyarrow'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
