"""`audit forge`: make a candidate out of a reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from audit.cli.blocks import block_options
from audit.cli.frame import SEED, Shared, shared_options
from audit.errors import BadUsageError

_FILE = click.Path(path_type=Path)

_EPILOG = """\b
Cuts: q8_0, q5_1, q4_0, mxfp4, nvfp4, ... fp8 · prune:KEEP[:activation] ·
lowrank:KEEP[:calibrated] · noise:STRENGTH · trim:RANKS[:COUNT]

\b
Pruning and low rank act on the MLP of a draft block and leave the projection as it is; a trim
takes rows of the projection and leaves the block. The others cut both. A draft head is written
in the format of REF; in safetensors a ggml type lies as the floats it stands for.

\b
Examples:
  audit forge model.gguf --cut q4_0 -o head-q4_0.gguf
  audit forge model/ --cut prune:0.5 --head mtp -o mtp-half.safetensors
  audit forge model/ --cut lowrank:0.25:calibrated --head mtp --trace traces/ -o low.safetensors
  audit forge mtp.gguf --cut nvfp4 --head mtp --only block -o mtp-nvfp4.gguf
"""


@click.command(epilog=_EPILOG)
@click.argument("ref", type=_FILE)
@click.option("--cut", required=True, metavar="CUT", help="What is done to REF's head.")
@click.option("-o", "--output", type=_FILE, required=True, help="A .gguf or .safetensors file.")
@click.option(
    "--head", metavar="NAME", help="lm, mtp, eagle3, medusa:0, exit:16; else as in `audit compare`."
)
@click.option(
    "--only", type=click.Choice(["projection", "block"]), help="One part of a draft head."
)
@click.option(
    "--trace", "traces", type=_FILE, multiple=True,
    help="Text that an `activation` or `calibrated` cut is fitted to; may be repeated.",
)  # fmt: skip
@click.option("--seed", type=SEED, default=0, show_default=True, help="Of noise.")
@click.option("--verifier", type=_FILE, help="Target model of a draft that holds no embedding.")
@click.option("--borrow-target-head", is_flag=True, help="An EAGLE-3 draft uses the target's head.")
@click.option(
    "--concat", type=click.Choice(["embedding_first", "hidden_first"]),
    help="Order of an MTP head's two inputs, where the layout does not tell.",
)  # fmt: skip
@click.option(
    "--stage", type=click.Choice(["post_norm", "pre_norm"]),
    help="Norm stage of the state that an MTP head reads.",
)  # fmt: skip
@click.option("--position-offset", type=int, help="Position id of a sequence's first row.")
@click.option("--head-tensor", metavar="NAME", help="The projection, if its name does not tell.")
@shared_options
def forge(shared: Shared, ref: Path, cut: str, output: Path, **options: Any) -> None:
    """Cut REF's head and write the candidate, for `audit compare REF FILE`."""
    from audit.forge import forge_head, parse_cut
    from audit.report.wording import clean

    wanted = parse_cut(cut)
    head, others = _reference(ref, options)
    second_moment, moments = _calibration(head, wanted, ref, options)
    made = forge_head(
        head,
        wanted,
        output,
        only=options["only"],
        second_moment=second_moment,
        moments=moments,
        seed=options["seed"],
    )
    notes = [*made.notes, *others]
    if options["traces"] and not wanted.calibrated:
        notes.append(f"{wanted} is fitted to nothing: the traces were not read")
    if shared.as_json:
        shared.print_json(_document(made, head, wanted, options["seed"], notes))
    elif shared.quiet < 2:
        click.echo(clean(_line(made, head, wanted)))
        for note in () if shared.quiet else notes:
            click.echo(clean(f"  {note}"))


def _reference(ref: Path, options: dict[str, Any]) -> tuple[Any, list[str]]:
    """REF's head, and a note on heads that were not meant."""
    from audit.heads import HeadOptions
    from audit.pair import choose_head, load_ref

    choice = choose_head(ref, [], options["head"])
    head = load_ref(ref, choice, HeadOptions(tensor=options["head_tensor"]), block_options(options))
    others = ", ".join(choice.others)
    said = (
        f"the LM head was cut; REF also holds {others}: --head {choice.others[0]}" if others else ""
    )
    return head, [said] if said else []


def _calibration(head: Any, cut: Any, ref: Path, options: dict[str, Any]) -> tuple[Any, Any]:
    """Second moments of what enters the projection and the block's MLPs, where the cut asks."""
    if not (cut.calibrated and options["traces"]):
        return None, None
    from audit.forge import block_moments, parts_of, second_moment_of
    from audit.measure import states_for
    from audit.traces import find_traces, lookahead_rows, read_trace

    parts = parts_of(head, cut, options["only"])
    traces = [read_trace(path) for path in find_traces(options["traces"], ref)]
    second_moment = moments = None
    if parts.projection:
        import torch

        states = [states_for(head, t, lookahead_rows(t, head.lookahead)[0]) for t in traces]
        second_moment = second_moment_of(torch.cat(states))
    if parts.block:
        moments = block_moments(head.block, traces, diagonal=cut.kind == "prune")
        if not moments:
            raise BadUsageError(
                f"{head.block.name} has no gated MLP that {cut} could be fitted to",
                hint="take a cut of all its weights, such as q4_0",
            )
    return second_moment, moments


def _line(made: Any, ref: Any, cut: Any) -> str:
    errors = ", ".join(f"{part} {100 * error:.2f} %" for part, error in made.errors.items())
    changed = f"relative weight error: {errors}" if errors else "weights unchanged"
    return (
        f"{made.path}: {ref.record.kind} of {ref.record.name}, {made.parts}: {cut.title}, "
        f"{made.bytes_before:,} -> {made.bytes_after:,} bytes, {changed}"
    )


def _document(made: Any, ref: Any, cut: Any, seed: int, notes: list[str]) -> dict[str, Any]:
    return {
        "file": str(made.path),
        "file_bytes": made.file_bytes,
        "cut": str(cut),
        "family": cut.family,
        "title": cut.title,
        "head": ref.record.kind,
        "parts": str(made.parts),
        "bytes_before": made.bytes_before,
        "bytes_after": made.bytes_after,
        "relative_errors": dict(made.errors),
        "seed": seed if cut.kind == "noise" else None,
        "reference": {"name": ref.record.name, "sha256": ref.record.sha256},
        "notes": notes,
    }
