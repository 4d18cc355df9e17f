"""`audit study`: what known cuts of this reference cost, and which rules hold on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from audit.cli.blocks import block_flags, pair_options
from audit.cli.frame import RESAMPLES, SEED, Shared, check_device, shared_options, trace_option

_FILE = click.Path(path_type=Path)

_EPILOG = """\b
Examples:
  audit study model/ --head mtp --trace traces/
  audit study model/ --head mtp --trace traces/ --fit other-code.trace.safetensors
  audit study model/ --head mtp --trace traces/ --report study.html
  audit study model/ --head exit:16 --trace code.trace.safetensors --trace de.trace.safetensors
"""


@click.command(epilog=_EPILOG)
@click.argument("ref", type=_FILE)
@trace_option("Trace file, or folder of traces; repeatable. Else AUDIT_TRACES, else beside REF.")
@click.option(
    "--fit", type=_FILE, multiple=True,
    help="Trace to fit calibrated cuts to, best of other text; else those in distribution.",
)  # fmt: skip
@block_flags
@click.option("--head-tensor", metavar="NAME", help="The projection, if its name does not tell.")
@click.option("--cut", "cuts", multiple=True, help="A further cut, such as lowrank:0.1.")
@click.option("--device", default="cpu", show_default=True, help="Where the products run.")
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option("--resamples", type=RESAMPLES, default=4000, show_default=True)
@click.option(
    "--report", type=click.Path(path_type=Path), help="Also write it, as .html with charts or .md."
)
@shared_options
def study(shared: Shared, ref: Path, **options: Any) -> None:
    """Make the yardsticks of REF, audit them on the traces, and check every rule on them.

    The result is kept in the ledger as REF's calibration and used by `audit compare` from then on.
    """
    from audit.heads import HeadOptions
    from audit.outputs import check_output, write_output
    from audit.report.study import render_study, show_study, study_format
    from audit.report.terminal import progress_on
    from audit.stats import Resampling
    from audit.study import StudyRequest, run_study
    from audit.traces import find_traces

    check_device(options["device"])
    report, fit = options["report"], options["fit"]
    wanted = study_format(report) if report else ""
    if report:
        check_output(report, "report")
    ledger = shared.open_ledger()
    ledger.store.check_writable()
    request = StudyRequest(
        ref=ref,
        traces=tuple(find_traces(options["traces"], ref)),
        ref_options=HeadOptions(tensor=options["head_tensor"]),
        pair=pair_options(options),
        cuts=options["cuts"],
        fit=tuple(find_traces(fit, ref)) if fit else (),
        device=options["device"],
        resampling=Resampling(resamples=options["resamples"], seed=options["seed"]),
    )
    with progress_on(shared.err, enabled=not shared.quiet) as progress:
        calibration = run_study(request, progress)
    name = ledger.save_calibration(calibration)
    if report:
        write_output(report, render_study(calibration, wanted), "report")
    if shared.as_json:
        shared.print_json(calibration.model_dump(by_alias=True, mode="json"))
    elif shared.quiet < 2:
        show_study(calibration, shared.out)
        click.echo(f"calibration {name} kept · audit compare uses it on the same traces")
