"""CPU time that row-trimmed candidates add to `compare_heads` on the reference alone, in one run.

    python benchmarks/trim.py                       # 2,500 x 262,144 x 640, rows stored as BF16
    python benchmarks/trim.py --vocabulary 65536 --dtype float32

One trim of an eighth of the rows by a card, the same trim as a file of its own, then four nested
ones as `audit trim --sweep` has them. A trim's rows are drawn at random, the worst case for whoever
gathers them.

The matrix products are the same in all four, and the time of the very same products varies by more
than what a trim adds. So time inside and outside `torch.mm` is taken apart: printed are medians
over rounds, multiply-adds relative to the reference alone, and what the time outside of products
adds to the whole.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

import click
import torch
from safetensors.torch import save_file
from torch import Tensor

from audit.heads import load_head
from audit.heads.head import Head, trim_rows
from audit.heads.options import HeadOptions
from audit.lockstep import compare_heads

_SHARES = (32, 16, 8, 4)


@dataclass
class Side:
    """One thing to time; times are CPU seconds of all threads, as others may use the machine."""

    name: str
    function: Callable[[], object]
    total: list[float] = field(default_factory=list)
    outside: list[float] = field(default_factory=list)
    """Time outside of products."""
    work: int = 0
    """Multiply-adds of one run."""


class Products:
    """Stands in for `torch.mm` and notes its time and work."""

    def __init__(self) -> None:
        self.true, self.seconds, self.work = torch.mm, 0.0, 0

    def __call__(self, a: Tensor, b: Tensor, **more: Tensor) -> Tensor:
        start = time.process_time()
        out = self.true(a, b, **more)
        self.seconds += time.process_time() - start
        self.work += a.shape[0] * a.shape[1] * b.shape[1]
        return out


@click.command()
@click.option("--positions", default=2500, show_default=True)
@click.option("--vocabulary", default=262_144, show_default=True)
@click.option("--hidden", default=640, show_default=True)
@click.option("--dtype", default="bfloat16", show_default=True, help="stored type of the head")
@click.option("--rounds", default=9, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--threads", default=1, show_default=True)
def main(
    positions: int,
    vocabulary: int,
    hidden: int,
    dtype: str,
    rounds: int,
    seed: int,
    threads: int,
) -> None:
    """Print the times of no trim, one and four, and what they add."""
    torch.set_num_threads(threads)
    rng = torch.Generator().manual_seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        weight = torch.randn(vocabulary, hidden, generator=rng).to(getattr(torch, dtype))
        ref = _stored(Path(folder) / "ref.safetensors", {"lm_head.weight": weight})
        states = torch.randn(positions, hidden, generator=rng)
        whole = weight.float().T
        oracle = torch.cat([(part @ whole).argmax(-1) for part in states.split(256)])
        order = torch.randperm(vocabulary, generator=rng)
        trims = [trim_rows(ref, order[: vocabulary // share], ref.record) for share in _SHARES]
        own = {"lm_head.weight": weight[trims[2].ids], "d2t": trims[2].ids}
        file = _stored(Path(folder) / "trim.safetensors", own, ref)
        chosen: dict[str, Sequence[Head]] = {
            "reference alone": [],
            "with one trim": [trims[2]],
            "with its file": [file],
            "with four trims": trims,
        }
        sides = [
            Side(name, partial(compare_heads, ref, cands, states, oracle))
            for name, cands in chosen.items()
        ]
        _time(sides, rounds, random.Random(seed))
    _print(sides)


def _stored(path: Path, tensors: dict[str, Tensor], base: Head | None = None) -> Head:
    save_file(tensors, path)
    return load_head(path, HeadOptions(d2t_convention="absolute"), base=base)


def _time(sides: Sequence[Side], rounds: int, rng: random.Random) -> None:
    """Run all sides in every round, in another order each time."""
    products = Products()
    torch.mm = products
    for _ in range(rounds):
        for side in rng.sample(list(sides), len(sides)):
            products.seconds, products.work = 0.0, 0
            start = time.process_time()
            side.function()
            side.total.append(time.process_time() - start)
            side.outside.append(side.total[-1] - products.seconds)
            side.work = products.work


def _print(sides: Sequence[Side]) -> None:
    alone = sides[0]
    whole, base = median(alone.total), median(alone.outside)
    for side in sides:
        outside = median(side.outside)
        click.echo(
            f"{side.name:<16} {median(side.total):7.2f} s   outside products {outside:6.3f} s   "
            f"products x {side.work / alone.work:.4f}   adds {(outside - base) / whole:+.2%}"
        )


if __name__ == "__main__":
    main()
