"""What `--head` may say: lm, mtp, eagle3, medusa:0, exit:16, exit:16:15-17."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast

from audit.errors import BadUsageError

Kind = Literal["lm", "mtp", "eagle3", "medusa", "exit"]

_PLAIN = ("lm", "mtp", "eagle3")
_MEDUSA = re.compile(r"medusa:(\d{1,4})")
_EXIT = re.compile(r"exit:(\d{1,4})(?::(\d{1,4})(?:-(\d{1,4}))?)?")


@dataclass(frozen=True, slots=True)
class HeadName:
    """One head of a file."""

    kind: Kind
    detail: str = ""
    """`0` of medusa:0, `16:15-17` of exit:16:15-17; empty for the others."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.detail}" if self.detail else self.kind

    @property
    def states(self) -> tuple[int, ...]:
        """Layers whose entering states the name itself asks of a trace: 16 for exit:16."""
        return (int(self.detail.split(":")[0]),) if self.kind == "exit" else ()


@dataclass(frozen=True, slots=True)
class ExitPoint:
    """Which state an early exit starts from, and which layers it runs on it."""

    state: int
    """The state entering this layer."""
    layers: range


def parse_head_name(text: str) -> HeadName:
    """The head that `text` names; raises BadUsageError for anything else."""
    if text in _PLAIN:
        return HeadName(cast(Kind, text))
    if found := _MEDUSA.fullmatch(text):
        return HeadName("medusa", str(int(found.group(1))))
    if _EXIT.fullmatch(text):
        return HeadName("exit", text.removeprefix("exit:"))
    raise BadUsageError(
        f"there is no head {text!r}",
        hint="say lm, mtp, eagle3, medusa:0, exit:16 (state entering layer 16, then the last "
        "layer) or exit:16:15-17 (then layers 15 to 17)",
        where="--head",
    )


def exit_point(name: HeadName, layers: int) -> ExitPoint:
    """The exit that `name` means in a model of that many layers.

    `exit:16` of an 18-layer model: the state entering layer 16, then layer 17 alone.

    Raises:
        BadUsageError: it names layers that the model does not have.
    """
    found = _EXIT.fullmatch(str(name))
    assert found is not None
    state = int(found.group(1))
    first = int(found.group(2)) if found.group(2) else layers - 1
    last = int(found.group(3)) if found.group(3) else first
    if state < layers and first <= last < layers:
        return ExitPoint(state, range(first, last + 1))
    usual = max(layers - 2, 0)
    raise BadUsageError(
        f"{name} does not fit a model of {layers} layers",
        hint=f"layers count from 0 to {layers - 1}, and a range goes upwards: "
        f"exit:{usual}, or exit:{usual}:{usual}-{layers - 1}",
        where="--head",
    )
