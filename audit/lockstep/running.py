"""A head at work: its states, its weights tile by tile, and the logits of one tile and chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.errors import UnreadableError
from audit.heads.head import Head, find_ids
from audit.lockstep.lane import Lane
from audit.lockstep.plan import NARROWEST, Plan
from audit.logits import padded_view
from audit.words import count

_ESTIMATE_ROWS = 1024


@dataclass(frozen=True, slots=True)
class Tile:
    """Decoded weights of one range of target ids."""

    weight: Tensor
    """float32 [t, k], or [NARROWEST, k] with rows of zeros behind the t ones."""
    bias: Tensor | None
    ids: Tensor
    """int64 [t], the target ids that have a row in this range."""


class Running:
    """One head on the states of one trace."""

    def __init__(
        self,
        head: Head,
        states: Tensor,
        oracle: Tensor,
        device: torch.device,
        estimate: Tensor | None = None,
    ) -> None:
        """Set up, and estimate the oracle's logits.

        Args:
            head: the head to run.
            states: float32 [N, k] on `device`, already through `head.project_in`.
            oracle: int64 [N] on `device`, -1 where there is none.
            device: where the products run.
            estimate: the oracle's logits float32 [N], where they are known already.
        """
        self.head, self.states, self.device = head, states, device
        self.ids = head.ids.to(device)
        known = self._estimate_oracle(oracle) if estimate is None else estimate
        self.lane = Lane(oracle, known)
        """The answer over all parts of the vocabulary that are finished."""
        self.part = self.lane
        """The answer over the part that is at work."""

    def start_part(self, merging: Sequence[Running]) -> None:
        """Begin a part of the vocabulary, whose lane the heads in `merging` are waiting for."""
        floor = torch.stack([running.lane.second for running in merging]).amin(0)
        self.part = Lane(self.lane.oracle, self.lane.oracle_estimate, floor)

    def finish_part(self, lane: Lane) -> None:
        """Merge the answer over one part, this head's own or another's that is equal on it."""
        self.lane = self.lane.merged(lane)

    def has(self, ids: Tensor) -> Tensor:
        """bool [n]: which target ids, int64 [n], this head has a row for."""
        return find_ids(self.ids, ids)[1]

    def tile(self, ids: Tensor) -> Tile:
        """Decode the rows of target ids, int64 [t] ascending on the CPU, that this head has."""
        slot, known = find_ids(self.head.ids, ids)
        slot = slot[known]
        rows, bias = self.head.rows, self.head.bias
        if len(slot) and int(slot[-1] - slot[0]) + 1 == len(slot):
            weight = rows.tile(int(slot[0]), int(slot[-1]) + 1)
        else:
            weight = rows.gather(slot)
        if 0 < len(weight) < NARROWEST:
            weight = torch.nn.functional.pad(weight, (0, 0, 0, NARROWEST - len(weight)))
        return Tile(
            weight.to(self.device),
            None if bias is None else bias[slot].to(self.device),
            self.head.ids[slot].to(self.device),
        )

    def logits(self, tile: Tile, at: slice, buffer: Tensor) -> Tensor:
        """Raw logits of one chunk and tile, written into `buffer`.

        Returns:
            float32 [n, width], width the next multiple of BLOCK; the columns beyond the tile's ids
            are -inf.
        """
        out, inner = padded_view(buffer, at.stop - at.start, len(tile.weight))
        torch.mm(self.states[at], tile.weight.t(), out=inner)
        if tile.bias is not None:
            inner[:, : len(tile.ids)] += tile.bias
        out[:, len(tile.ids) :] = -torch.inf
        return out

    def _estimate_oracle(self, oracle: Tensor) -> Tensor:
        """float32 [N]: the oracle's logit by a plain dot product, -inf where it has no row."""
        estimate = torch.full((len(oracle),), -torch.inf, device=self.device)
        slot, known = find_ids(self.ids, oracle)
        for rows in known.nonzero().squeeze(1).split(_ESTIMATE_ROWS):
            wanted, inverse = slot[rows].cpu().unique(return_inverse=True)
            weight = self.head.rows.gather(wanted).to(self.device)[inverse.to(self.device)]
            estimate[rows] = (self.states[rows] * weight).sum(-1)
            if self.head.bias is not None:
                estimate[rows] += self.head.bias.to(self.device)[slot[rows]]
        return estimate


def buffer_for(plan: Plan, device: torch.device) -> Tensor:
    """A flat float32 buffer that any chunk and tile of the plan fits into."""
    return torch.empty(plan.chunk * plan.tile, device=device)


def check_weights(running: Running, tiles: Sequence[Tensor]) -> None:
    """Refuse weights that are NaN or infinite, by row; `tiles` are the target ids to look at.

    Called once logits were found not to be finite: looking at every weight beforehand would cost
    as much as reading all of them again, and the preflight has done it in a whole audit.
    """
    for ids in tiles:
        tile = running.tile(ids)
        bad = (~torch.isfinite(tile.weight).flatten(1).all(1)).nonzero().squeeze(1)
        if len(bad):
            raise UnreadableError(
                f"{count(len(bad), 'row')} of {running.head.record.name} with NaN or infinity, "
                f"the first for id {int(tile.ids[bad[0]])}",
                hint="the file or its scales are damaged: export the head again",
                where=running.head.record.path,
                code="NON_FINITE",
            )
