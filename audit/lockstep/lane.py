"""One head's running answer while the vocabulary streams by: best, second, oracle's rank.

A full sort of each tile would cost more than the product itself. Instead each block of logits
is reduced to its maximum (one cheap vectorised pass) and only the blocks that can still change an
answer are looked into.
"""

from __future__ import annotations

import torch
from torch import Tensor

from audit.heads.head import find_ids
from audit.logits import BLOCK, first_equal

_DENSE_SHARE = 4
"""Count the oracle's betters in a whole row once more than 1/4 of its blocks hold one."""


class Lane:
    """Running results of one head over N positions; all tensors are [N] on the same device."""

    def __init__(
        self, oracle: Tensor, oracle_estimate: Tensor, floor: Tensor | None = None
    ) -> None:
        """Start with nothing seen.

        Args:
            oracle: int64 [N], the verifier's token; -1 where there is none.
            oracle_estimate: float32 [N], the oracle's logit from a plain dot product; used only to
                count the ids above it. -inf where the head has no row for the oracle.
            floor: float32 [N]; logits below it are of no interest to anyone who merges this lane,
                so it may leave them out of `best` and `second`.
        """
        n, device = len(oracle), oracle.device
        self.oracle, self.oracle_estimate, self._floor = oracle, oracle_estimate, floor
        self.best = torch.full((n,), -torch.inf, device=device)
        self.second = self.best.clone()
        self.best_id = torch.full((n,), -1, dtype=torch.int64, device=device)
        self.ties = torch.zeros(n, dtype=torch.int64, device=device)
        """Number of ids that share the best logit."""
        self.oracle_logit = self.best.clone()
        self.above_oracle = torch.zeros(n, dtype=torch.int64, device=device)
        self.finite = torch.ones(n, dtype=torch.bool, device=device)
        self.pad_best = self.best.clone()

    def update(self, at: slice, logits: Tensor, ids: Tensor) -> Tensor:
        """Take in one tile.

        Args:
            at: the positions concerned, n of them.
            logits: float32 [n, width], width a multiple of BLOCK; columns from len(ids) on are
                -inf.
            ids: int64 [t], the target ids of the first t columns, ascending and beyond all ids
                seen before, so that the first maximum is the lowest id.

        Returns:
            float32 [n], the tile's maximum per position.
        """
        blocks = logits.view(len(logits), -1, BLOCK)
        peaks = blocks.amax(-1)
        top = peaks.amax(-1)
        # amax hands on NaN, and an overflow shows as +inf; -inf is only the filling.
        self.finite[at] &= top < torch.inf
        self._merge_leaders(at, blocks, peaks, top, ids)
        self._count_above_oracle(at, blocks, peaks, ids)
        return top

    def update_padding(self, at: slice, logits: Tensor) -> None:
        """Note the best logit among rows that the tokenizer does not know, float32 [n, t]."""
        self.pad_best[at] = torch.maximum(self.pad_best[at], logits.amax(-1))

    def _merge_leaders(
        self, at: slice, blocks: Tensor, peaks: Tensor, top: Tensor, ids: Tensor
    ) -> None:
        """Merge the tile's two best logits into `best`, `second` and `best_id`."""
        news = (top > self.second[at]) | (top == self.best[at])
        if self._floor is not None:
            news &= top >= self._floor[at]
        active = news.nonzero().squeeze(1)
        if len(active) == 0:
            return
        peaks, top = peaks[active], top[active]
        block = first_equal(peaks, top)
        inside = blocks[active, block]
        column = first_equal(inside, top)
        others = peaks.scatter(1, block[:, None], -torch.inf).amax(-1)
        rest = inside.scatter(1, column[:, None], -torch.inf).amax(-1)
        runner_up = torch.maximum(others, rest)

        rows = active + at.start
        best, second = self.best[rows], self.second[rows]
        # Strictly greater: on equal logits the lower id, seen earlier, stays.
        wins = top > best
        same = _count_equal(blocks, active, peaks, top)
        self.ties[rows] = torch.where(
            wins, same, self.ties[rows] + torch.where(top == best, same, 0)
        )
        found = ids[(block * BLOCK + column).clamp_(max=len(ids) - 1)]
        self.best_id[rows] = torch.where(wins, found, self.best_id[rows])
        self.second[rows] = torch.maximum(
            torch.minimum(best, top), torch.maximum(second, runner_up)
        )
        self.best[rows] = torch.maximum(best, top)

    def _count_above_oracle(self, at: slice, blocks: Tensor, peaks: Tensor, ids: Tensor) -> None:
        """Add the number of this tile's ids whose logit is above the oracle's."""
        bar = self.oracle_estimate[at]
        count = torch.zeros(len(bar), dtype=torch.int64, device=bar.device)
        hot = peaks > bar[:, None]
        everywhere = hot.sum(1) * _DENSE_SHARE > hot.shape[1]
        rows = everywhere.nonzero().squeeze(1)
        if len(rows):
            count[rows] = (blocks[rows] > bar[rows, None, None]).flatten(1).sum(1)
            hot[rows] = False
        rows, block = hot.nonzero(as_tuple=True)
        count.index_add_(0, rows, (blocks[rows, block] > bar[rows, None]).sum(1))
        self._take_oracle(at, blocks, ids, count)
        self.above_oracle[at] += count

    def _take_oracle(self, at: slice, blocks: Tensor, ids: Tensor, count: Tensor) -> None:
        """Keep the oracle's own logit, and never count the oracle as better than itself.

        Its estimate and its logit come from sums in different order, so they differ by rounding.
        """
        oracle = self.oracle[at]
        column, known = find_ids(ids, oracle)
        here = known.nonzero().squeeze(1)
        if len(here) == 0:
            return
        column = column[here]
        logit = blocks[here, column // BLOCK, column % BLOCK]
        self.oracle_logit[here + at.start] = logit
        count[here] -= (logit > self.oracle_estimate[at][here]).long()

    def merged(self, other: Lane) -> Lane:
        """The lane of two disjoint sets of ids, from the lanes of each on the same positions."""
        lane = Lane(self.oracle, self.oracle_estimate)
        ahead = other.best > self.best
        equal = other.best == self.best
        # On equal logits the lower id stays, whichever part it is in.
        theirs = ahead | (equal & (other.best_id < self.best_id))
        lane.best = torch.maximum(self.best, other.best)
        lane.best_id = torch.where(theirs, other.best_id, self.best_id)
        seconds = torch.maximum(self.second, other.second)
        lane.second = torch.maximum(torch.minimum(self.best, other.best), seconds)
        most = torch.where(ahead, other.ties, self.ties)
        lane.ties = torch.where(equal, self.ties + other.ties, most)
        lane.oracle_logit = torch.maximum(self.oracle_logit, other.oracle_logit)
        lane.above_oracle = self.above_oracle + other.above_oracle
        lane.finite = self.finite & other.finite
        lane.pad_best = torch.maximum(self.pad_best, other.pad_best)
        return lane

    @property
    def tied(self) -> Tensor:
        """bool [N]: two or more ids share the best logit."""
        return self.best == self.second

    @property
    def oracle_rank(self) -> Tensor:
        """int64 [N], 1 for the best id; 0 where the head has no row for the oracle."""
        rank = (self.above_oracle + 1).clamp_(min=2)
        rank = torch.where(self.oracle_logit == self.best, torch.ones_like(rank), rank)
        return torch.where(self.oracle_logit == -torch.inf, torch.zeros_like(rank), rank)


def _count_equal(blocks: Tensor, active: Tensor, peaks: Tensor, top: Tensor) -> Tensor:
    """int64 [a]: how many logits of each active row equal its tile's maximum."""
    row, block = (peaks == top[:, None]).nonzero(as_tuple=True)
    count = torch.zeros(len(active), dtype=torch.int64, device=top.device)
    return count.index_add_(0, row, (blocks[active[row], block] == top[row, None]).sum(1))
