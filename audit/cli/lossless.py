"""`audit lossless`: greedy text with a head and without, token for token."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit.cli.blocks import block_flags, pair_options
from audit.cli.frame import Shared, check_device, shared_options

if TYPE_CHECKING:
    from audit.chains.lossless import LosslessRequest

_FILE = click.Path(path_type=Path)
DIFFERS = 1

_EPILOG = """\b
Exit code 1 when a text differs, or when the loop accepted other slots than `audit chain` predicts.

\b
Examples:
  audit lossless model/ --head mtp --prompts prompts.jsonl
  audit lossless model/ q4_0.safetensors trimmed.gguf --head mtp --prompts prompts.jsonl --slots 3
  audit lossless model/ --head exit:16 --prompts texts.txt --split --tokens 32 --max-prompts 50
"""


@click.command(epilog=_EPILOG)
@click.argument("model", type=_FILE)
@click.argument("cand", type=_FILE, nargs=-1)
@click.option(
    "--prompts", type=_FILE, multiple=True, required=True,
    help="Text, JSON Lines or Parquet file of prompts; may be repeated.",
)  # fmt: skip
@click.option("--field", help="Where a row's text stands, as in meta.body; else text or messages.")
@click.option("--split", is_flag=True, help="Two blank lines separate prompts in text files.")
@click.option("--max-prompts", type=click.IntRange(min=1), help="Only so many, the first ones.")
@click.option(
    "--tokens", type=click.IntRange(min=1), default=64, show_default=True,
    help="New tokens per prompt at most.",
)  # fmt: skip
@click.option("--slots", type=int, default=4, show_default=True, help="Draft slots K, 1 to 64.")
@click.option(
    "--p-min", type=float, default=0.0, show_default=True, metavar="P",
    help="Stop drafting before a slot that the head gives less probability.",
)  # fmt: skip
@click.option(
    "--chain-stage", type=click.Choice(["post_norm", "pre_norm"]),
    help="Norm stage of its own state that an MTP head reads; else that of the verifier's.",
)  # fmt: skip
@click.option("--head-tensor", metavar="NAME", help="The projection, if its name does not tell.")
@click.option("--device", default="cpu", show_default=True, help="Where models and products run.")
@block_flags
@shared_options
def lossless(shared: Shared, model: Path, cand: tuple[Path, ...], **options: Any) -> int:
    """Decode prompts with MODEL's head, and with each CAND, in a real speculative loop.

    The texts must be those that MODEL writes without any head.
    """
    from audit.chains.lossless import run_lossless
    from audit.report.chains import show_lossless
    from audit.report.terminal import progress_on

    request = _request(model, cand, options)
    with progress_on(shared.err, enabled=not shared.quiet) as progress:
        result = run_lossless(request, progress)
    if shared.as_json:
        shared.print_json(result.model_dump(mode="json", by_alias=True))
    elif shared.quiet < 2:
        show_lossless(result, shared.out, quiet=bool(shared.quiet))
    return 0 if result.holds else DIFFERS


def _request(model: Path, cands: tuple[Path, ...], options: dict[str, Any]) -> LosslessRequest:
    from audit.chains.asking import check_slots
    from audit.chains.lossless import LosslessRequest
    from audit.corpora import own_documents
    from audit.heads import HeadOptions

    check_slots(options["slots"], options["p_min"])
    check_device(options["device"])
    return LosslessRequest(
        model=model,
        documents=own_documents(
            options["prompts"], split_blank_lines=options["split"], field=options["field"]
        ),
        candidates=cands,
        tokens=options["tokens"],
        slots=options["slots"],
        p_min=options["p_min"],
        most=options["max_prompts"],
        chain_stage=options["chain_stage"],
        device=options["device"],
        ref_options=HeadOptions(tensor=options["head_tensor"]),
        pair=pair_options(options),
    )
