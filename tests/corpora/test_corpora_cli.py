"""`audit corpora` at the terminal: listing, counting, verifying, fetching, refusing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from audit.cli import main
from audit.corpora import corpus_documents, load_corpora
from tests.corpora.making import source_corpus, stored_corpus

MODEL = Path(__file__).resolve().parents[2] / "audit" / "sample" / "model"


def audit(*args: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["corpora", *args])
    assert isinstance(stop.value.code, int)
    return stop.value.code


def refused(capsys: pytest.CaptureFixture[str], words: str, *args: str) -> dict[str, str]:
    """Exit 2 with a sentence and a hint, in text and in JSON."""
    assert audit(*args) == 2
    text = capsys.readouterr()
    assert text.out == "" and words in text.err and "Traceback" not in text.err
    assert audit(*args, "--json") == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert words in error["message"] and error["hint"]
    return error


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A folder with one corpus of text and, beside it, one with a source."""
    folder = tmp_path / "mine"
    stored_corpus(folder / "c", {"a.txt": "one ünder\n".encode(), "b.txt": b"two"})
    return folder


def test_listing_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit() == 0
    text = capsys.readouterr().out
    assert audit("list") == 0
    assert capsys.readouterr().out == text
    lines = {line.split()[0]: line for line in text.splitlines()}
    for corpus in load_corpora():
        manifest = corpus.manifest
        line = lines[manifest.name]
        for cell in (manifest.language, str(manifest.documents), manifest.licence,
                     f"{manifest.tokens['gemma']:,} gemma", f"{manifest.tokens['qwen']:,} qwen"):  # fmt: skip
            assert cell in line
    assert "--external" in text.splitlines()[-1]
    assert audit("-qq") == 0
    assert capsys.readouterr().out == ""


def test_external_ones_are_listed_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit("--external") == 0
    text = capsys.readouterr().out
    assert "wikimedia/wikipedia 20231101.he at main" in text and "python-code" not in text
    assert audit("--external", "--json") == 0
    listed = json.loads(capsys.readouterr().out)["corpora"]
    assert len(listed) == 7 and listed[0]["source"]["kind"] == "hub"
    refused(capsys, "--external lists packaged corpora", "--external", "--folder", "x")
    refused(capsys, "counts text, and that of c4-en", "--external", "--tokenizer", str(MODEL))


def test_json_is_the_manifests(capsys: pytest.CaptureFixture[str], mine: Path) -> None:
    assert audit("--json", "--folder", str(mine)) == 0
    (listed,) = json.loads(capsys.readouterr().out)["corpora"]
    assert listed["name"] == "made" and listed["register"] == "domain_shift"
    assert listed["documents"] == 2 and listed["tokens"] == {} and "files" not in listed


@pytest.mark.parametrize("path", [MODEL, MODEL / "tokenizer.json"])
def test_tokens_by_a_given_tokenizer(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    plain = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    expected = {
        corpus.manifest.name: sum(
            len(plain.encode(document.text, add_special_tokens=False).ids)
            for document in corpus_documents(corpus)
        )
        for corpus in load_corpora()
    }
    assert audit("--tokenizer", str(path), "--json") == 0
    listed = json.loads(capsys.readouterr().out)["corpora"]
    label = "model" if path == MODEL else "tokenizer"
    assert {c["name"]: c["tokens"] for c in listed} == {k: {label: v} for k, v in expected.items()}


def test_tokens_by_the_tokenizer_of_a_gguf(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mine: Path
) -> None:
    class Words:
        def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
            assert add_special_tokens is False
            return {"input_ids": list(range(len(text.split())))}

    asked: list[Path] = []
    monkeypatch.setattr(
        "audit.traces.verifier.load_tokenizer", lambda path: asked.append(path) or Words()
    )
    assert audit("--folder", str(mine), "--tokenizer", str(tmp_path / "m.gguf"), "--json") == 0
    (listed,) = json.loads(capsys.readouterr().out)["corpora"]
    assert listed["tokens"] == {"m": 3} and asked == [tmp_path / "m.gguf"]


def test_a_tokenizer_that_is_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, mine: Path
) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "x.gguf").write_bytes(b"GGUF but cut")
    own = ("--folder", str(mine), "--tokenizer")
    refused(capsys, "is not a readable tokenizer", *own, str(tmp_path))
    refused(capsys, "there is no tokenizer at", *own, str(tmp_path / "none"))
    refused(capsys, "x.gguf", *own, str(tmp_path / "x.gguf"))
    refused(capsys, "there is no model at", *own, str(tmp_path / "none.gguf"))


