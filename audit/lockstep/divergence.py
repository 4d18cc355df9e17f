"""KL(ref || cand) per position, accumulated over vocabulary tiles.

With p the reference's probabilities, x and y the two heads' logits and Zx, Zy their
log-normalisers, KL = sum p (x - y) - Zx + Zy. The sums run in float32 inside a tile and in float64
across tiles; identical heads give exactly 0, since every term cancels.
"""

from __future__ import annotations

import torch
from torch import Tensor

_SMALLEST_EXPONENT = -80.0
"""exp(-80) = 2e-35: a million such terms are still beneath the rounding of a sum of at least 1."""


class LogSum:
    """A running log-sum-exp of N rows."""

    def __init__(self, n: int, device: torch.device) -> None:
        self.peak = torch.full((n,), -torch.inf, dtype=torch.float64, device=device)
        self.total = torch.zeros(n, dtype=torch.float64, device=device)

    def add(self, at: slice, tile_peak: Tensor, tile_sum: Tensor) -> tuple[Tensor, Tensor]:
        """Add exp-sums float32 [n] taken relative to `tile_peak`; returns the two rescalings.

        The first is for what was accumulated before, the second for what this tile brings.
        """
        tile_peak = tile_peak.double()
        peak = torch.maximum(self.peak[at], tile_peak)
        before, now = torch.exp(self.peak[at] - peak), torch.exp(tile_peak - peak)
        self.total[at] = self.total[at] * before + tile_sum.double() * now
        self.peak[at] = peak
        return before, now

    @property
    def value(self) -> Tensor:
        """float64 [N], the log-normaliser in nats."""
        return self.peak + self.total.log()


class RefProbabilities:
    """The reference's side, computed once per tile and shared by every candidate.

    The [n, t] intermediates live in buffers made once: fresh ones of this size come from the
    operating system page by page, which costs more than the exponentials.
    """

    def __init__(self, n: int, scratch: Tensor) -> None:
        """Start for n positions; `scratch` is flat float32, large enough for any tile."""
        self.log_sum = LogSum(n, scratch.device)
        self._buffer, self._shared = torch.empty_like(scratch), scratch

    def update(self, at: slice, logits: Tensor, peak: Tensor) -> None:
        """Take in one tile of final logits, float32 [n, t], and their maxima [n]."""
        self.logits = logits
        self.weights = _shifted_exp(logits, peak, self._buffer)
        self.rescale = self.log_sum.add(at, peak, self.weights.sum(-1))

    def scratch_for(self, logits: Tensor) -> Tensor:
        """The shared scratch buffer in the shape of `logits`."""
        return self._shared[: logits.numel()].view(logits.shape)


class Divergence:
    """One candidate's side."""

    def __init__(self, n: int, device: torch.device) -> None:
        self.log_sum = LogSum(n, device)
        self.cross = torch.zeros(n, dtype=torch.float64, device=device)

    def update(self, at: slice, logits: Tensor, peak: Tensor, ref: RefProbabilities) -> None:
        """Take in one tile of final logits, float32 [n, t], after `ref` took in its own."""
        scratch = ref.scratch_for(logits)
        weights = _shifted_exp(logits, peak, scratch)
        self.log_sum.add(at, peak, weights.sum(-1))
        cross = torch.sub(ref.logits, logits, out=scratch).mul_(ref.weights).sum(-1).double()
        before, now = ref.rescale
        self.cross[at] = self.cross[at] * before + cross * now

    def kl_nats(self, ref: RefProbabilities) -> Tensor:
        """float64 [N]. Rounding can leave a value a hair below 0, which no KL is."""
        mean_gap = self.cross / ref.log_sum.total
        return (mean_gap - ref.log_sum.value + self.log_sum.value).clamp_(min=0.0)


def _shifted_exp(logits: Tensor, peak: Tensor, buffer: Tensor) -> Tensor:
    """exp(logits - peak), [n, t], written into the flat `buffer`."""
    out = buffer.view(-1)[: logits.numel()].view(logits.shape)
    # Below float32's normal range exp takes 30 times as long, for terms that no sum can notice.
    return torch.sub(logits, peak[:, None], out=out).clamp_(min=_SMALLEST_EXPONENT).exp_()
