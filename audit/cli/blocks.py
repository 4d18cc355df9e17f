"""Options about which head is meant and about its draft block, the same in every command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from audit.errors import BadUsageError

_FILE = click.Path(path_type=Path)
_Function = TypeVar("_Function", bound=Callable[..., Any])

_FLAGS = (
    click.option(
        "--head", metavar="NAME",
        help="lm, mtp, eagle3, medusa:0, exit:16 or exit:16:15-17; else what the candidates were "
        "forged as, or what the files hold.",
    ),
    click.option(
        "--verifier", type=_FILE, help="Target model of a draft that lacks an embedding or a head."
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
        "--position-offset", type=click.IntRange(min=0),
        help="Position id of a sequence's first row.",
    ),
    click.option("--aux-layers", help="Layers that an EAGLE-3 head reads, such as 2,12,21."),
)  # fmt: skip


def block_flags(function: _Function) -> _Function:
    """Give a command `--head` and all options about a draft block; see `pair_options`."""
    for flag in reversed(_FLAGS):
        function = flag(function)
    return function


def pair_options(options: dict[str, Any]) -> Any:
    """The `PairOptions` that these options of a command describe.

    Raises:
        BadUsageError: `--aux-layers` holds something else than distinct layer numbers.
        AuditError: `--verifier` can not be opened.
    """
    from audit.blocks import BlockOptions
    from audit.files import open_container
    from audit.pair import PairOptions

    layers = _layers(options["aux_layers"])
    verifier = options["verifier"]
    block = BlockOptions(
        verifier=open_container(verifier) if verifier else None,
        borrow_target_head=options["borrow_target_head"],
        concat=options["concat"],
        stage=options["stage"],
        position_offset=options["position_offset"],
        aux_layers=layers,
    )
    return PairOptions(head=options["head"], block=block)


def _layers(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 5 for part in parts):
        raise BadUsageError(
            f"--aux-layers needs layer numbers, not {text!r}", hint="--aux-layers 2,12,21"
        )
    if len(set(map(int, parts))) < len(parts):
        raise BadUsageError(
            f"--aux-layers names a layer twice: {text}", hint="each state is read once"
        )
    return tuple(map(int, parts))
