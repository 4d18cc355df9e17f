"""`audit trim`: a head under a ranked vocabulary, or several sizes of it in one pass."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit.cli.blocks import block_flags, pair_options
from audit.cli.frame import ABOVE, RESAMPLES, SEED, Shared, check_device, shared_options
from audit.errors import BadUsageError

if TYPE_CHECKING:
    from audit.cost.machine import Machine
    from audit.trims.asking import TrimRequest, TrimResult

_FILE = click.Path(path_type=Path)
_SHOWN = 10

_EPILOG = """\b
A card of `audit rank` also names the stop, special and byte tokens: they are always kept, so --rows
must be more than they are. Of another list exactly the first N ids are kept.

\b
Files, by engine: llama.cpp .gguf (d2t I64, absolute ids); memra .gguf (d2t I32, rows by rank);
vllm .safetensors (d2t offsets, t2d); sglang the same, or .pt, a token map without weights.

\b
Examples:
  audit trim model.gguf --ranks ranks.txt --rows 32768 -o head.gguf
  audit trim model/ --ranks ranks.txt --rows 8192 --to q8_0 --trace traces/ -o head.gguf
  audit trim model/ --ranks ranks.txt --rows 8192 --for vllm -o head.safetensors
  audit trim model/ --ranks ranks.txt --sweep 2048,4096,8192 --trace traces/
  audit trim model/ --ranks ranks.txt --sweep 4096,8192 --trace traces/ --bandwidth 1008 --slots 3
  audit trim model/ --ranks ranks.txt --rows 4096 --trace traces/ --spare 64 --spare-card more.txt
