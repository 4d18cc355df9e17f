"""`audit policy`: write, check and compare the policies of a release gate."""

from __future__ import annotations

from pathlib import Path

import click

from audit.cli.frame import Shared, shared_options
from audit.errors import BadUsageError

_FILE = click.Path(path_type=Path)

_EPILOG = """\b
Examples:
  audit policy init -o policy.toml
  audit policy check policy.toml
  audit policy diff old.toml policy.toml
"""


@click.group(epilog=_EPILOG)
def policy() -> None:
    """Write, check and compare policies: what a head must show to be released."""


@policy.command(epilog="\b\nExample:\n  audit policy init -o policy.toml")
@click.option("-o", "--output", type=_FILE, help="File to write; else the policy is printed.")
@shared_options
def init(shared: Shared, output: Path | None) -> None:
    """Write a commented policy that is valid as it stands."""
    from importlib.resources import files

    from audit.atomic import atomic_path
    from audit.policy import parse_policy

    text = (files("audit.policy") / "release.toml").read_text(encoding="utf-8")
    if output is not None:
        if output.exists():
            raise BadUsageError(
                f"{output.name} is there already", hint="choose another name", where=output
            )
        with atomic_path(output) as temporary:
            temporary.write_text(text, encoding="utf-8")
    if shared.as_json:
        shared.print_json(parse_policy(text, "release.toml").model_dump(by_alias=True, mode="json"))
    elif output is None:
        click.echo(text, nl=False)
    elif shared.quiet < 2:
        click.echo(f"{output} written · next: audit policy check {output}")


@policy.command(epilog="\b\nExample:\n  audit policy check policy.toml --json")
@click.argument("file", type=_FILE)
@shared_options
def check(shared: Shared, file: Path) -> None:
    """Read FILE and say in words what it asks for."""
    from audit.policy import load_policy
    from audit.policy.words import part_words
    from audit.report.wording import clean
    from audit.words import count

    found = load_policy(file)
    if shared.as_json:
        shared.print_json(found.model_dump(by_alias=True, mode="json"))
        return
    for part in found.parts if not shared.quiet else ():
        click.echo(clean(part_words(part)))
    for change in found.changes if not shared.quiet else ():
        click.echo(clean(f"changed since {found.previous}: {change.sentence}"))
    if shared.quiet < 2:
        asked = count(len(found.parts), "limit")
        click.echo(f"{clean(found.name)}: {asked} · next: audit gate --policy {file} --selftest")


@policy.command(epilog="\b\nExample:\n  audit policy diff old.toml policy.toml")
@click.argument("old", type=_FILE)
@click.argument("new", type=_FILE)
@shared_options
def diff(shared: Shared, old: Path, new: Path) -> None:
    """Say what changed from policy OLD to policy NEW, thresholds above all."""
    from audit.policy import changes_between, load_policy
    from audit.report.wording import clean
    from audit.words import count

    changes = changes_between(load_policy(old), load_policy(new))
    if shared.as_json:
        rows = [change.model_dump(mode="json") for change in changes]
        shared.print_json({"schema": 1, "old": str(old), "new": str(new), "changes": rows})
        return
    for change in changes if not shared.quiet else ():
        click.echo(clean(change.sentence))
    if shared.quiet < 2:
        looser = sum(change.looser is True for change in changes)
        click.echo(f"{count(len(changes), 'change')} since {old.name}, {looser} of them looser")
