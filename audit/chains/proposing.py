"""A head's best token for some states and how sure it is, in tiles of the vocabulary.

Without a reference beside it and without an oracle; for those see `audit.lockstep`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from audit.errors import UnreadableError
from audit.heads import Head

_TILE = 4096


def propose(
    head: Head, states: Tensor, valid: int, device: str | torch.device = "cpu"
) -> tuple[Tensor, Tensor]:
    """Greedy proposals and their probabilities.

    Args:
        states: float32 [n, hidden], as they enter the projection.
        valid: ids from here on are padding and never proposed.
        device: where the products run.

    Returns:
        int64 [n] target ids, the lowest of equal ones, and float32 [n]: the softmax over all rows
        of the head, after its post-head rule. Both on the CPU.

    Raises:
        UnreadableError: NON_FINITE, a logit is NaN or infinite.
    """
    inner = head.project_in(states.to(device))
    count = int(torch.searchsorted(head.ids, valid))
    best = torch.full((len(states),), -torch.inf, device=device)
    chosen = torch.zeros(len(states), dtype=torch.int64, device=device)
    total = best.clone()
    finite = torch.ones(len(states), dtype=torch.bool, device=device)
    for start in range(0, count, _TILE):
        stop = min(start + _TILE, count)
        logits = inner @ head.rows.tile(start, stop).to(device).T
        if head.bias is not None:
            logits += head.bias[start:stop].to(device)
        finite &= logits.isfinite().all(1)
        top, column = logits.max(1)
        # Of equal logits the lowest id: rows ascend, and an earlier tile keeps a tie.
        column = (logits == top.unsqueeze(1)).int().argmax(1)
        better = top > best
        chosen[better] = start + column[better]
        best = torch.where(better, top, best)
        total = torch.logaddexp(total, head.post(logits).logsumexp(1))
    if not bool(finite.all()):
        raise UnreadableError(
            f"the logits of {head.record.name} are NaN or infinite in {int((~finite).sum())} "
            "draft steps",
            hint="the states or the weights are damaged; no step is left out silently",
            where=head.record.path,
            code="NON_FINITE",
        )
    return head.ids[chosen.cpu()], (head.post(best) - total).exp().cpu()
