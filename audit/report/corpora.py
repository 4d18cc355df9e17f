"""The corpora as a table, on a terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console

from audit.corpora import Corpus, HubSource, Manifest, corpus_documents
from audit.report.terminal import rows
from audit.report.wording import REGISTER_WORDS, clean


def show_corpora(corpora: Sequence[Corpus], console: Console) -> None:
    """List corpora: register, language, size, licence; where text must be drawn, its source."""
    header = ["corpus", "register", "language", "documents", "tokens", "licence"]
    lines = [[*_identity(corpus.manifest), clean(corpus.manifest.licence)] for corpus in corpora]
    if any(corpus.external for corpus in corpora):
        header[4] = "source"
        for line, corpus in zip(lines, corpora, strict=True):
            line[4] = clean(_source(corpus.manifest))
    rows(console, header, lines)


def _identity(manifest: Manifest) -> list[str]:
    counts = (f"{count:,} {clean(name)}" for name, count in sorted(manifest.tokens.items()))
    return [
        clean(manifest.name),
        REGISTER_WORDS[manifest.register_],
        clean(manifest.language),
        f"{manifest.documents:,}",
        ", ".join(counts) or "–",
    ]


def _source(manifest: Manifest) -> str:
    source = manifest.source
    if isinstance(source, str):
        return "its own text"
    if not isinstance(source, HubSource):
        return f"local {source.format}"
    config = f" {source.config}" if source.config else ""
    return f"{source.id}{config} at {source.revision[:12]}"


def markdown_table(
    corpora: Sequence[Corpus], acceptance: Mapping[str, str] | None = None
) -> list[str]:
    """Lines of a Markdown table of corpora that hold their text.

    Args:
        acceptance: by name of the corpus, what to put into a last column; None leaves it out.
    """
    tokenizers = sorted({name for corpus in corpora for name in corpus.manifest.tokens})
    header = ["corpus", "register", "language", "documents", "characters"]
    header += [f"tokens, {clean(name)}" for name in tokenizers]
    header += ["acceptance"] if acceptance is not None else []
    lines = [header, ["---"] * 3 + ["---:"] * (len(header) - 3)]
    for corpus in corpora:
        manifest = corpus.manifest
        characters = sum(len(document.text) for document in corpus_documents(corpus))
        counts = [manifest.tokens.get(name) for name in tokenizers]
        line = [*_identity(manifest)[:4], f"{characters:,}"]
        line += ["–" if count is None else f"{count:,}" for count in counts]
        line += [acceptance.get(manifest.name, "–")] if acceptance is not None else []
        lines.append(line)
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
