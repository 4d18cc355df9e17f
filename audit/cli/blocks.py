"""Options about a draft block, as the commands that have them give them."""

from __future__ import annotations

from typing import Any

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
