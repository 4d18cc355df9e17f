"""`audit cost`: bytes of a draft step, and what a head is worth on stated assumptions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit.cli.blocks import block_flags, pair_options
from audit.cli.frame import ABOVE, Shared, shared_options
from audit.errors import BadUsageError

if TYPE_CHECKING:
    from audit.cost.asking import CostRequest, Plan

_FILE = click.Path(path_type=Path)
_MOST = 1024


_EPILOG = """\b
MEASURED is JSON or CSV with head, tokens_per_second, plain_tokens_per_second, runs (and engine).
Acceptance comes from --acceptance, a recorded run (one slot) or `audit chain -o` (every slot).

\b
Examples:
  audit cost model/ trimmed.gguf --head mtp
  audit cost model/ --head mtp --plan 32768:nvfp4 --plan 8192
  audit cost model/ trimmed.gguf --run latest --bandwidth 1008 --slots 3
  audit cost model/ trimmed.gguf --chain chain.json --draft-ms 1.9 --draft-ms 0.6 --verify-ms 14
  audit cost model/ cut.gguf --acceptance 0.667 --acceptance 0.636 --bandwidth 1008 --context 8192
  audit cost model/ cut.gguf --acceptance 0.66 --verify-ms 14 --bandwidth 900 --measured bench.csv
"""


@click.command(epilog=_EPILOG)
@click.argument("ref", type=_FILE)
@click.argument("cand", type=_FILE, nargs=-1)
@click.option(
    "--plan", "plans", multiple=True, metavar="ROWS[:TYPE]",
    help="Also a trim of REF that is not made yet, its matrices in TYPE; may be repeated.",
)  # fmt: skip
@click.option("--bandwidth", type=ABOVE, metavar="GB/S", help="Memory bandwidth of the device.")
@click.option("--tflops", type=ABOVE, help="Its arithmetic; without, that is free.")
@click.option(
    "--draft-ms", type=ABOVE, multiple=True,
    help="Measured draft step: once for REF, then for each CAND.",
)  # fmt: skip
@click.option("--verify-ms", type=ABOVE, help="Measured verify step of K + 1 tokens.")
@click.option("--plain-ms", type=ABOVE, help="Measured step of plain decoding.")
@click.option(
    "--slots", type=click.IntRange(1, _MOST), default=1, show_default=True,
    help="Draft slots K per round.",
)  # fmt: skip
@click.option(
    "--context", type=click.IntRange(0, 2**40), default=0, show_default=True,
    help="Tokens in each user's KV cache.",
)  # fmt: skip
@click.option(
    "--users",
    type=click.IntRange(1, 2**20),
    default=1,
    show_default=True,
    help="Served at once.",
)
@click.option(
    "--acceptance", type=float, multiple=True,
    help="Acceptance: once for all heads, or for REF and each CAND.",
)  # fmt: skip
@click.option("--run", metavar="ID", help="Acceptance of a recorded run, or of `latest`.")
@click.option("--chain", type=_FILE, help="Acceptance of every slot, from `audit chain -o`.")
@click.option("--measured", type=_FILE, help="An engine's own measurements, shown beside.")
@click.option("-o", "--output", type=_FILE, help="Also write the answer as JSON.")
@click.option("--head-tensor", metavar="NAME", help="The projection, if its name does not tell.")
@block_flags
@shared_options
def cost(shared: Shared, ref: Path, cand: tuple[Path, ...], **options: Any) -> None:
    """Count the bytes of a draft step of REF and each CAND, and model what the heads are worth.

    Never a measured speed: a model on assumptions that every output states.
    """
    from audit.cost.asking import run_cost
    from audit.outputs import check_output, write_output
    from audit.report.costs import show_cost

    if options["output"]:
        check_output(options["output"], "answer")
    result = run_cost(_request(shared, ref, cand, options))
    document = result.model_dump(mode="json", by_alias=True)
    if options["output"]:
        from audit.provenance import json_text

        write_output(options["output"], json_text(document) + "\n", "answer")
    if shared.as_json:
        shared.print_json(document)
    elif shared.quiet < 2:
        show_cost(result, shared.out, quiet=bool(shared.quiet))


def _request(
    shared: Shared, ref: Path, cands: tuple[Path, ...], options: dict[str, Any]
) -> CostRequest:
    from audit.chains.reading import read_chain
    from audit.cost.asking import CostRequest
    from audit.cost.machine import Load, Machine
    from audit.heads import HeadOptions

    machine = Machine(
        bandwidth=options["bandwidth"],
        tflops=options["tflops"],
        draft_ms=options["draft_ms"],
        verify_ms=options["verify_ms"],
        plain_ms=options["plain_ms"],
        at=Load(options["context"], options["users"]),
    )
    return CostRequest(
        ref=ref,
        candidates=cands,
        plans=tuple(_plan(text) for text in options["plans"]),
        ref_options=HeadOptions(tensor=options["head_tensor"]),
        pair=pair_options(options),
        machine=machine,
        slots=options["slots"],
        acceptance=options["acceptance"],
        run=shared.open_ledger().load_run(options["run"]) if options["run"] else None,
        chain=read_chain(options["chain"]) if options["chain"] else None,
        measured=options["measured"],
    )


def _plan(text: str) -> Plan:
    from audit.cost.asking import Plan
    from audit.forge import parse_cut

    rows, _, kind = text.partition(":")
    if not (rows.isascii() and rows.isdigit() and 0 < int(rows) < 10**9):
        raise BadUsageError(f"--plan {text!r} names no number of rows", hint="--plan 32768:nvfp4")
    if not kind:
        return Plan(int(rows), None)
    cut = parse_cut(kind)
    if cut.kind != "quantize" or not cut.encoding:
        raise BadUsageError(f"--plan {text!r}: {kind} is no type", hint="--plan 32768:nvfp4")
    return Plan(int(rows), cut.encoding)
