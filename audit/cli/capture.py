"""`audit capture`: run a model over text and record traces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit.cli.capture_jobs import check_output, jobs_of
from audit.cli.frame import Shared, check_device, shared_options
from audit.cli.generation import generation_of, generation_options

if TYPE_CHECKING:
    from audit.traces.suite import Found

__all__ = ["capture", "check_output"]

_FILE = click.Path(path_type=Path)

_EPILOG = """\b
Examples:
  audit capture model/ --text code.py -o code.trace.safetensors
  audit capture model.gguf --text de.txt --split --register domain_shift -o de.trace.safetensors
  audit capture model/ --corpus german -o traces/german.trace.safetensors
  audit capture model/ --suite standard --layer 16 -o traces/
  audit capture model/ --suite chat,german --max-positions 1000 -o traces/ --dry-run
  audit capture model/ --text prompts.jsonl --generate 128 --only-generated -o own.trace.safetensors
  audit capture model/ --corpus chat --generate 64 --temperature 0.8 -o chat.trace.safetensors
"""


@click.command(epilog=_EPILOG)
@click.argument("model", type=_FILE)
@click.option(
    "--text", "texts", type=_FILE, multiple=True,
    help="Text, JSON Lines or Parquet file, or a folder of them; may be repeated.",
)  # fmt: skip
@click.option("--field", help="Where a row's text stands, as in meta.body; else text or messages.")
@click.option("--split", is_flag=True, help="Two blank lines separate documents in --text files.")
@click.option(
    "--corpus", "corpora", multiple=True,
    help="A corpus by name or folder; several are a suite. With --text, the name it goes by.",
)  # fmt: skip
@click.option(
    "--suite", metavar="standard|NAME,NAME",
    help="A trace of each of these corpora; standard is all that are bundled.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=_FILE, required=True,
    help="The trace file to write; for a suite, the folder.",
)  # fmt: skip
@click.option(
    "--register", type=click.Choice(["in_distribution", "same_register", "domain_shift"]),
    help="How the text relates to what the head was made for; default in_distribution.",
)  # fmt: skip
@click.option("--language", help="BCP 47 tag such as de, or code:python.")
@click.option(
    "--context", type=click.IntRange(min=2), default=512, show_default=True,
    help="Longest sequence in tokens, those that are generated included.",
)  # fmt: skip
@click.option(
    "--max-positions", type=click.IntRange(min=1),
    help="Stop after exactly this many; of a suite, each trace, by default after 2,500.",
)  # fmt: skip
@click.option(
    "--layer", "layers", type=click.IntRange(min=0), multiple=True,
    help="Also record the state entering this layer; may be repeated.",
)  # fmt: skip
@generation_options
@click.option(
    "--batch", type=click.IntRange(min=1), default=8, show_default=True,
    help="Windows that are recorded together.",
)  # fmt: skip
@click.option("--device", default="cpu", show_default=True)
@click.option(
    "--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), default="float32",
    show_default=True, help="Type the model runs in and its states are kept in.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only list what is there and what would be captured.")
@shared_options
def capture(shared: Shared, model: Path, output: Path, **options: Any) -> None:
    """Run MODEL (a Hugging Face folder or a GGUF file) over text and record its states.

    A suite is a folder of traces. What is there already and up to date is kept, so that one that
    was interrupted goes on where it stopped.
    """
    from audit.report.terminal import progress_on
    from audit.traces.model_files import find_model, identify
    from audit.traces.recipe import Recipe
    from audit.traces.suite import Suite, capture_suite, look

    generation = generation_of(options)
    check_device(options["device"])
    jobs = jobs_of(options, output, model, generation)
    recipe = Recipe(
        context=options["context"],
        max_positions=jobs.max_positions,
        layers=options["layers"],
        batch=options["batch"],
        generation=generation,
    )
    with progress_on(shared.err, enabled=not shared.quiet) as progress:
        progress("hashing the model", 0, 1)
        identity = identify(find_model(model))
        suite = Suite(model, identity, jobs.jobs, recipe, options["device"], options["dtype"])
        if options["dry_run"]:
            found = look(suite)
        else:
            found = capture_suite(suite, progress, again=not jobs.is_suite)
    if options["dry_run"]:
        _show_plan(shared, found, again=not jobs.is_suite)
    else:
        _show_traces(shared, found, jobs.is_suite)


def _show_plan(shared: Shared, found: Sequence[Found], again: bool) -> None:
    """What a dry run found."""
    from audit.report.terminal import rows
    from audit.report.wording import REGISTER_WORDS, clean
    from audit.traces.suite import State

    if shared.as_json:
        shared.print_json({"traces": [_entry(one, one.state.value, None) for one in found]})
    elif shared.quiet < 2:
        lines = []
        for one in found:
            words = "there" if one.state == State.THERE and not again else "would be captured"
            differs = f" again, for {', '.join(one.differs)}" if one.differs else ""
            source = one.job.source
            lines.append(
                [
                    clean(source.corpus),
                    REGISTER_WORDS[source.register],
                    clean(str(one.job.path)),
                    clean(words + differs),
                ]
            )
        rows(shared.out, ("corpus", "register", "trace", "state"), lines)


def _show_traces(shared: Shared, found: Sequence[Found], is_suite: bool) -> None:
    """The traces that are there now."""
    from audit.report.wording import clean, trace_amount
    from audit.traces import read_trace
    from audit.traces.repeats import repeated
    from audit.traces.suite import State

    entries = []
    for one in found:
        trace = read_trace(one.job.path)
        record, findings = trace.record(), repeated(trace)
        state = "kept" if is_suite and one.state == State.THERE else "captured"
        entries.append(_entry(one, state, record.model_dump(by_alias=True, mode="json")))
        entries[-1]["findings"] = [finding.model_dump(mode="json") for finding in findings]
        if not shared.as_json and shared.quiet < 2:
            click.echo(
                f"{clean(str(one.job.path))}: {trace_amount(record)} of "
                f"{clean(record.info.corpus)}, states of "
                f"{clean(record.info.model)}{' (kept)' if state == 'kept' else ''}"
            )
            for finding in findings:
                click.echo(f"{finding.severity:<8} {finding.code}  {clean(finding.sentence)}")
    if shared.as_json:
        alone = entries[0]["record"] | {"findings": entries[0]["findings"]}
        shared.print_json({"traces": entries} if is_suite else alone)


def _entry(one: Found, state: str, record: dict[str, Any] | None) -> dict[str, Any]:
    """One trace of a suite in JSON."""
    return {
        "corpus": one.job.source.corpus,
        "register": one.job.source.register,
        "path": str(one.job.path),
        "state": state,
        "differs": list(one.differs),
        "record": record,
    }
