"""What a block reads from a trace: which states, at which stage, and whether the next token.

Everything that can be missing from a trace is refused here, with the command that records it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from audit.errors import MismatchError
from audit.heads.head import FinalNorm
from audit.heads.rows import Rows
from audit.records import Stage
from audit.traces import Trace
from audit.words import count


@dataclass(frozen=True, slots=True, eq=False)
class HiddenState:
    """The state that enters the LM head (or its final norm), as MTP and Medusa heads read it."""

    width: int
    stage: Stage
    norm: FinalNorm | None
    """The verifier's final norm, for traces of states before it."""

    def of(self, trace: Trace) -> Tensor:
        """[N, width]; raises MismatchError when the trace can not give this state."""
        _check_width(trace, "hidden", trace.hidden, self.width)
        if trace.info.stage == self.stage:
            return trace.hidden
        if self.stage == "pre_norm":
            raise MismatchError(
                "this block reads states before the verifier's final norm, and the norm of the "
                f"trace of {trace.info.corpus} can not be undone",
                hint="record a trace of stage pre_norm in the engine that the block was made for, "
                "or say that the block reads states after the norm (stage post_norm)",
                where=trace.path or "",
            )
        if self.norm is None:
            raise MismatchError(
                f"the states of {trace.info.corpus} were taken before the final norm, the block "
                "reads them after it, and no norm was found to apply",
                hint="give the verifier as the whole model, which holds the norm, or record a "
                "trace with `audit capture`",
                where=trace.path or "",
            )
        return self.norm(trace.hidden.float())


@dataclass(frozen=True, slots=True, eq=False)
class LayerStates:
    """States entering some layers, side by side: an early exit's one, an EAGLE-3 head's three."""

    layers: tuple[int, ...] | None
    """None: the head does not say, and the trace's own states are taken in ascending order."""
    count: int
    width: int
    """Of each."""

    def of(self, trace: Trace) -> Tensor:
        """[N, count * width]; raises MismatchError when the trace lacks one of them."""
        stored = {state.layer: state.tensor for state in trace.info.states}
        layers = tuple(sorted(stored)) if self.layers is None else self.layers
        missing = [layer for layer in layers if layer not in stored]
        if missing or len(layers) != self.count:
            raise self._lacking(trace, missing, sorted(stored))
        parts = [trace.states[stored[layer]] for layer in layers]
        width = parts[0].shape[1]
        if width != self.width and self.count * self.width % width == 0:
            needed = self.count * self.width // width
            raise other_count(needed, width, self.count, trace.path or "")
        for layer, part in zip(layers, parts, strict=True):
            _check_width(trace, stored[layer], part, self.width)
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _lacking(self, trace: Trace, missing: list[int], held: list[int]) -> MismatchError:
        has = ", ".join(f"layer_{layer}" for layer in held) or "none"
        if self.layers is None:
            return MismatchError(
                f"the block reads the states entering {self.count} layers, does not say which, and "
                f"the trace of {trace.info.corpus} holds {len(held)} ({has})",
                hint="record exactly those it was trained on: `audit capture MODEL` with "
                f"{self.count} times `--layer N`",
                where=trace.path or "",
            )
        flags = " ".join(f"--layer {layer}" for layer in self.layers)
        lacks = ", ".join(f"layer_{layer}" for layer in missing)
        return MismatchError(
            f"the trace of {trace.info.corpus} lacks the state {lacks} that this block reads; "
            f"further states it holds: {has}",
            hint=f"record it: `audit capture MODEL ... {flags}`",
            where=trace.path or "",
        )


def other_count(needed: int, width: int, named: int, where: Path | str) -> MismatchError:
    """The error of a head that reads `needed` states of a width, and `named` layers for them."""
    return MismatchError(
        f"fc.weight reads {count(needed, 'state')} of width {width}, and {count(named, 'layer')} "
        "are named for them",
        hint=f"name {needed} in the order it was trained with: --aux-layers, or the draft's "
        "configuration",
        where=where,
        code="BLOCK_SHAPE",
    )


Reads = HiddenState | LayerStates


@dataclass(frozen=True, slots=True, eq=False)
class Embedding:
    """The input embedding of the draft: rows that are decoded only for the tokens asked for."""

    rows: Rows
    scale: float
    """Some models (Gemma) multiply embeddings by it."""
    sha256: str
    """Of its stored bytes and scale."""

    def __call__(self, tokens: Tensor) -> Tensor:
        """int64 [...] -> float32 [..., width]."""
        flat = self.rows.gather(tokens.flatten())
        values = flat if self.scale == 1.0 else flat * self.scale
        return values.view(*tokens.shape, self.rows.columns)

    def check(self, trace: Trace) -> None:
        """Raise MismatchError where the trace holds a token that has no row."""
        highest = int(trace.token.max())
        if highest >= self.rows.count:
            raise MismatchError(
                f"the trace of {trace.info.corpus} holds token {highest}, the draft's embedding "
                f"has {self.rows.count} rows",
                hint="this trace is of another model: record one with `audit capture MODEL`",
                where=trace.path or "",
            )


def _check_width(trace: Trace, name: str, state: Tensor, width: int) -> None:
    if state.shape[1] != width:
        raise MismatchError(
            f"`{name}` in the trace of {trace.info.corpus} is {state.shape[1]} wide, "
            f"the block reads {width}",
            hint="this trace is of another model: record one with `audit capture MODEL`",
            where=trace.path or "",
        )