"""


@click.command(epilog=_EPILOG)
@click.argument("ref", type=_FILE)
@click.option(
    "--ranks", type=_FILE, required=True, help="Ranks card, or any list that `rank check` reads."
)
@click.option("--rows", type=int, help="How many ids of the list; else all of them.")
@click.option("--to", "encoding", metavar="TYPE", help="Quantize the rows: q8_0, q4_0, nvfp4, ...")
@click.option(
    "--for", "consumer", type=click.Choice(["llama.cpp", "vllm", "sglang", "memra"]),
    help="Engine that reads the file; else the usual one for its suffix.",
)  # fmt: skip
@click.option("-o", "--output", type=_FILE, help="A .gguf, .safetensors or .pt file.")
@click.option("--force", is_flag=True, help="Replace a file that the audit did not make.")
@click.option("--sweep", metavar="N,N,...", help="Measure these sizes and write nothing.")
@click.option(
    "--trace", "traces", type=_FILE, multiple=True,
    help="Trace file, or folder of traces, to measure on; may be repeated.",
)  # fmt: skip
@click.option(
    "--spare", type=click.IntRange(min=0), default=0,
    help="Add so many missing ids, those that would win back most on the traces.",
)  # fmt: skip
@click.option("--spare-card", type=_FILE, help="Write the list with the spare ids as a card.")
@click.option(
    "--escaped", type=click.IntRange(min=0), default=_SHOWN, show_default=True,
    help="How many of the costliest missing ids are shown.",
)  # fmt: skip
@click.option("--bandwidth", type=ABOVE, metavar="GB/S", help="Also say which sizes pay: memory.")
@click.option("--draft-ms", type=ABOVE, help="The same, from a measured draft step of REF.")
@click.option("--verify-ms", type=ABOVE, help="A measured verify step of K + 1 tokens.")
@click.option("--plain-ms", type=ABOVE, help="A measured step of plain decoding.")
@click.option(
    "--slots", type=click.IntRange(1, 1024), default=1, show_default=True,
    help="Draft slots K per round, for what a size is worth.",
)  # fmt: skip
@click.option("--csv", "as_csv", is_flag=True, help="Print the sizes as CSV.")
@click.option("--head-tensor", metavar="NAME", help="The projection, if its name does not tell.")
@block_flags
@click.option("--device", default="cpu", show_default=True, help="Where the products run.")
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option(
    "--resamples", type=RESAMPLES, default=4000, show_default=True,
    help="Bootstrap resamples of the sequences.",
)  # fmt: skip
@shared_options
def trim(shared: Shared, ref: Path, **options: Any) -> None:
    """Keep the rows of REF's head that a ranked vocabulary names first.

    The file is read back and compared, row by row and on the traces given, before it is kept.
    """
    from audit.report.terminal import progress_on
    from audit.report.trims import sweep_csv
    from audit.trims.asking import run_trim

    if options["as_csv"] and shared.as_json:
        raise BadUsageError("--csv and --json both want the whole output", hint="give one of them")
    request = _request(ref, options)
    with progress_on(shared.err, enabled=not shared.quiet) as progress:
        result = run_trim(request, progress)
    if shared.as_json:
        shared.print_json(result.model_dump(mode="json", by_alias=True))
    elif options["as_csv"]:
        click.echo(sweep_csv(result.sizes), nl=False)
    elif shared.quiet < 2:
        _show(result, options["escaped"], shared)


def _request(ref: Path, options: dict[str, Any]) -> TrimRequest:
    from audit.heads import HeadOptions
    from audit.stats import Resampling
    from audit.trims.asking import TrimRequest

    check_device(options["device"])
    encoding = _encoding(options["encoding"]) if options["encoding"] else None
    if options["as_csv"] and not options["traces"]:
        raise BadUsageError("--csv prints what was measured, on traces", hint="--trace FILE")
    return TrimRequest(
        ref=ref,
        card=options["ranks"],
        rows=_positive(options["rows"]),
        sizes=_sizes(options["sweep"]),
        traces=options["traces"],
        out=options["output"],
        force=options["force"],
        consumer=options["consumer"],
        encoding=encoding,
        spare=options["spare"],
        spare_card=options["spare_card"],
        ref_options=HeadOptions(tensor=options["head_tensor"]),
        pair=pair_options(options),
        resampling=Resampling(resamples=options["resamples"], seed=options["seed"]),
        device=options["device"],
        machine=_machine(options),
        slots=options["slots"],
    )


def _encoding(text: str) -> str | None:
    """The type that --to names."""
    from audit.forge import parse_cut

    refused = BadUsageError(
        f"--to takes a type to store rows in, not {text!r}",
        hint="q8_0, q4_0 or nvfp4; other cuts: audit forge",
    )
    try:
        cut = parse_cut(text)
    except BadUsageError as error:
        raise refused from error
    if cut.kind != "quantize":
        raise refused
    return cut.encoding


def _machine(options: dict[str, Any]) -> Machine | None:
    """What is known of times; None where nothing was said."""
    from audit.cost.machine import Machine

    given = {name: options[name] for name in ("bandwidth", "verify_ms", "plain_ms")}
    draft = (options["draft_ms"],) if options["draft_ms"] else ()
    if not draft and not any(given.values()):
        return None
    return Machine(**given, draft_ms=draft)


def _positive(rows: int | None) -> int | None:
    if rows is not None and rows < 1:
        raise BadUsageError(f"--rows {rows}: a head needs rows", hint="1 or more")
    return rows


def _sizes(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise BadUsageError(
            f"--sweep needs numbers of rows, not {text!r}", hint="--sweep 8192,16384,32768"
        )
    return tuple(sorted({int(part) for part in parts}))


def _show(result: TrimResult, shown: int, shared: Shared) -> None:
    from audit.report.costs import show_assumptions, show_worth
    from audit.report.trims import say, show_escaped, show_lost, show_sweep, show_trimmed

    out = shared.out
    if not shared.quiet:
        if result.sizes:
            show_sweep(result.sizes, out)
        for scenario in result.worth:
            show_worth(scenario, out)
        show_assumptions(result.assumptions, out)
        if result.escaped and shown:
            show_escaped(result.escaped, shown, out)
        show_lost(result.lost, out)
        for note in result.notes:
            say(out, f"  {note}")
    if result.written:
        show_trimmed(result.written, out, quiet=bool(shared.quiet))
    if result.spare_card:
        say(out, f"{result.spare_card}: {result.rows:,} ids, {len(result.spare):,} of them added")