def test_markdown(capsys: pytest.CaptureFixture[str], mine: Path) -> None:
    assert audit("--folder", str(mine), "--markdown", "--tokenizer", str(MODEL)) == 0
    lines = capsys.readouterr().out.splitlines()
    plain = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    count = sum(len(plain.encode(text).ids) for text in ("one ünder\n", "two"))
    assert lines[0] == "| corpus | register | language | documents | characters | tokens, model |"
    assert lines[2:] == [f"| made | domain shift | en | 2 | 13 | {count} |"]


def test_verify(capsys: pytest.CaptureFixture[str], mine: Path, tmp_path: Path) -> None:
    assert audit("verify") == 0
    text = capsys.readouterr().out
    documents = sum(corpus.manifest.documents for corpus in load_corpora())
    assert text == f"{len(load_corpora())} corpora verified, {documents} documents\n"
    assert audit("verify", "german", str(mine / "c"), "--json") == 0
    listed = json.loads(capsys.readouterr().out)["verified"]
    assert [corpus["name"] for corpus in listed] == ["german", "made"]
    (mine / "c/documents/a.txt").write_text("changed")
    (mine / "c/documents/b.txt").rename(mine / "c/documents/d.txt")
    words = "made: changed documents/a.txt, missing documents/b.txt, extra documents/d.txt"
    refused(capsys, words, "verify", "--folder", str(mine))
    refused(capsys, words, "verify", "made", "--folder", str(mine))
    refused(capsys, words, "verify", str(mine / "c"), "chat")
    refused(capsys, "there is no corpus 'nothing'", "verify", "nothing")
    refused(capsys, "that of c4-en is not stored here", "verify", "c4-en")


def test_fetch_and_use(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datasets")
    monkeypatch.chdir(tmp_path)
    source = {"kind": "local", "format": "json", "paths": ["r.jsonl"], "seed": 1}
    source_corpus(tmp_path / "src", 3, source)
    rows = [json.dumps({"text": f"def f{i}(x):\n    return x + {i}\n"}) for i in range(9)]
    (tmp_path / "src/r.jsonl").write_text("\n".join(rows))
    assert audit("fetch", "src", "-o", "kept") == 0
    text = capsys.readouterr().out
    assert text.startswith("kept: 3 documents\n") and "audit capture MODEL --corpus kept" in text
    assert audit("verify", "kept") == 0
    shutil.rmtree(tmp_path / "src")
    with pytest.raises(SystemExit) as stop:
        main(["capture", str(MODEL), "--corpus", "kept", "-o", "t.safetensors", "-qq"])
    assert stop.value.code == 0
    from audit.traces import read_trace

    assert read_trace(tmp_path / "t.safetensors").info.corpus == "made"
    capsys.readouterr()
    refused(capsys, "made holds its text already", "fetch", "kept", "-o", "more")
    refused(capsys, "names wikimedia/wikipedia at 'main', which moves",
            "fetch", "wikipedia-de", "-o", "wiki")  # fmt: skip
    assert not (tmp_path / "wiki").exists() and not (tmp_path / "more").exists()


def test_old_and_unknown_spellings_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for args in (("--verify",), ("nothing",), ("list", "extra")):
        assert audit(*args) == 2
        text = capsys.readouterr()
        assert text.out == "" and text.err.startswith("error: ")
