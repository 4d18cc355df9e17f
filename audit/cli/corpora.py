"""`audit corpora`: the bundled text."""

from __future__ import annotations

from pathlib import Path

import click

from audit.cli.frame import Shared, shared_options

_EPILOG = """\b
Examples:
  audit corpora
  audit corpora --verify
"""


@click.command(epilog=_EPILOG)
@click.option("--verify", "check", is_flag=True, help="Hash every document again.")
@click.option("--folder", type=click.Path(path_type=Path), help="Another folder of corpora.")
@shared_options
def corpora(shared: Shared, check: bool, folder: Path | None) -> None:
    """List the bundled corpora: register, language, size, licence."""
    from audit.corpora import load_corpora, verify
    from audit.report.terminal import rows
    from audit.report.wording import REGISTER_WORDS, clean

    found = load_corpora(folder)
    if check:
        for corpus in found:
            verify(corpus)
    manifests = [corpus.manifest for corpus in found]
    if shared.as_json:
        listed = [manifest.model_dump(by_alias=True, mode="json") for manifest in manifests]
        shared.print_json({"corpora": listed, "verified": check})
        return
    lines = [
        [
            clean(manifest.name),
            REGISTER_WORDS[manifest.register_],
            clean(manifest.language),
            str(manifest.documents),
            ", ".join(f"{count:,} {name}" for name, count in sorted(manifest.tokens.items())),
            clean(manifest.licence),
        ]
        for manifest in manifests
    ]
    rows(shared.out, ("corpus", "register", "language", "documents", "tokens", "licence"), lines)
    if check:
        click.echo(f"{len(found)} corpora verified")
