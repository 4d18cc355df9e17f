"""`audit inspect`: what head is in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from audit.cli.blocks import block_flags, pair_options
from audit.cli.frame import Shared, shared_options

_EPILOG = """\b
Examples:
  audit inspect head.safetensors
  audit inspect model-00001-of-00002.gguf --json
  audit inspect draft/ --head eagle3 --verifier model/
"""


@click.command(epilog=_EPILOG)
@click.argument("file", type=click.Path(path_type=Path))
@block_flags
@click.option("--head-tensor", metavar="NAME", help="The head's tensor, if its name does not tell.")
@click.option("--map", "map_file", type=click.Path(path_type=Path), help="Ids of a trimmed head.")
@click.option(
    "--d2t-convention",
    type=click.Choice(["auto", "offset", "absolute"]),
    default="auto",
    help="How a d2t map that fits both ways is meant.",
)
@click.option("--vocabulary", type=click.IntRange(min=1), help="Ids of a trimmed head's target.")
@shared_options
def inspect(shared: Shared, file: Path, **options: Any) -> None:
    """Say what head is in FILE, where it was looked for, and what the preflight finds."""
    from audit.heads import HeadOptions
    from audit.inspection import inspect_head
    from audit.report.terminal import show_inspection

    rows = HeadOptions(
        tensor=options["head_tensor"],
        map=options["map_file"],
        d2t_convention=options["d2t_convention"],
        vocabulary=options["vocabulary"],
    )
    found = inspect_head(file, rows, pair_options(options))
    if shared.as_json:
        shared.print_json(found.model_dump(mode="json"))
    elif shared.quiet < 2:
        show_inspection(found, shared.out, quiet=bool(shared.quiet))
