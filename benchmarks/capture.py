"""Time `capture` against the bare model and one bare head product on the same windows, in one run.

    python benchmarks/capture.py                  # the sample's verifier; Gemma where .gemma has it
    python benchmarks/capture.py MODEL ... --positions 2500 --context 512

The bare side runs the same batches through the decoder without its head, keeps the states, and
multiplies all of them by the head's weights in tiles that suit the cache. Capturing starts from
text instead: it also tokenizes, plans, finds each position's largest logit, checks that all is
finite and hashes the text; with the file, it also writes and hashes the trace. The first text of
an open model costs one more thing, a check on 100 positions that its own logits agree with its
head; its time is printed by itself.

All sides are timed alternately and the ratio of their best times is printed: bare time divided by
capture time, so 1 is the floor and the target is at least 0.8. Peak memory is that of a process of
its own that captures once. A ratio inside one run means something on any machine; a time does not.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import click
import torch
from timing import bare_products, best_of, peak_kib

from audit.corpora import find_corpus
from audit.traces import write_trace
from audit.traces.bundled import source_of
from audit.traces.capture import capture
from audit.traces.oracle import check_against_model
from audit.traces.recipe import Recipe, Source
from audit.traces.verifier import Verifier, load_verifier
from audit.traces.windows import Plan, cut_windows, plan_batches

_ROOT = Path(__file__).resolve().parents[1]
_SAMPLE = _ROOT / "audit" / "sample" / "model"
_GEMMA = _ROOT / ".gemma" / "gemma-3-270m-q4_k_m.gguf"
_CORPUS = "python-code"


@click.command()
@click.argument("models", type=click.Path(path_type=Path, exists=True), nargs=-1)
@click.option("--positions", default=2500, show_default=True)
@click.option("--context", default=512, show_default=True)
@click.option("--batch", default=8, show_default=True)
@click.option("--rounds", default=5, show_default=True, help="at least so many alternations")
@click.option("--seconds", default=60.0, show_default=True, help="and alternate for so long")
@click.option("--threads", default=2, show_default=True)
@click.option("--cpu", is_flag=True, help="processor time, for a machine that others use too")
@click.option("--child", is_flag=True, hidden=True)
def main(
    models: tuple[Path, ...],
    positions: int,
    context: int,
    batch: int,
    rounds: int,
    seconds: float,
    threads: int,
    cpu: bool,
    child: bool,
) -> None:
    """Print the ratios and the peak memory for each of MODELS."""
    torch.set_num_threads(threads)
    recipe = Recipe(context=context, max_positions=positions, batch=batch)
    if child:
        _child(models[0], recipe)
        return
    for model in models or [path for path in (_SAMPLE, _GEMMA) if path.exists()]:
        _measure(model, recipe, rounds, seconds, cpu)
        run = [sys.executable, __file__, str(model), "--child", "--threads", str(threads)]
        run += ["--positions", str(positions), "--context", str(context), "--batch", str(batch)]
        click.echo(subprocess.run(run, check=True, capture_output=True, text=True).stdout)


def _measure(model: Path, recipe: Recipe, rounds: int, seconds: float, cpu: bool) -> None:
    verifier, source = load_verifier(model), source_of(find_corpus(_CORPUS))
    windows = cut_windows(verifier, source.documents, recipe.context, recipe.max_positions)
    plan = plan_batches(windows, recipe.batch)
    head = verifier.model.get_output_embeddings().weight
    with tempfile.TemporaryDirectory() as folder:
        best = best_of(
            rounds,
            partial(_bare, verifier, plan, head),
            partial(capture, verifier, source, recipe),
            partial(_with_file, verifier, source, recipe, Path(folder) / "t.trace.safetensors"),
            partial(_check, verifier, plan),
            seconds=seconds,
            clock=time.process_time if cpu else time.perf_counter,
        )
    padded = sum(len(b) * max(len(windows[i]) for i in b) for b in plan.batches)
    click.echo(
        f"{verifier.identity.name}: {plan.rows} positions ({padded} with padding), ", nl=False
    )
    click.echo(f"head {head.shape[0]} x {head.shape[1]}")
    click.echo(f"  bare model and product  {best[0]:7.3f} s")
    click.echo(f"  capture                 {best[1]:7.3f} s   ratio {best[0] / best[1]:.3f}")
    click.echo(f"  capture with its file   {best[2]:7.3f} s   ratio {best[0] / best[2]:.3f}")
    first = best[1] + best[3]
    click.echo(f"  first capture of all    {first:7.3f} s   ratio {best[0] / first:.3f}")


@torch.no_grad()
def _bare(verifier: Verifier, plan: Plan, head: torch.Tensor) -> None:
    states = []
    for indexes in plan.batches:
        windows = [plan.windows[index] for index in indexes]
        inputs = torch.nn.utils.rnn.pad_sequence(windows, batch_first=True)
        left = verifier.model.get_decoder()(input_ids=inputs, use_cache=False).last_hidden_state
        states += [left[row, : len(window)] for row, window in enumerate(windows)]
    bare_products(torch.cat(states), [head])


def _with_file(verifier: Verifier, source: Source, recipe: Recipe, path: Path) -> None:
    write_trace(capture(verifier, source, recipe), path)


@torch.no_grad()
def _check(verifier: Verifier, plan: Plan) -> None:
    check_against_model(verifier.model, plan.windows[0], verifier.vocabulary)


def _child(model: Path, recipe: Recipe) -> None:
    """Capture once and print this process's peak memory."""
    verifier, source = load_verifier(model), source_of(find_corpus(_CORPUS))
    weights = sum(p.numel() * p.element_size() for p in verifier.model.parameters()) >> 20
    before = peak_kib()
    trace = capture(verifier, source, recipe)
    states = trace.hidden.numel() * trace.hidden.element_size() >> 20
    click.echo(
        f"  peak memory {peak_kib() >> 10} MiB, {before >> 10} MiB of it with the model open "
        f"({weights} MiB of weights); the trace's states are {states} MiB"
    )


if __name__ == "__main__":
    main()
