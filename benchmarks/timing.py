"""What the benchmarks share: times of several functions in turn, the bare product, peak memory."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import torch

_CHUNK, _TILE = 1250, 4096


def best_of(
    rounds: int,
    *functions: Callable[[], object],
    seconds: float = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Best time of each function in seconds, all of them in turn in every round.

    Args:
        rounds: at least so many.
        seconds: go on with rounds for so long.
        clock: what is measured; `time.process_time` on a machine that is busy with other work.
    """
    best = [float("inf")] * len(functions)
    until = time.perf_counter() + seconds
    done = 0
    while done < rounds or time.perf_counter() < until:
        for i, function in enumerate(functions):
            start = clock()
            function()
            best[i] = min(best[i], clock() - start)
        done += 1
    return best


def bare_products(states: torch.Tensor, weights: list[torch.Tensor]) -> None:
    """One product per head in tiles that suit the cache, the logits overwritten each time."""
    chunk = min(_CHUNK, len(states))
    out = torch.empty(chunk * _TILE)
    for weight in weights:
        for tile in weight.split(_TILE):
            for part in states.split(chunk):
                view = out[: len(part) * len(tile)].view(len(part), len(tile))
                torch.mm(part, tile.T, out=view)


def peak_kib() -> int:
    """This process's own peak; getrusage would hand down the parent's."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status).group(1))  # type: ignore[union-attr]
