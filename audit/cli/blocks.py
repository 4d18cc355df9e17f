"""Options about a draft block, as the commands that have them give them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from audit.errors import BadUsageError


def block_options(options: dict[str, Any]) -> Any:
    """The `BlockOptions` that a command's options describe.

    Raises:
        BadUsageError: `--aux-layers` holds something else than layer numbers.
        AuditError: `--verifier` can not be opened.
    """
    from audit.blocks import BlockOptions
    from audit.files import open_container

    layers = options.get("aux_layers")
    if layers is not None and not all(part.strip().isdigit() for part in layers.split(",")):
        raise BadUsageError(
            f"--aux-layers needs layer numbers, not {layers!r}", hint="--aux-layers 2,12,21"
        )
    verifier = options["verifier"]
    return BlockOptions(
        verifier=open_container(verifier) if verifier else None,
        borrow_target_head=options["borrow_target_head"],
        concat=options["concat"],
        stage=options["stage"],
        position_offset=options["position_offset"],
        aux_layers=tuple(int(part) for part in layers.split(",")) if layers else None,
    )


def block_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that `block_options` reads."""
    flags = (
        click.option(
            "--verifier", type=click.Path(path_type=Path),
            help="Target model of a draft that holds no embedding.",
        ),
        click.option(
            "--borrow-target-head", is_flag=True, help="An EAGLE-3 draft uses the target's head."
        ),
        click.option(
            "--concat", type=click.Choice(["embedding_first", "hidden_first"]),
            help="Order of an MTP head's two inputs, where the layout does not tell.",
        ),
        click.option(
            "--stage", type=click.Choice(["post_norm", "pre_norm"]),
            help="Norm stage of the state that an MTP head reads.",
        ),
        click.option(
            "--position-offset", type=int, help="Position id of a sequence's first row."
        ),
    )  # fmt: skip
    for flag in reversed(flags):
        function = flag(function)
    return function
