"""`audit chain`: K recursive draft slots, checked by the verifier."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit.cli.blocks import block_flags, pair_options
from audit.cli.frame import RESAMPLES, SEED, Shared, check_device, shared_options, trace_option

if TYPE_CHECKING:
    from audit.chains.asking import ChainRequest

_FILE = click.Path(path_type=Path)

_EPILOG = """\b
p_k: share of chains whose slots 0..k are all accepted; c_k = p_k / p_(k-1);
chain acceptance: sum p_k / K; tokens per round: 1 + sum p_k.

\b
Examples:
  audit chain model/ --head mtp --slots 4 --trace traces/
  audit chain model/ q4_0.gguf trimmed.gguf --head mtp --slots 3 --trace traces/ -o chain.json
  audit chain model/ cut.safetensors --head exit:16 --slots 4 --p-min 0.6 --trace traces/
  audit chain draft/ --head eagle3 --verifier model/ --slots 5 --trace traces/
  audit chain mtp.gguf --head mtp --slots 1 --trace traces/
"""


@click.command(epilog=_EPILOG)
@click.argument("ref", type=_FILE)
@click.argument("cand", type=_FILE, nargs=-1)
@click.option("--slots", type=int, default=4, show_default=True, help="Draft slots K, 1 to 64.")
@click.option(
    "--p-min", type=float, default=0.0, show_default=True, metavar="P",
    help="Stop drafting before a slot that the head gives less probability.",
)  # fmt: skip
@trace_option("Trace file, or folder of traces; repeatable. Else AUDIT_TRACES, else beside REF.")
@click.option(
    "--anchors", type=click.IntRange(min=0), default=100, show_default=True,
    help="Positions drawn per trace; 0 for all.",
)  # fmt: skip
@click.option(
    "--chain-stage", type=click.Choice(["post_norm", "pre_norm"]),
    help="Norm stage of its own state that an MTP head reads; else that of the verifier's.",
)  # fmt: skip
@click.option("-o", "--output", type=_FILE, help="Write the figures, for cost and compare.")
@click.option("--head-tensor", metavar="NAME", help="The projection, if its name does not tell.")
@click.option("--device", default="cpu", show_default=True, help="Where models and products run.")
@block_flags
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option(
    "--resamples", type=RESAMPLES, default=4000, show_default=True,
    help="Bootstrap resamples of the sequences.",
)  # fmt: skip
@shared_options
def chain(shared: Shared, ref: Path, cand: tuple[Path, ...], **options: Any) -> None:
    """Let REF and each CAND draft K slots, each from the slot before, and see what is accepted.

    Slots beyond the first need the verifier's model: REF itself where it is one, else --verifier.
    """
    from audit.chains.asking import run_chain
    from audit.outputs import check_output, write_output
    from audit.provenance import json_text
    from audit.report.chains import show_chain
    from audit.report.terminal import progress_on

    if options["output"]:
        check_output(options["output"], "figures")
    with progress_on(shared.err, enabled=not shared.quiet) as progress:
        result = run_chain(_request(ref, cand, options), progress)
    document = result.model_dump(mode="json", by_alias=True)
    if options["output"]:
        write_output(options["output"], json_text(document) + "\n", "figures")
    if shared.as_json:
        shared.print_json(document)
    elif shared.quiet < 2:
        show_chain(result, shared.out, quiet=bool(shared.quiet))


def _request(ref: Path, cands: tuple[Path, ...], options: dict[str, Any]) -> ChainRequest:
    from audit.chains.asking import ChainRequest, check_slots
    from audit.heads import HeadOptions
    from audit.stats import Resampling

    check_slots(options["slots"], options["p_min"])
    check_device(options["device"])
    return ChainRequest(
        ref=ref,
        candidates=cands,
        slots=options["slots"],
        p_min=options["p_min"],
        traces=options["traces"],
        anchors=options["anchors"],
        chain_stage=options["chain_stage"],
        device=options["device"],
        ref_options=HeadOptions(tensor=options["head_tensor"]),
        pair=pair_options(options),
        resampling=Resampling(resamples=options["resamples"], seed=options["seed"]),
    )
