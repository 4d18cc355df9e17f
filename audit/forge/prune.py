"""Pruning of MLP channels: rows of gate and up, and the columns of down that they feed.

y = down @ (act(gate @ x) * (up @ x)), with gate and up [channels, hidden], down [hidden,
channels]. A channel left out of all three changes no other channel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from audit.errors import BadUsageError, MismatchError

_LEAST = 0.5
By = Literal["magnitude", "activation"]


@dataclass(frozen=True, slots=True, eq=False)
class PrunedMlp:
    """An MLP without some of its channels."""

    gate: Tensor
    """[kept, hidden]; or [channels, hidden] with zero rows."""
    up: Tensor
    down: Tensor
    """[hidden, kept]; or [hidden, channels] with zero columns."""
    kept: Tensor
    """int64, ascending: the channels of the full MLP that remain."""


def channel_scores(
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    by: By = "magnitude",
    *,
    second_moment: Tensor | None = None,
    activations: Tensor | None = None,
) -> Tensor:
    """How much each channel matters, float64 [channels]; larger is more.

    Args:
        gate, up: [channels, hidden].
        down: [hidden, channels].
        by: `magnitude`: product of the channel's three norms, which does not change when a factor
            moves from one matrix to another. `activation`: rms of what enters down, times the norm
            of down's column: the channel's rms contribution to the output.
        second_moment: for `activation`: E[a a^T] of what enters down, [channels, channels], or
            its diagonal [channels].
        activations: the same as samples [n, channels].

    Raises:
        MismatchError: shapes that do not belong together.
        BadUsageError: `activation` without one of the two.
    """
    channels = _channels(gate, up, down)
    out = _norms(down, 0)
    if by == "magnitude":
        return _norms(gate, 1) * _norms(up, 1) * out
    if activations is not None:
        power = activations.double().square().mean(dim=0)
    elif second_moment is not None:
        power = second_moment.double()
        power = power.diagonal() if power.ndim == 2 else power
    else:
        raise BadUsageError(
            "pruning by activation needs what enters the down projection on calibration text",
            hint="give a trace to calibrate on, or prune by magnitude",
        )
    if len(power) != channels:
        raise MismatchError(
            f"the activations have {len(power)} channels, the MLP has {channels}",
            hint="calibrate with what enters this MLP's down projection",
        )
    return power.clamp(min=0).sqrt() * out


def prune_mlp(
    gate: Tensor, up: Tensor, down: Tensor, keep: float, scores: Tensor, *, multiple: int = 1
) -> PrunedMlp:
    """The MLP with its best channels only, in narrower matrices.

    Args:
        keep: fraction of the channels, over 0 and at most 1.
        scores: [channels], of `channel_scores`.
        multiple: the number kept is rounded to a multiple of this, for block formats whose rows
            (of down) hold so many weights.
    """
    kept = best_channels(scores, keep, _channels(gate, up, down), multiple)
    return PrunedMlp(gate[kept], up[kept], down[:, kept].contiguous(), kept)


def zero_mlp(
    gate: Tensor, up: Tensor, down: Tensor, keep: float, scores: Tensor, *, multiple: int = 1
) -> PrunedMlp:
    """The same function as `prune_mlp` in matrices of the old shapes: other channels are zero."""
    kept = best_channels(scores, keep, _channels(gate, up, down), multiple)
    mask = torch.zeros(len(scores), dtype=torch.bool)
    mask[kept] = True
    rows = mask.unsqueeze(1)
    # where, not a product: 0 * -1 would leave minus zeros.
    zero = torch.zeros((), dtype=gate.dtype)
    return PrunedMlp(
        torch.where(rows, gate, zero),
        torch.where(rows, up, zero),
        torch.where(mask, down, zero),
        kept,
    )


def best_channels(scores: Tensor, keep: float, channels: int, multiple: int = 1) -> Tensor:
    """The channels with the largest scores, int64 ascending; of equals, the first."""
    if not 0.0 < keep <= 1.0:
        raise BadUsageError(f"{keep:g} of the channels can not be kept", hint="over 0, at most 1")
    if len(scores) != channels:
        raise MismatchError(f"{len(scores)} scores for an MLP of {channels} channels")
    exact = keep * channels / multiple
    if exact < _LEAST:
        raise BadUsageError(
            f"{keep:g} of {channels} channels is nearer to none than to {multiple}",
            hint=f"keep at least {multiple / channels:.2g}",
        )
    count = max(1, round(exact)) * multiple
    order = torch.sort(scores, descending=True, stable=True).indices
    return torch.sort(order[: min(count, channels)]).values


def _norms(weight: Tensor, dim: int) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(weight, dim=dim, dtype=torch.float64)
    return norms


def _channels(gate: Tensor, up: Tensor, down: Tensor) -> int:
    if gate.shape != up.shape or tuple(down.shape) != tuple(reversed(gate.shape)):
        raise MismatchError(
            f"gate {list(gate.shape)}, up {list(up.shape)} and down {list(down.shape)} are no MLP",
            hint="gate and up are [channels, hidden], down is [hidden, channels]",
        )
    return len(gate)
