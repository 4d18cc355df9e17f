"""`audit forge`: make candidates out of a reference."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit.cli.blocks import block_flags, pair_options
from audit.cli.frame import SEED, Shared, shared_options, trace_option

if TYPE_CHECKING:
    from audit.forge import Cut, Forged
    from audit.heads import Head

_FILE = click.Path(path_type=Path)

_EPILOG = """\b
Cuts: q8_0, q5_1, q4_0, mxfp4, nvfp4, ... fp8 · prune:KEEP[:activation] ·
lowrank:KEEP[:calibrated] · noise:STRENGTH · trim:RANKS[:COUNT]

\b
Pruning and low rank act on the MLP of a draft block and leave the projection as it is; a trim
takes rows of the projection and leaves the block. The others cut both. A draft head is written
in the format of REF. A safetensors file has no ggml types and no FP8 that loaders agree on: the
values lie there as floats, and the sizes named are those of the type itself.

\b
Examples:
  audit forge model.gguf --cut q4_0 -o head-q4_0.gguf
  audit forge model/ --cut prune:0.5 --head mtp -o mtp-half.safetensors
  audit forge model/ --cut lowrank:0.25:calibrated --head mtp --trace traces/ -o low.safetensors
  audit forge mtp.gguf --cut nvfp4 --head mtp --only block -o mtp-nvfp4.gguf
  audit forge model/ --head mtp --cut q8_0 --cut q4_0 --cut prune:0.5 -o cuts/
"""


@click.command(epilog=_EPILOG)
@click.argument("ref", type=_FILE)
@click.option(
    "--cut", "cuts", required=True, multiple=True, metavar="CUT",
    help="What is done to REF's head; several make a file each.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=_FILE, required=True,
    help="A .gguf or .safetensors file; for several cuts, the folder they go into.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace files that the audit did not make.")
@click.option(
    "--only", type=click.Choice(["projection", "block"]), help="One part of a draft head."
)
@trace_option("Text that an `activation` or `calibrated` cut is fitted to; may be repeated.")
@click.option(
    "--anchor", "anchor_min", type=click.FloatRange(0, 1), default=0.99, show_default=True,
    help="Share of the verifier's tokens that an LM head must reproduce on that text.",
)  # fmt: skip
@click.option("--seed", type=SEED, default=0, show_default=True, help="Of noise.")
@block_flags
@click.option("--head-tensor", metavar="NAME", help="The projection, if its name does not tell.")
@shared_options
def forge(shared: Shared, ref: Path, cuts: tuple[str, ...], output: Path, **options: Any) -> None:
    """Cut REF's head and write the candidate, for `audit compare REF FILE`."""
    from audit.fitting import fit_cuts
    from audit.forge import check_calibrated, check_forgeable, forge_head
    from audit.heads import HeadOptions
    from audit.pair import load_ref

    job = _plan(ref, cuts, output, options)
    head = load_ref(ref, job.choice, HeadOptions(tensor=options["head_tensor"]), job.pair.block)
    for out, cut in job.targets.items():
        check_forgeable(head, cut, out, options["only"])
        check_calibrated(cut, bool(job.traces))
    fit = fit_cuts(
        head, list(job.targets.values()), job.traces, only=options["only"],
        anchor_min=options["anchor_min"], model=job.pair.block.verifier,
    )  # fmt: skip
    made = []
    for out, cut in job.targets.items():
        file = forge_head(
            head, cut, out, only=options["only"], second_moment=fit.projection,
            moments=fit.block, seed=options["seed"],
        )  # fmt: skip
        notes = [*file.notes, *job.notes, *(fit.notes if cut.calibrated else ())]
        made.append((file, cut, notes))
        if not shared.as_json:
            _show(shared, file, head, cut, notes)
    if shared.as_json:
        documents = [_document(file, head, cut, options["seed"], n) for file, cut, n in made]
        shared.print_json(documents[0] if len(cuts) == 1 else {"forged": documents})


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be made, with everything checked that needs no weights."""

    choice: Any
    pair: Any
    targets: dict[Path, Cut]
    traces: list[Path]

    @property
    def notes(self) -> list[str]:
        """What was not cut, and what was not read."""
        others, notes = self.choice.others, []
        if others:
            held = ", ".join(others)
            notes.append(f"the LM head was cut; REF also holds {held}: --head {others[0]}")
        if self.traces and not any(cut.calibrated for cut in self.targets.values()):
            cuts = ", ".join(map(str, self.targets.values()))
            notes.append(f"{cuts}: fitted to nothing, so the traces were not read")
        return notes


def _plan(ref: Path, cuts: tuple[str, ...], output: Path, options: dict[str, Any]) -> _Plan:
    """Cuts, places and traces, refused here rather than after minutes of work."""
    from audit.files import open_container
    from audit.forge import check_target, name_files, parse_cut
    from audit.forge.cuts import check_card
    from audit.pair import choose_head
    from audit.traces import find_traces

    wanted = [parse_cut(text) for text in cuts]
    for cut in wanted:
        check_card(cut)
    pair = pair_options(options)
    container = open_container(ref)
    choice = choose_head(ref, [], pair.head)
    traces = find_traces(options["traces"], ref) if options["traces"] else []
    is_lm = choice.name.kind == "lm"
    targets = name_files(wanted, output, str(choice.name), None if is_lm else container.format)
    inputs = [ref, *container.files, *(pair.block.verifier.files if pair.block.verifier else ())]
    inputs += [*traces, *(cut.card for cut in wanted if cut.card)]
    for out in targets:
        check_target(out, inputs, force=options["force"])
    return _Plan(choice, pair, targets, traces)


def _show(shared: Shared, made: Forged, ref: Head, cut: Cut, notes: list[str]) -> None:
    from audit.report.wording import clean

    if shared.quiet > 1:
        return
    click.echo(clean(_line(made, ref, cut)))
    for note in () if shared.quiet else notes:
        click.echo(clean(f"  {note}"))


def _line(made: Forged, ref: Head, cut: Cut) -> str:
    errors = ", ".join(f"{part} {100 * error:.2f} %" for part, error in made.errors.items())
    changed = f"relative weight error: {errors}" if errors else "weights unchanged"
    return (
        f"{made.path}: {ref.record.kind} of {ref.record.name}, {made.parts}: {cut.title}, "
        f"{made.bytes_before:,} -> {made.bytes_after:,} bytes, {changed}"
    )


def _document(made: Forged, ref: Head, cut: Cut, seed: int, notes: list[str]) -> dict[str, Any]:
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
