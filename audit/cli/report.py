"""`audit report`: a run as something to hand on."""

from __future__ import annotations

import os
from pathlib import Path

import click

from audit.cli.frame import Shared, shared_options
from audit.errors import BadUsageError

_FORMATS = ("markdown", "html", "json", "junit", "card")
_SUMMARY = "GITHUB_STEP_SUMMARY"

_EPILOG = """\b
Examples:
  audit report latest
  audit report latest -o report.html
  audit report 3f9a --format junit -o audit.xml --summary
  audit report audit-ledger/runs/3f9a1c0d2b4e5f60/run.json --format card
  audit report --schema -o run.schema.json
"""


@click.command(epilog=_EPILOG)
@click.argument("run", required=False)
@click.option(
    "--format", "format_", type=click.Choice(_FORMATS),
    help="Else the suffix of -o decides (.md, .html, .json, .xml), else Markdown.",
)  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write here, not on stdout.")
@click.option("--summary", is_flag=True, help=f"Also append the Markdown to ${_SUMMARY}.")
@click.option(
    "--tokens", type=click.IntRange(0, 1000), default=20, show_default=True, metavar="N",
    help="List the N costliest flips (HTML and Markdown).",
)  # fmt: skip
@click.option(
    "--tokenizer", type=click.Path(path_type=Path),
    help="Folder or tokenizer.json that says what the listed tokens are.",
)  # fmt: skip
@click.option("--schema", is_flag=True, help="Print the JSON Schema of run documents instead.")
@shared_options
def report(
    shared: Shared,
    run: str | None,
    format_: str | None,
    output: Path | None,
    summary: bool,
    tokens: int,
    tokenizer: Path | None,
    schema: bool,
) -> None:
    """Write RUN as Markdown, HTML, JSON, JUnit XML, or a section of a model card.

    RUN: an id, a unique beginning of one, `latest`, or the path of a run.json. In JUnit a limit
    that failed is a failure, one that is undecided an error, one that is waived is skipped. The
    gate's newest answer and the reviews of a run of the ledger are in it; JSON is the run as
    recorded.
    """
    from audit.report.formats import append_text, format_for

    if schema:
        _schema(shared, run, output)
        return
    if run is None:
        raise BadUsageError("no run was given", hint="audit report latest, or --schema")
    asked = "json" if shared.as_json and output is None and format_ is None else format_
    chosen = format_for(output, asked)
    if shared.as_json and output is None and chosen != "json":
        raise BadUsageError(
            f"--json prints one JSON document, and {chosen} is none",
            hint=f"write it to a file: -o FILE --format {chosen}",
        )
    place = _summary_file() if summary else None
    found, text, markdown = _texts(shared, run, chosen, tokens, tokenizer, place)
    if output is not None:
        _write(shared, output, text, run)
    if place is not None:
        append_text(place, markdown)
    if output is None:
        click.echo(text, nl=False)
    elif shared.as_json:
        shared.print_json(
            {"run": found, "format": chosen, "path": str(output), "bytes": len(text.encode()),
             "summary": str(place) if place else None}
        )  # fmt: skip
    elif not shared.quiet:
        from audit.report.wording import clean

        click.echo(
            f"{chosen} report of run {clean(found) or '(not recorded)'}: {clean(str(output))}"
        )


def _texts(
    shared: Shared,
    wanted: str,
    chosen: str,
    tokens: int,
    tokenizer: Path | None,
    summary: Path | None,
) -> tuple[str, str, str]:
    """The run's id, its report in the chosen format, and its Markdown when a summary wants it."""
    from audit.report.formats import WITH_POSITIONS, render
    from audit.report.source import open_run
    from audit.report.token_text import token_text

    needed = chosen in WITH_POSITIONS or summary is not None
    opened = open_run(wanted, shared.open_ledger(), positions=needed)
    words = token_text(tokenizer) if tokenizer else None

    def write(format_: str) -> str:
        run = opened.run if format_ == "json" else opened.judged
        return render(
            run, format_, positions=opened.positions, limit=tokens, text=words,
            reviews=opened.reviews,
        )  # fmt: skip

    return opened.run.run, write(chosen), write("markdown") if summary is not None else ""


def _schema(shared: Shared, run: str | None, output: Path | None) -> None:
    from audit.ledger import json_text
    from audit.outputs import write_output
    from audit.report.schema import run_schema

    if run is not None:
        raise BadUsageError("--schema is the same for every run", hint="leave RUN away")
    text = json_text(run_schema()) + "\n"
    if output is None:
        click.echo(text, nl=False)
        return
    write_output(output, text, "schema")
    if shared.as_json:
        shared.print_json({"path": str(output), "bytes": len(text.encode())})


def _summary_file() -> Path:
    place = os.environ.get(_SUMMARY)
    if not place:
        raise BadUsageError(
            f"--summary appends to the file named by {_SUMMARY}, which is not set",
            hint="GitHub Actions sets it; elsewhere write the Markdown with -o report.md",
        )
    return Path(place)


def _write(shared: Shared, output: Path, text: str, run: str) -> None:
    """Write the report, but never over the evidence that it is made from."""
    from audit.outputs import write_output

    if output.exists() and Path(run).exists() and output.samefile(run):
        raise BadUsageError(
            "a run is never written over by its own report",
            hint="choose another place with -o",
            where=output,
        )
    write_output(output, text, "report")
