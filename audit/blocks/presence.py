"""Is this head in this file? What lacks is refused by name.

A candidate may hold a block or a projection alone: the other half is then the reference's. One
that holds neither would be judged identical to the reference, and one that holds a scrap of a
block would be audited as if that scrap were not there.
"""

from __future__ import annotations

from audit.blocks.block import Block
from audit.blocks.eagle3 import absent_eagle3, scraps_of_eagle3
from audit.blocks.eagle3_draft import draft_config
from audit.blocks.finding import heads_in, holds_block, holds_layers
from audit.blocks.head_names import HeadName
from audit.blocks.medusa import absent_medusa
from audit.blocks.mtp import absent_mtp
from audit.blocks.mtp_layouts import declared_mtp, scraps_of_mtp
from audit.errors import NotFoundError
from audit.files import Container
from audit.words import some


def check_present(
    container: Container, name: HeadName, ours: Block | None, has_projection: bool
) -> None:
    """Refuse a file without this head, unless it is a bare projection for the reference's block.

    Args:
        ours: the reference's block, when this is a candidate.
        has_projection: the file holds rows of its own, found or named by the user.

    Raises:
        NotFoundError: HEAD_ABSENT, MTP_DECLARED_ABSENT, or BLOCK_INCOMPLETE with what lacks.
    """
    if holds_block(container, name):
        if name.kind == "eagle3":
            draft_config(container, ours)
        return
    _check_scraps(container, name)
    _check_others(container, name)
    declared = name.kind == "mtp" and declared_mtp(container)
    if ours is None or not has_projection or holds_layers(container) or declared:
        raise _absent(container, name)


def _check_scraps(container: Container, name: HeadName) -> None:
    """Refuse parts of a block."""
    scraps = {"mtp": scraps_of_mtp, "eagle3": scraps_of_eagle3}.get(name.kind)
    here, lacking = scraps(container) if scraps else ([], [])
    if here and lacking:
        raise NotFoundError(
            f"a part of head {name} is here ({some(here)}), and it lacks {some(lacking)}",
            hint="export the whole block",
            where=container.path,
            code="BLOCK_INCOMPLETE",
        )
    if here:
        raise NotFoundError(
            f"no head {name} that is known here: {some(here)} are names of no known layout",
            hint="export it under the names that its model was published with",
            where=container.path,
            code="HEAD_ABSENT",
        )


def _check_others(container: Container, name: HeadName) -> None:
    """Refuse another draft head's file: its projection belongs to its own block."""
    others = [n for n in heads_in(container) if n != "lm" and not n.startswith("exit:")]
    if others and name.kind != "medusa":
        raise NotFoundError(
            f"no head {name} here: this file holds {', '.join(others)}",
            hint=f"say --head {others[0]}, for reference and candidates alike",
            where=container.path,
            code="HEAD_ABSENT",
        )


def _absent(container: Container, name: HeadName) -> NotFoundError:
    if name.kind == "mtp":
        return absent_mtp(container)
    if name.kind == "eagle3":
        return absent_eagle3(container)
    if name.kind == "medusa":
        return absent_medusa(container, name)
    return NotFoundError(
        f"no head {name} here: the file holds no layers",
        hint="an early exit is made of the model's own layers: give the whole model, or for a "
        "candidate its layers or a projection",
        where=container.path,
        code="HEAD_ABSENT",
    )
