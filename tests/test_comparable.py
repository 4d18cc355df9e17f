"""Traces and references that do not belong together: refused by name, or forced and marked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models

from audit.cli import main
from audit.files import open_container
from audit.heads.vocabulary import tokenizer_hash
from audit.ledger import open_ledger
from audit.provenance import vocabulary_sha256
from audit.traces import read_trace, write_trace
from tests.audit_files import head_weight, make_trace, write_head


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A reference in a folder with a tokenizer, a candidate, and a trace of each of two texts."""
    monkeypatch.chdir(tmp_path)
    for name in ("AUDIT_TRACES", "AUDIT_LEDGER"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "m").mkdir()
    write_head(tmp_path / "m" / "model.safetensors", head_weight())
    Tokenizer(models.WordLevel({"a": 0, "é": 1, "<s>": 399}, unk_token="a")).save(
        "m/tokenizer.json"
    )
    write_head(tmp_path / "cand.safetensors", head_weight() + 0.3 * head_weight(5))
    for corpus in ("code", "de"):
        make_trace(tmp_path / f"{corpus}.trace.safetensors", head_weight(), corpus=corpus,
                   seed=len(corpus))  # fmt: skip
    return tmp_path


def rename(name: str, **fields: object) -> None:
    """Change what a trace says of itself."""
    path = Path(f"{name}.trace.safetensors")
    trace = read_trace(path)
    info = trace.info.model_copy(update=fields)
    write_trace(type(trace)(info, trace.hidden.clone(), trace.token.clone(), trace.oracle.clone(),
                            trace.sequence.clone(), trace.position.clone()), path)  # fmt: skip


BASE = ("compare", "m", "cand.safetensors", "--trace", "code.trace.safetensors",
        "--trace", "de.trace.safetensors", "--json")  # fmt: skip


def run(capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, Any]]:
    with pytest.raises(SystemExit) as stop:
        main([*BASE, *more])
    return int(str(stop.value.code)), json.loads(capsys.readouterr().out)


WORDS = vocabulary_sha256({"a": 0, "é": 1, "<s>": 399})


@pytest.mark.parametrize(
    ("code", "de", "name", "words"),
    [
        ({"model_sha256": "a" * 64}, {"model_sha256": "b" * 64, "model": "other"},
         "MODELS_DIFFER", "2 different models: tiny (code), other (de)"),
        ({"tokenizer_sha256": WORDS}, {"tokenizer_sha256": "b" * 64},
         "TOKENIZER_DIFFERS", "2 tokenizers: code against de"),
        ({"tokenizer_sha256": "b" * 64}, {"tokenizer_sha256": "b" * 64},
         "TOKENIZER_DIFFERS", "beside m is not that of the traces of code, de"),
        ({"corpus_sha256": "c" * 64}, {"corpus_sha256": "c" * 64},
         "SAME_TEXT", "code, de are the same text under 2 names"),
    ],
)  # fmt: skip
def test_what_differs_is_named_and_can_be_forced(
    place: Path, capsys: pytest.CaptureFixture[str], code: dict[str, Any], de: dict[str, Any],
    name: str, words: str,
) -> None:  # fmt: skip
    rename("code", **code)
    rename("de", **de)
    exit_code, document = run(capsys)
    assert exit_code == 2
    error = document["error"]
    assert error["message"].startswith(f"{name}: ") and words in error["message"]
    assert error["kind"] == "mismatch" and "--force" in error["hint"]
    assert open_ledger(place / "audit-ledger").run_ids() == []
    exit_code, document = run(capsys, "--force")
    assert exit_code == 0
    marks = [f for f in document["preflight"] if f["code"] == "FORCED_MISMATCH"]
    assert {mark["severity"] for mark in marks} == {"warning"}
    assert any(words in mark["sentence"] and name in mark["sentence"] for mark in marks)
    with pytest.raises(SystemExit):
        main(["show", "latest"])
    assert "FORCED_MISMATCH" in capsys.readouterr().out


def test_what_belongs_together_is_not_marked(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Equal hashes, and hashes that one side does not have, decide nothing."""
    rename("code", tokenizer_sha256=WORDS, corpus_sha256="c" * 64, model_sha256="a" * 64)
    rename("de", tokenizer_sha256=None, corpus_sha256="d" * 64, model_sha256=None)
    for more in ((), ("--force",)):
        exit_code, document = run(capsys, *more)
        assert exit_code == 0
        assert not [f for f in document["preflight"] if f["code"] == "FORCED_MISMATCH"]


def test_another_width_can_not_be_forced(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_trace(place / "de.trace.safetensors", head_weight()[:, :32], corpus="de")
    for more in ((), ("--force",)):
        exit_code, document = run(capsys, *more)
        assert exit_code == 2 and "states of width 32" in document["error"]["message"]


def test_the_hash_of_a_folder_is_that_of_its_tokenizer(place: Path) -> None:
    """Vocabulary, added tokens, those of the configuration; Unigram lists; or nothing at all."""
    folder = place / "m"

    def found() -> str | None:
        return tokenizer_hash(open_container(folder))

    assert found() == WORDS
    config = {"added_tokens_decoder": {"7": {"content": "<x>"}, "0": {"content": "a"}}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert found() == vocabulary_sha256({"a": 0, "é": 1, "<s>": 399, "<x>": 7})
    (folder / "tokenizer_config.json").unlink()
    unigram = {"model": {"vocab": [["▁a", -1.0], ["b", -2.5]]},
               "added_tokens": [{"id": 2, "content": "<s>", "special": True}]}  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(unigram))
    assert found() == vocabulary_sha256({"▁a": 0, "b": 1, "<s>": 2})
    (folder / "tokenizer.json").unlink()
    assert found() is None


def test_a_study_refuses_them_too(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rename("code", model_sha256="a" * 64)
    rename("de", model_sha256="b" * 64, register_="domain_shift")
    with pytest.raises(SystemExit) as stop:
        main(["study", "m", "--traces", "code.trace.safetensors", "--traces",
              "de.trace.safetensors", "--json"])  # fmt: skip
    assert stop.value.code == 2
    assert "MODELS_DIFFER" in json.loads(capsys.readouterr().out)["error"]["message"]
