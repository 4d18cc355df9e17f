"""What a user may say about a draft block that its files do not say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from audit.files import Container
from audit.records import Stage

ConcatOrder = Literal["embedding_first", "hidden_first"]


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
