"""`audit compare`: the main job."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit.cli.blocks import block_flags, pair_options
from audit.cli.frame import RESAMPLES, SEED, Shared, check_device, shared_options, trace_option
from audit.cli.gating import load_gating
from audit.errors import BadUsageError

if TYPE_CHECKING:
    from audit.ledger import Ledger

_FILE = click.Path(path_type=Path)

_EPILOG = """\b
Examples:
  audit compare ref.safetensors cand.gguf --trace code.trace.safetensors
  audit compare model/ q8.gguf q4.gguf --trace traces/ --kl
  audit compare model.gguf --trim ranks.txt --json
  audit compare model/ mtp-q4_0.gguf --head mtp --trace traces/
  audit compare ref.safetensors cand.gguf --trace traces/ --gate policy.toml
  audit compare model/ mtp.gguf --trace traces/ --chain chain.json --cost cost.json
  audit compare draft/ draft-q8.safetensors --head eagle3 --verifier model/ --trace traces/
"""


@click.command(epilog=_EPILOG)
@click.argument("ref", type=_FILE)
@click.argument("cand", type=_FILE, nargs=-1)
@trace_option("Trace file, or folder of traces; repeatable. Else AUDIT_TRACES, else beside REF.")
@click.option(
    "--trim", "trims", type=_FILE, multiple=True,
    help="Ranks card: REF's own rows for these ids are a candidate.",
)  # fmt: skip
@block_flags
@click.option("--map", "map_file", type=_FILE, help="Target ids of a trimmed candidate's rows.")
@click.option(
    "--d2t-convention", type=click.Choice(["auto", "offset", "absolute"]), default="auto",
    show_default=True, help="How to read a d2t tensor that could be read both ways.",
)  # fmt: skip
@click.option("--factors", help="LEFT,RIGHT: tensors of a low-rank candidate W = LEFT @ RIGHT.")
@click.option("--keep-index", type=_FILE, help="Hidden channels that a narrower candidate kept.")
@click.option(
    "--head-tensor", "head_tensors", multiple=True, metavar="[ref:|cand:]NAME",
    help="The head's tensor, where its name does not tell.",
)  # fmt: skip
@click.option("--vocabulary", type=click.IntRange(min=1), help="Ids of a trimmed REF's target.")
@click.option("--kl", is_flag=True, help="Also measure KL(ref || cand).")
@click.option("--device", default="cpu", show_default=True, help="Where the products run.")
@click.option(
    "--anchor", "anchor_min", type=click.FloatRange(0, 1), default=0.99, show_default=True,
    help="Share of the verifier's tokens that REF must reproduce.",
)  # fmt: skip
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option(
    "--resamples", type=RESAMPLES, default=4000, show_default=True,
    help="Bootstrap resamples of the sequences.",
)  # fmt: skip
@click.option(
    "--force", is_flag=True,
    help="Go on where traces, tokenizer and model do not belong together; the run is marked.",
)  # fmt: skip
@click.option(
    "--chain", type=_FILE,
    help="Figures of `audit chain -o` on these heads and traces, for reports and policies.",
)  # fmt: skip
@click.option("--cost", type=_FILE, help="Figures of `audit cost -o`, from measured acceptance.")
@click.option("--gate", "policy", type=_FILE, help="Hold the run against this policy (TOML).")
@click.option("--waivers", type=_FILE, help="With --gate: TOML file of waivers.")
@click.option("--exit-zero", is_flag=True, help="With --gate: report without blocking.")
@click.option("--no-record", is_flag=True, help="Do not write the run into the ledger.")
@shared_options
def compare(shared: Shared, ref: Path, cand: tuple[Path, ...], **options: Any) -> int:
    """Run each CAND beside REF on identical hidden states and say what the cut costs.

    REF and CAND: a safetensors file, a sharded index, a Hugging Face folder, a GGUF file (any
    shard), a LoRA adapter of REF, or a proposals file. With --gate the exit code is 0 passed,
    1 failed, 3 undecided; without, 0 once it measured.
    """
    from audit.cost.recorded import with_figures
    from audit.ledger import run_json
    from audit.report.terminal import progress_on, show_run
    from audit.run import audit_heads

    gating = load_gating(options["policy"], options["waivers"], options["exit_zero"])
    chain, cost = _figures(options)
    ledger = shared.open_ledger()
    request = _request(ref, cand, options, ledger)
    if not options["no_record"]:
        ledger.check_writable()
    with progress_on(shared.err, enabled=not shared.quiet) as progress:
        finished = audit_heads(request, progress)
    run = with_figures(finished.run, chain, cost) if chain or cost else finished.run
    run = gating.judge(run, ledger) if gating else run
    if not options["no_record"]:
        if gating:
            ledger.save_policy(gating.text)
        run = ledger.save_run(run, finished.frames)
    if shared.as_json:
        click.echo(run_json(run))
    elif shared.quiet < 2:
        show_run(run, shared.out, quiet=bool(shared.quiet))
    if gating:
        gating.warn(shared)
        gating.show(run, shared)
    if run.run and shared.quiet < 2 and not shared.as_json:
        click.echo(f"run {run.run} recorded · next: audit show {run.run}")
    return gating.exit_code(run) if gating else 0


def _figures(options: dict[str, Any]) -> tuple[Any, Any]:
    """What --chain and --cost hold."""
    from audit.chains.reading import read_chain
    from audit.cost.recorded import read_cost

    return (
        read_chain(options["chain"]) if options["chain"] else None,
        read_cost(options["cost"]) if options["cost"] else None,
    )


def _request(ref: Path, cand: tuple[Path, ...], options: dict[str, Any], ledger: Ledger) -> Any:
    """The request that the options describe."""
    from audit.heads import HeadOptions
    from audit.run import AuditRequest, CandidateRequest
    from audit.stats import Resampling

    only_one = [
        name
        for name in ("map_file", "factors", "keep_index")
        if options[name] is not None and len(cand) != 1
    ]
    if only_one:
        name = only_one[0].replace("_file", "").replace("_", "-")
        raise BadUsageError(
            f"--{name} describes one candidate, {len(cand)} were given",
            hint="compare that candidate alone",
        )
    for path in (ref, *cand, *options["trims"]):
        if re.search("[\ud800-\udfff]", path.name):
            raise BadUsageError(
                "this name is not UTF-8, and the table of positions holds names",
                hint="rename the file, or give it through a symbolic link",
                where=path,
            )
    if math.isnan(options["anchor_min"]):
        raise BadUsageError("--anchor is not a number", hint="a share between 0 and 1")
    check_device(options["device"])
    own = HeadOptions(
        tensor=_tensor(options["head_tensors"], "cand"),
        map=options["map_file"],
        d2t_convention=options["d2t_convention"],
        factors=_factors(options["factors"]),
        keep_index=options["keep_index"],
    )
    candidates = [CandidateRequest(path, own) for path in cand]
    candidates += [CandidateRequest(path, is_trim=True) for path in options["trims"]]
    return AuditRequest(
        ref=ref,
        candidates=tuple(candidates),
        ref_options=HeadOptions(
            tensor=_tensor(options["head_tensors"], "ref"), vocabulary=options["vocabulary"]
        ),
        traces=options["traces"],
        kl=options["kl"],
        device=options["device"],
        anchor_min=options["anchor_min"],
        pair=pair_options(options),
        force=options["force"],
        ledger=ledger,
        resampling=Resampling(resamples=options["resamples"], seed=options["seed"]),
    )


def _tensor(given: tuple[str, ...], side: str) -> str | None:
    """The tensor name meant for one side; one without a prefix is meant for both."""
    chosen = None
    for name in given:
        prefix, colon, rest = name.partition(":")
        if colon and prefix in ("ref", "cand"):
            chosen = rest if prefix == side else chosen
        else:
            chosen = name
    return chosen


def _factors(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(parts):
        raise BadUsageError(
            f"--factors needs two tensor names, not {text!r}", hint="--factors LEFT,RIGHT"
        )
    return parts[0], parts[1]
