"""Texts that occur more than once in a trace: one observation, however often it is read."""

from __future__ import annotations

import torch

from audit.records import Finding
from audit.traces.trace import Trace

CODE = "REPEATED_TEXT"


def units(trace: Trace) -> torch.Tensor:
    """int64 [N]: for each row the number of the first sequence with the same tokens.

    This is what may be drawn independently; without repetitions it is `trace.sequence`.
    """
    counts = torch.bincount(trace.sequence)
    first: dict[bytes, int] = {}
    numbers = [
        first.setdefault(tokens.numpy().tobytes(), number)
        for number, tokens in enumerate(trace.token.split(counts.tolist()))
    ]
    return torch.tensor(numbers).repeat_interleave(counts)


def repeated(trace: Trace) -> list[Finding]:
    """A warning where sequences repeat others; nothing where each is there once."""
    repeats = trace.sequences - len(units(trace).unique())
    if not repeats:
        return []
    verb = "repeats another one; it counts" if repeats == 1 else "repeat another one; they count"
    return [
        Finding(
            code=CODE,
            severity="warning",
            subject=trace.info.corpus,
            sentence=f"{repeats:,} of {trace.sequences:,} sequences {verb} once in intervals",
        )
    ]
