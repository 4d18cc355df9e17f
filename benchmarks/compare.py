"""Time `compare_heads` against the bare torch matrix products on the same data, in one run.

    python benchmarks/compare.py                    # the issue's size: 2,500 x 262,144 x 640
    python benchmarks/compare.py --vocabulary 65536 --dtype bfloat16

With float32 heads both sides multiply the same numbers; with another stored type `compare` also
decodes, which the bare products (on weights decoded beforehand) do not.

Both sides are timed alternately and the ratio of their best times is printed; peak memory is that
of a process of its own that maps the two heads from files and compares them once. A ratio inside
one run means something on any machine; a time does not.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import click
import torch
from safetensors.torch import save_file
from timing import bare_products, best_of, peak_kib

from audit.heads import load_head
from audit.heads.head import Head
from audit.lockstep import compare_heads


@click.command()
@click.option("--positions", default=2500, show_default=True)
@click.option("--vocabulary", default=262_144, show_default=True)
@click.option("--hidden", default=640, show_default=True)
@click.option("--dtype", default="float32", show_default=True, help="stored type of both heads")
@click.option("--rounds", default=3, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--threads", default=2, show_default=True)
@click.option("--child", type=click.Path(path_type=Path), hidden=True)
def main(
    positions: int,
    vocabulary: int,
    hidden: int,
    dtype: str,
    rounds: int,
    seed: int,
    threads: int,
    child: Path | None,
) -> None:
    """Print the two ratios and the peak memory."""
    torch.set_num_threads(threads)
    if child:
        _child(child)
        return
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        _write_inputs(where, positions, vocabulary, hidden, getattr(torch, dtype), seed)
        ref, cand, states, oracle = _inputs(where)
        dense = [head.rows.tile(0, vocabulary) for head in (ref, cand)]
        best = best_of(
            rounds,
            partial(bare_products, states, dense),
            partial(compare_heads, ref, [cand], states, oracle),
            partial(compare_heads, ref, [cand], states, oracle, kl=True),
        )
        click.echo(f"bare products     {best[0]:7.2f} s")
        click.echo(f"compare           {best[1]:7.2f} s   ratio {best[1] / best[0]:.3f}")
        click.echo(f"compare with KL   {best[2]:7.2f} s   ratio {best[2] / best[0]:.3f}")
        run = [sys.executable, __file__, "--child", folder, "--threads", str(threads)]
        click.echo(subprocess.run(run, check=True, capture_output=True, text=True).stdout, nl=False)


def _write_inputs(
    where: Path, positions: int, vocabulary: int, hidden: int, dtype: torch.dtype, seed: int
) -> None:
    """Two heads that differ by noise, states, and an oracle: the reference's best id at 60 % of
    positions, else one of its next 19, as draft heads miss."""
    rng = torch.Generator().manual_seed(seed)
    weight = torch.randn(vocabulary, hidden, generator=rng)
    states = torch.randn(positions, hidden, generator=rng)
    top = torch.cat([(part @ weight.T).topk(20, dim=-1).indices for part in states.split(64)])
    rank = torch.randint(1, 20, (positions, 1), generator=rng)
    rank[torch.rand(positions, generator=rng) < 0.6] = 0
    save_file({"lm_head.weight": weight.to(dtype)}, where / "ref.safetensors")
    weight += 0.1 * torch.randn(vocabulary, hidden, generator=rng)
    save_file({"lm_head.weight": weight.to(dtype)}, where / "cand.safetensors")
    oracle = top.gather(1, rank).squeeze(1).contiguous()
    save_file({"states": states, "oracle": oracle}, where / "states.st")


def _inputs(where: Path) -> tuple[Head, Head, torch.Tensor, torch.Tensor]:
    from safetensors.torch import load_file

    data = load_file(where / "states.st")
    heads = [load_head(where / f"{name}.safetensors") for name in ("ref", "cand")]
    return heads[0], heads[1], data["states"], data["oracle"]


def _child(where: Path) -> None:
    """Compare once from the files and print this process's peak memory."""
    before = peak_kib()
    ref, cand, states, oracle = _inputs(where)
    compare_heads(ref, [cand], states, oracle, kl=True)
    peak = peak_kib()
    stored = sum(head.record.stored_bytes or 0 for head in (ref, cand)) >> 20
    click.echo(
        f"peak memory {peak >> 10} MiB with KL, of which {before >> 10} MiB python and torch, "
        f"{stored} MiB weights as stored\n"
    )


if __name__ == "__main__":
    main()
