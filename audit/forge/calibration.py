"""What enters a block's MLP matrices on calibration text: second moments, by forward hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from audit.blocks import Block
from audit.errors import BadUsageError
from audit.forge.matrices import find_mlps
from audit.traces import Trace


def block_moments(
    block: Block, traces: Iterable[Trace], *, diagonal: bool = False, device: str = "cpu"
) -> dict[str, Tensor]:
    """E[x x^T] of what enters gate, up and down of each gated MLP of the block.

    Sequences run one by one, so that no padded row is counted.

    Args:
        traces: pooled over all their rows that the block runs on.
        diagonal: only E[x^2], [columns]: all that pruning needs.

    Returns:
        Hugging Face name of the matrix, as in `block.names` -> float64 [columns, columns]. Empty
        where the block has no gated MLP. Gate and up share one tensor.

    Raises:
        BadUsageError: no rows to calibrate on.
        MismatchError: as `Block.run`.
    """
    modules = {name: key.removesuffix(".weight") for key, name in block.names.items()}
    sums: dict[str, _Sum] = {}
    handles = []
    mlps = find_mlps(modules)
    for name in (name for mlp in mlps for name in (mlp.gate, mlp.down)):
        sums[name] = _Sum(diagonal)
        module = block.modules.get_submodule(modules[name])
        handles.append(module.register_forward_pre_hook(_hook(sums[name])))
    try:
        for trace in traces if mlps else ():
            block.run(trace, device=device, batch=1)
    finally:
        for handle in handles:
            handle.remove()
    found = {name: total.mean(block.name) for name, total in sums.items()}
    return found | {mlp.up: found[mlp.gate] for mlp in mlps}


class _Sum:
    """A running sum of x x^T, or of x^2."""

    def __init__(self, diagonal: bool) -> None:
        self.diagonal, self.rows = diagonal, 0
        self.total: Tensor | None = None

    def add(self, states: Tensor) -> None:
        wide = states.reshape(-1, states.shape[-1]).double().cpu()
        part = wide.square().sum(0) if self.diagonal else wide.t() @ wide
        self.total = part if self.total is None else self.total + part
        self.rows += len(wide)

    def mean(self, name: str) -> Tensor:
        if self.total is None or not self.rows:
            raise BadUsageError(
                f"{name} ran on no row of the calibration traces", hint="give a longer trace"
            )
        return self.total / self.rows


def _hook(total: _Sum) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    def keep(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        with torch.no_grad():
            total.add(inputs[0])

    return keep
