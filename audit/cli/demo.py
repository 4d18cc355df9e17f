"""`audit demo`: the main job and the study on the sample inside the package."""

from __future__ import annotations

import os
import tempfile
from importlib.resources import files
from pathlib import Path

import click

from audit.cli.frame import Shared, shared_options

_EPILOG = """\b
Example:
  audit demo
"""

_NEXT = """
On your own heads:
  audit capture MODEL --text FILE -o traces/mine.trace.safetensors    record hidden states
  audit compare REF CAND --trace traces/                              what did the cut cost?
  audit study REF --trace traces/                                     which rules hold on REF?
  audit compare REF CAND --help                                       all ways to name a head"""


@click.command(epilog=_EPILOG)
@shared_options
def demo(shared: Shared) -> None:
    """Study and compare cuts of a small real MTP head, in about a minute."""
    sample = Path(str(files("audit") / "sample"))
    model, traces = sample / "model", sample / "traces"
    # The team's database is of the team's ledger, and this one lasts for a minute.
    os.environ.pop("AUDIT_DB_URL", None)
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger"
        _run("study", str(model), "--head", "mtp", "--trace", str(traces), ledger=ledger)
        cands = []
        for cut in ("q4_0", "prune:0.25:activation"):
            cands.append(str(Path(folder) / f"{cut.replace(':', '-')}.safetensors"))
            _run(
                "forge", str(model), "--head", "mtp", "--cut", cut, "--trace",
                str(traces / "python-code.trace.safetensors"), "-o", cands[-1],
            )  # fmt: skip
        _run("compare", str(model), *cands, "--head", "mtp", "--trace", str(traces), ledger=ledger)
    if not shared.quiet:
        click.echo(_NEXT)


def _run(command: str, *args: str, ledger: Path | None = None) -> None:
    """Show a command and run it in this process."""
    from audit.cli.main import group

    shown = [Path(arg).name if Path(arg).is_absolute() else arg for arg in args]
    click.echo(f"\n$ audit {command} {' '.join(shown)}")
    ctx = click.Context(group)
    found = group.get_command(ctx, command)
    assert found is not None
    more = ["--ledger", str(ledger)] if ledger else []
    try:
        found.main([*args, *more], standalone_mode=False)
    except SystemExit as stop:
        if stop.code:
            raise
