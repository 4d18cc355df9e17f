"""Which positions of a trace chains begin at: drawn with a seed, the same for every head."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch

from audit.chains.drafting import Anchors
from audit.errors import MismatchError
from audit.traces import Trace, lookahead_rows


def draw_anchors(
    trace: Trace, lookahead: int, slots: int, most: int, seed: int, *,
    ends: Sequence[int], context: int | None,
) -> tuple[Anchors, int]:  # fmt: skip
    """Anchors in the order of the trace, and how many positions had no room for a chain.

    Args:
        most: so many are drawn without replacement; 0 for every position.
        ends: ids that end a text: nothing is ever drafted behind one.
        context: longest text that the verifier was made for; chains must end within it.

    Raises:
        MismatchError: no position is left.
    """
    rows, targets = lookahead_rows(trace, lookahead)
    going = ~torch.isin(trace.token[targets], torch.tensor(list(ends), dtype=torch.int64))
    room = torch.ones_like(going)
    if context is not None:
        room = trace.position[targets] + 1 + slots <= context
    kept = (going & room).nonzero().flatten()
    if not len(kept):
        raise MismatchError(
            f"no position of the trace of {trace.info.corpus} has room for {slots} slots"
            + (f" within the {context} tokens that the verifier was made for" if context else ""),
            hint="fewer --slots, or a trace of shorter sequences",
            where=trace.path or "",
        )
    if most and len(kept) > most:
        digest = hashlib.sha256(trace.info.corpus.encode()).digest()[:8]
        rng = np.random.default_rng([seed, int.from_bytes(digest, "little")])
        drawn = np.sort(rng.choice(len(kept), size=most, replace=False))
        kept = kept[torch.from_numpy(drawn)]
    return Anchors(rows[kept], targets[kept]), int((~room).sum())
