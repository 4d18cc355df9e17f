"""CPU time that row-trimmed candidates add to `compare_heads` on the reference alone, in one run.

    python benchmarks/trim.py                       # 2,500 x 262,144 x 640, rows stored as BF16
    python benchmarks/trim.py --vocabulary 65536 --dtype float32

One trim of an eighth of the rows, then four nested ones as `audit trim --sweep` has them. Sides
are timed alternately; printed are the best CPU time of each and its ratio to the reference alone. A
trim's rows are drawn at random, the worst case for whoever gathers them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
import torch
from safetensors.torch import save_file

from audit.heads import load_head
from audit.heads.head import trim_rows
from audit.lockstep import compare_heads

_SHARES = (32, 16, 8, 4)


@click.command()
@click.option("--positions", default=2500, show_default=True)
@click.option("--vocabulary", default=262_144, show_default=True)
@click.option("--hidden", default=640, show_default=True)
@click.option("--dtype", default="bfloat16", show_default=True, help="stored type of the head")
@click.option("--rounds", default=3, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--threads", default=2, show_default=True)
def main(
    positions: int,
    vocabulary: int,
    hidden: int,
    dtype: str,
    rounds: int,
    seed: int,
    threads: int,
) -> None:
    """Print the times of no trim, one and four, and their ratios."""
    torch.set_num_threads(threads)
    rng = torch.Generator().manual_seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ref.safetensors"
        weight = torch.randn(vocabulary, hidden, generator=rng)
        save_file({"lm_head.weight": weight.to(getattr(torch, dtype))}, path)
        ref = load_head(path)
        states = torch.randn(positions, hidden, generator=rng)
        oracle = torch.cat([(part @ weight.T).argmax(-1) for part in states.split(256)])
        order = torch.randperm(vocabulary, generator=rng)
        trims = [trim_rows(ref, order[: vocabulary // share], ref.record) for share in _SHARES]
        chosen = ([], [trims[2]], trims)
        names = ("reference alone", "with one trim", "with four trims")
        runs = [partial(compare_heads, ref, cands, states, oracle) for cands in chosen]
        best = _best_of(rounds, runs)
        for name, seconds in zip(names, best, strict=True):
            click.echo(f"{name:<16} {seconds:7.2f} s   ratio {seconds / best[0]:.3f}")


def _best_of(rounds: int, functions: list[Callable[[], object]]) -> list[float]:
    """Best CPU time of each function in seconds, all in turn in every round.

    Time of all threads of this process: on a busy machine the wall shows what others do.
    """
    best = [float("inf")] * len(functions)
    for _ in range(rounds):
        for i, function in enumerate(functions):
            start = time.process_time()
            function()
            best[i] = min(best[i], time.process_time() - start)
    return best


if __name__ == "__main__":
    main()
