"""`audit import`: other people's hidden-state dumps become a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from audit.cli.capture import check_output
from audit.cli.frame import Shared, check_device, shared_options
from audit.cli.naming import check_names
from audit.errors import BadUsageError

_FILE = click.Path(path_type=Path)
_FORMATS = ("auto", "speculators", "speculators-pt", "vllm", "specforge", "eagle", "modelopt",
            "llamacpp")  # fmt: skip

_EPILOG = """\b
Examples:
  audit import data/ --model model/ -o chat.trace.safetensors
  audit import dump/ --model m.gguf --layers 2,18,33 --max-positions 9000 -o t.trace.safetensors
  audit import rows_0-5000/ --stage post_norm --only-loss-mask -o t.trace.safetensors
  audit import states.json --tokens ids.txt --model model.gguf -o t.trace.safetensors
  audit import states.bin --model m.gguf --oracle-from base.kld -o t.trace.safetensors
"""


@click.command("import", epilog=_EPILOG)
@click.argument("dump", type=_FILE)
@click.option("-o", "--output", type=_FILE, required=True, help="The trace file to write.")
@click.option(
    "--format", type=click.Choice(_FORMATS), default="auto", show_default=True,
    help="The tool that wrote DUMP; auto looks at what is stored.",
)  # fmt: skip
@click.option(
    "--model", type=_FILE,
    help="The verifier's folder or GGUF: its norm and head measure the stage, check the alignment "
    "and give the oracle. Without it the oracle is the text's next token.",
)  # fmt: skip
@click.option(
    "--stage", type=click.Choice(["post_norm", "pre_norm"]),
    help="Whether the states were taken after the final norm; needed where --model cannot tell.",
)  # fmt: skip
@click.option("--tokens", type=_FILE, help="Token ids of states that came without (llama.cpp).")
@click.option(
    "--oracle-from", type=_FILE, metavar="FILE",
    help="File of llama-perplexity --kl-divergence-base over the same texts.",
)  # fmt: skip
@click.option("--layers", metavar="2,18,33", help="Layers of the further states, in their order.")
@click.option(
    "--layer-numbering", "numbering", type=click.Choice(["entering", "leaving"]),
    help="Whether a number names the layer a state enters or leaves; default the tool's own.",
)  # fmt: skip
@click.option(
    "--only-loss-mask", is_flag=True,
    help="Count only the positions that the dump's loss mask marks (answers, not prompts).",
)  # fmt: skip
@click.option("--corpus", help="Name of the text; default the name of DUMP.")
@click.option(
    "--register", type=click.Choice(["in_distribution", "same_register", "domain_shift"]),
    default="in_distribution", show_default=True,
    help="How the text relates to what the head was made for.",
)  # fmt: skip
@click.option("--language", help="BCP 47 tag such as de, or code:python.")
@click.option("--max-positions", type=click.IntRange(min=1), help="Stop after exactly this many.")
@click.option("--limit-files", type=click.IntRange(min=1), help="Read only the first files.")
@click.option("--device", default="cpu", show_default=True, help="Where the head's product runs.")
@click.option(
    "--force", is_flag=True,
    help="Go on where the alignment can not be shown; the trace then says so.",
)  # fmt: skip
@shared_options
def import_(shared: Shared, dump: Path, output: Path, **options: Any) -> None:
    """Turn DUMP into a trace: a folder or file of hidden states that another tool wrote.

    Read are speculators, vLLM's hidden-states connector, SpecForge, EAGLE-1/2, ModelOpt and
    llama.cpp (llama-embedding, llama-server, llama-debug). What a dump does not say is measured or
    asked for, never assumed.
    """
    from audit.dumps import import_dump
    from audit.report.terminal import progress_on
    from audit.traces import write_trace

    request = _request(dump, options)
    check_output(output, dump, [])
    check_device(request.device)
    with progress_on(shared.err, enabled=not shared.quiet) as progress:
        found = import_dump(request, progress)
    record = write_trace(found.trace, output).record()
    findings = [finding.model_dump(mode="json") for finding in found.findings]
    if shared.as_json:
        trace = record.model_dump(by_alias=True, mode="json")
        shared.print_json({"trace": trace, "findings": findings})
    elif shared.quiet < 2:
        _show(record, found, quiet=bool(shared.quiet))


def _request(dump: Path, options: dict[str, Any]) -> Any:
    from audit.dumps import ImportRequest
    from audit.report.wording import clean

    check_names(options["corpus"], options["language"])
    name = dump.resolve().name if dump.is_dir() else dump.stem
    return ImportRequest(
        dump=dump,
        **options
        | {
            "corpus": clean(options["corpus"] or name),
            "layers": _layers(options["layers"]),
        },
    )


def _layers(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise BadUsageError(
            f"--layers needs numbers, not {text!r}", hint="--layers 2,18,33"
        ) from error


def _show(record: Any, found: Any, *, quiet: bool) -> None:
    """What was found, and the line that `audit capture` also ends with."""
    from audit.report.wording import clean, trace_amount

    info = record.info
    if not quiet:
        stage, oracle = info.settings["stage"], info.settings["oracle"]
        layers = ", ".join(str(state.layer) for state in info.states) or "none"
        click.echo(
            f"{found.source}: {info.settings['files']:,} files, states of width "
            f"{record.hidden_size:,} ({info.settings['dtype']}), {info.stage} ({stage['source']}), "
            f"further layers {layers}"
        )
        shares = oracle.get("text_agreement")
        agrees = f", the text's next token at {100 * shares['0']:.1f} %" if shares else ""
        click.echo(
            f"oracle from the {oracle['source'].replace('_', ' ')}{agrees}; alignment "
            f"{info.settings['alignment']['status']}"
        )
        for finding in found.findings:
            click.echo(f"{finding.severity:<8} {finding.code}  {clean(finding.sentence)}")
    click.echo(
        f"{clean(record.path)}: {trace_amount(record)} of {clean(info.corpus)}, states of "
        f"{clean(info.model)}"
    )
