"""Tensors that bear a draft head's name and took no part in it.

A bias that the configuration does not know, a second MTP layer, a tensor of a newer kind: an
engine may use them, and what is measured here is then not what it runs.
"""

from __future__ import annotations

import re

from audit.blocks.block import Block
from audit.blocks.head_names import HeadName
from audit.blocks.sources import canonical
from audit.files import Container
from audit.heads import names

_NEUTRAL = re.compile(r"(?:rotary_emb\.inv_freq|rope_freqs\.weight)$")
"""Buffers that follow from the configuration."""
_NUMBERED = re.compile(r"(layers|blk)\.(\d+)\.")
_MEDUSA = re.compile(r"(?:medusa_heads?\.)?(?:blocks\.)?\d+\.")


def unread_tensors(container: Container, name: HeadName, block: Block) -> tuple[str, ...]:
    """Names in the file's order.

    Args:
        container: the head's file, everything in it that is used having been read.
        block: the head's block; another container's when it was borrowed.
    """
    shared = {*names.LM_HEAD[container.format], *names.EMBEDDING[container.format], *names.MAPS}
    shared |= {f"{stem}.{leaf}" for stem in names.FINAL_NORM[container.format]
               for leaf in ("weight", "bias")}  # fmt: skip
    found = [
        stored
        for stored in container.never_read()
        if names.plain(stored) not in shared and not _NEUTRAL.search(stored)
    ]
    if block.container is not container or name.kind == "eagle3":
        return tuple(found)  # a bare projection's or a draft's file holds nothing else
    own = [canonical(stored) for stored in block.tensors.values()]
    return tuple(stored for stored in found if _belongs(canonical(stored), name, own))


def _belongs(stored: str, name: HeadName, own: list[str]) -> bool:
    """Whether a name is under those of the head's tensors."""
    if name.kind == "medusa":
        return stored.startswith(tuple({m[0] for one in own if (m := _MEDUSA.match(one))}))
    if stored.startswith(("mtp.", "mtp_layers.")):
        return name.kind == "mtp"
    layers = {int(m[2]) for one in own if (m := _NUMBERED.match(one))}
    found = _NUMBERED.match(stored)
    if found is None or not layers:
        return False
    number = int(found[2])
    # MTP layers come after the model's; those beyond the first are further MTP layers.
    return number in layers or (name.kind == "mtp" and number > max(layers))
