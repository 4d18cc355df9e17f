"""`audit capture`: run a model over text and record a trace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from audit.cli.frame import Shared, check_device, shared_options
from audit.errors import BadUsageError
from audit.outputs import unwritable

_FILE = click.Path(path_type=Path)

_EPILOG = """\b
Examples:
  audit capture model/ --text code.py -o code.trace.safetensors
  audit capture model.gguf --text de.txt --split --register domain_shift -o de.trace.safetensors
  audit capture model/ --corpus german -o traces/german.trace.safetensors
"""


@click.command(epilog=_EPILOG)
@click.argument("model", type=_FILE)
@click.option(
    "--text", "texts", type=_FILE, multiple=True,
    help="Text, JSON Lines or Parquet file, or a folder of them; may be repeated.",
)  # fmt: skip
@click.option("--field", help="Where a row's text stands, as in meta.body; else text or messages.")
@click.option(
    "--corpus", help="A corpus by name or folder; with --text, the name the text goes by."
)
@click.option("-o", "--output", type=_FILE, required=True, help="The trace file to write.")
@click.option("--split", is_flag=True, help="Two blank lines separate documents in --text files.")
@click.option(
    "--register", type=click.Choice(["in_distribution", "same_register", "domain_shift"]),
    help="How the text relates to what the head was made for; default in_distribution.",
)  # fmt: skip
@click.option("--language", help="BCP 47 tag such as de, or code:python.")
@click.option("--context", type=click.IntRange(min=2), default=512, show_default=True)
@click.option("--max-positions", type=click.IntRange(min=1), help="Stop after exactly this many.")
@click.option(
    "--layer", "layers", type=click.IntRange(min=0), multiple=True,
    help="Also record the state entering this layer; may be repeated.",
)  # fmt: skip
@click.option("--batch", type=click.IntRange(min=1), default=8, show_default=True)
@click.option("--device", default="cpu", show_default=True)
@click.option(
    "--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), default="float32",
    show_default=True, help="Type the model runs in and its states are kept in.",
)  # fmt: skip
@shared_options
def capture(shared: Shared, model: Path, output: Path, **options: Any) -> None:
    """Run MODEL (a Hugging Face folder or a GGUF file) over text and record its states."""
    import torch

    from audit.report.terminal import progress_on
    from audit.report.wording import clean
    from audit.traces import write_trace
    from audit.traces.capture import capture as run_capture
    from audit.traces.verifier import load_verifier

    check_output(output, model, options["texts"])
    check_device(options["device"])
    documents, about = _documents(options)
    with progress_on(shared.err, enabled=not shared.quiet) as progress:
        progress("loading the model", 0, 1)
        verifier = load_verifier(model, options["device"], getattr(torch, options["dtype"]))
        trace = run_capture(
            verifier,
            documents,
            **about,
            context=options["context"],
            max_positions=options["max_positions"],
            layers=options["layers"],
            batch=options["batch"],
            progress=lambda done, total: progress("capture", done, total),
        )
    record = write_trace(trace, output).record()
    if shared.as_json:
        shared.print_json(record.model_dump(by_alias=True, mode="json"))
    elif shared.quiet < 2:
        click.echo(
            f"{clean(str(output))}: {record.positions:,} positions in {record.sequences:,} "
            f"sequences of {clean(record.info.corpus)}, states of {clean(record.info.model)}"
        )


def check_output(output: Path, model: Path, texts: Sequence[Path]) -> None:
    """Raises BadUsageError unless a trace can be written there without loss of anything else."""
    why = unwritable(output) or _in_use(output, model, texts)
    if why:
        raise BadUsageError(
            f"the trace cannot be written: {why}", hint="choose another place with -o", where=output
        )


def _in_use(output: Path, model: Path, texts: Sequence[Path]) -> str:
    """What else the file is or would become; empty for a trace and for nothing."""
    from audit.traces.find import SUFFIX

    if output.exists():
        if any(text.exists() and output.samefile(text) for text in texts):
            return "this is a text to run over"
        return "" if _is_trace(output) else "this file is there already and is not a trace"
    inside = output.absolute().parent.resolve() == model.resolve()
    if inside and not output.name.endswith(SUFFIX):
        return f"only *{SUFFIX} may lie among the model's files"
    return ""


def _is_trace(path: Path) -> bool:
    from safetensors import SafetensorError, safe_open

    from audit.traces.trace import METADATA_KEY

    if not path.is_file():
        return False
    try:
        with safe_open(path, framework="numpy") as stored:
            return METADATA_KEY in (stored.metadata() or {})
    except (SafetensorError, OSError):
        return False


def _documents(options: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The documents to run over, and what the trace says of them."""
    from audit.corpora import corpus_documents, find_corpus, own_documents
    from audit.report.wording import clean

    register, language = options["register"], options["language"]
    if options["texts"]:
        name = clean(options["corpus"] or options["texts"][0].stem)
        about = {"corpus": name, "register": register or "in_distribution", "language": language}
        split, field = options["split"], options["field"]
        return own_documents(options["texts"], split_blank_lines=split, field=field), about
    if not options["corpus"]:
        raise BadUsageError(
            "there is no text to run over",
            hint="give --text FILE, or --corpus NAME (audit corpora)",
        )
    corpus = find_corpus(options["corpus"])
    manifest = corpus.manifest
    about = {
        "corpus": manifest.name,
        "register": register or manifest.register_,
        "language": language or manifest.language,
    }
    return corpus_documents(corpus), about
