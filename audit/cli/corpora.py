"""`audit corpora`: list text to measure on, verify it, and fetch what lies elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit.cli.frame import Shared, default_group, shared_options
from audit.errors import BadUsageError
from audit.words import count

if TYPE_CHECKING:
    from audit.corpora import Corpus

_PATH = click.Path(path_type=Path)
_FOLDER = click.option("--folder", type=_PATH, help="Another folder of corpora.")

_EPILOG = """\b
Examples:
  audit corpora
  audit corpora --external
  audit corpora verify
  audit corpora fetch wikipedia-de --allow-unpinned -o wiki-de
"""
_LIST_EPILOG = """\b
Examples:
  audit corpora list
  audit corpora list --tokenizer model/
  audit corpora list --folder texts/ --tokenizer tokenizer.json --markdown
"""
_VERIFY_EPILOG = """\b
Examples:
  audit corpora verify
  audit corpora verify german wiki-de/
"""
_FETCH_EPILOG = """\b
Examples:
  audit corpora fetch wikipedia-de --allow-unpinned -o wiki-de
  audit corpora fetch my-corpus/ -o my-corpus-drawn
"""


@click.group(cls=default_group("list"), epilog=_EPILOG)
def corpora() -> None:
    """Text to measure on: list it (without a command), verify it, fetch what lies elsewhere."""


@corpora.command("list", epilog=_LIST_EPILOG)
@_FOLDER
@click.option("--external", is_flag=True, help="Those that are drawn from a source, not stored.")
@click.option(
    "--tokenizer", type=_PATH, help="Count tokens by this model folder, tokenizer.json or GGUF."
)
@click.option("--markdown", is_flag=True, help="Print a Markdown table, with characters.")
@shared_options
def list_(
    shared: Shared, folder: Path | None, external: bool, tokenizer: Path | None, markdown: bool
) -> None:
    """List corpora: register, language, documents, tokens, licence."""
    from audit.corpora import external_corpora, load_corpora
    from audit.report.corpora import markdown_table, show_corpora

    if external and folder:
        raise BadUsageError(
            "--external lists packaged corpora, --folder your own", hint="give one of them"
        )
    found = external_corpora() if external else load_corpora(folder)
    if markdown or tokenizer:
        _need_text(found, "--markdown" if markdown else "--tokenizer")
    if tokenizer:
        found = _counted(found, tokenizer, shared)
    if shared.as_json:
        shared.print_json({"corpora": [_listed(corpus) for corpus in found]})
    elif markdown:
        click.echo("\n".join(markdown_table(found)))
    elif shared.quiet < 2:
        show_corpora(found, shared.out)
        if not (external or folder):
            click.echo(f"{len(external_corpora())} more are drawn from elsewhere: --external")


def _need_text(found: list[Corpus], option: str) -> None:
    """Raises BadUsageError for a corpus whose text is not here to be counted."""
    if without := [corpus.manifest.name for corpus in found if corpus.external]:
        raise BadUsageError(
            f"{option} counts text, and that of {', '.join(without)} is not stored here",
            hint=f"audit corpora fetch {without[0]} -o FOLDER",
        )


def _counted(found: list[Corpus], tokenizer: Path, shared: Shared) -> list[Corpus]:
    """The corpora with the counts of this tokenizer in place of the manifests'."""
    from dataclasses import replace

    from audit.corpora import corpus_documents
    from audit.report.terminal import progress_on
    from audit.traces.counting import token_counter

    given = tokenizer.resolve()
    name = given.name if given.is_dir() else given.stem
    out = []
    with progress_on(shared.err, enabled=not shared.quiet) as progress:
        progress("reading the tokenizer", 0, 1)
        count = token_counter(tokenizer)
        for done, corpus in enumerate(found):
            progress("counting", done, len(found))
            tokens = sum(count(document.text) for document in corpus_documents(corpus))
            update = {"tokens": {name: tokens}}
            out.append(replace(corpus, manifest=corpus.manifest.model_copy(update=update)))
    return out


def _listed(corpus: Corpus) -> dict[str, Any]:
    """A corpus in `--json`: its manifest without the hash of every file."""
    return corpus.manifest.model_dump(by_alias=True, mode="json", exclude={"files"})


@corpora.command(epilog=_VERIFY_EPILOG)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@_FOLDER
@shared_options
def verify(shared: Shared, names: tuple[str, ...], folder: Path | None) -> None:
    """Hash every document again; without NAME those of all corpora.

    NAME is a corpus or the folder of one. A file that was changed, is missing or is not listed
    is named, and the exit code is 2.
    """
    from audit.corpora import find_corpus, load_corpora
    from audit.corpora import verify as check

    found = [find_corpus(name, folder) for name in names] if names else load_corpora(folder)
    if names:
        _need_text(found, "verify")
    stored = [corpus for corpus in found if not corpus.external]
    check(*stored)
    if shared.as_json:
        shared.print_json({"verified": [_listed(corpus) for corpus in stored]})
    elif shared.quiet < 2:
        documents = sum(corpus.manifest.documents for corpus in stored)
        click.echo(f"{len(stored)} corpora verified, {count(documents, 'document')}")


@corpora.command(epilog=_FETCH_EPILOG)
@click.argument("name")
@click.option("-o", "--output", type=_PATH, required=True, help="The folder to make.")
@click.option("--revision", help="Take this commit of the data set, not the manifest's.")
@click.option(
    "--allow-unpinned", is_flag=True, help="Take what a branch or tag names now, and say what."
)
@_FOLDER
@shared_options
def fetch(
    shared: Shared,
    name: str,
    output: Path,
    revision: str | None,
    allow_unpinned: bool,
    folder: Path | None,
) -> None:
    """Draw the text of an external corpus and keep it in a folder, with its hashes.

    NAME is a corpus or the folder of one. The folder made is a corpus of its own: from then on
    nothing is asked of the network.
    """
    from audit.corpora import find_corpus
    from audit.corpora.fetching import fetch_corpus
    from audit.report.terminal import progress_on
    from audit.report.wording import clean

    corpus = find_corpus(name, folder)
    with progress_on(shared.err, enabled=not shared.quiet) as progress:
        kept = fetch_corpus(
            corpus, output, revision, allow_unpinned,
            progress=lambda done, total: progress("documents", done, total),
        )  # fmt: skip
    if shared.as_json:
        shared.print_json({"folder": str(output), "corpus": _listed(kept)})
    elif shared.quiet < 2:
        click.echo(f"{clean(str(output))}: {count(kept.manifest.documents, 'document')}")
        click.echo(clean(str(kept.manifest.source)))
        click.echo(f"next: audit capture MODEL --corpus {clean(str(output))} -o TRACE")
