"""What a user may say about a draft block that its files do not say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from audit.errors import BadUsageError
from audit.files import Container
from audit.records import Stage

ConcatOrder = Literal["embedding_first", "hidden_first"]

_READ_BY = {
    "verifier": ("mtp", "eagle3", "medusa", "exit"),
    "borrow_target_head": ("eagle3",),
    "concat": ("mtp",),
    "stage": ("mtp", "medusa"),
    "position_offset": ("mtp", "eagle3"),
    "aux_layers": ("eagle3",),
}
"""Which kinds of heads read which option."""


@dataclass(frozen=True, slots=True, eq=False)
class BlockOptions:
    """Choices for one block; the defaults mean: decide from the file or refuse."""

    verifier: Container | None = None
    """The target model: its embedding, head and configuration serve where the draft has none."""
    borrow_target_head: bool = False
    """Project with the target's head where an EAGLE-3 draft has none of its own."""
    concat: ConcatOrder | None = None
    """Which half of an MTP head's projection reads the token's embedding."""
    stage: Stage | None = None
    """Whether an MTP head reads the verifier's state after or before its final norm."""
    position_offset: int | None = None
    """Position id of a sequence's first row; rotary attention sees only differences."""
    aux_layers: tuple[int, ...] | None = None
    """Layers whose entering states an EAGLE-3 head reads, in the order of its `fc`."""


def check_read(options: BlockOptions, kind: str) -> None:
    """Refuse what a head of this kind would never look at.

    Raises:
        BadUsageError: an option was given that says nothing about such a head.
    """
    for name, kinds in _READ_BY.items():
        given = getattr(options, name)
        if kind not in kinds and given is not None and given is not False:
            flag = f"--{name.replace('_', '-')}"
            raise BadUsageError(
                f"{flag} is about {' and '.join(kinds)} heads, and the head audited here is {kind}",
                hint=f"leave {flag} away, or name the head with --head",
            )
