"""Train the sample from nothing, on the CPU: ``python -m tools.sample.train --out FOLDER``.

Verifier and head are trained together. The head first learns the text; in the second part it
learns the verifier's own greedy tokens instead, because that is what its proposals are later
accepted against. The same seed, library and torch give the same weights: batches depend on
the step alone and gradients are added in a fixed order, whatever number of workers computes
them. Only a run that its time limit cuts short depends on the machine.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from . import data
from .model import Sample, build, sample_config, save

HEAD_WEIGHT = 0.3  # the head's share of the loss: enough to shape the trunk's states a little
FOLLOW_FROM = 0.5  # part of the schedule from which the head follows the verifier
WARMUP = 0.02
LOWEST_RATE = 0.02
PART = 2  # sequences a worker takes at once


@dataclass(frozen=True)
class Plan:
    """Everything that decides the weights, apart from the library and the versions."""

    seed: int
    steps: int
    minutes: float
    batch: int
    context: int
    rate: float


def learning_rate(progress: float, peak: float) -> float:
    """Linear warm-up, then a cosine down to ``LOWEST_RATE`` of the peak."""
    if progress < WARMUP:
        return peak * max(progress / WARMUP, 0.01)
    turn = min((progress - WARMUP) / (1 - WARMUP), 1.0)
    return peak * (LOWEST_RATE + (1 - LOWEST_RATE) * 0.5 * (1 + math.cos(math.pi * turn)))


def losses(sample: Sample, tokens: Tensor, follow: bool) -> Tensor:
    """Cross entropies [verifier, head] of windows [B, T+1], in nats per position."""
    inputs, labels = tokens[:, :-1], tokens[:, 1:]
    logits = sample(inputs)
    # Row t of the head proposes the token that the verifier gives at row t+1.
    wanted = logits.verifier.detach()[:, 1:].argmax(-1) if follow else labels[:, 1:]
    own = cross_entropy(logits.verifier.flatten(0, 1), labels.flatten())
    draft = cross_entropy(logits.head.flatten(0, 1), wanted.flatten())
    return torch.stack([own, draft])


class Gradients:
    """Gradients of a batch, computed in parts by single-threaded workers.

    torch's own threads meet after every small operation, which is ruinous on a machine that
    others use too. Workers that each take whole sequences meet once a step.
    """

    def __init__(self, sample: Sample, workers: int) -> None:
        torch.set_num_threads(1)
        self.sample = sample
        self.parameters = list(sample.parameters())
        self.pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))

    def _part(self, tokens: Tensor, follow: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
        both = losses(self.sample, tokens, follow)
        total = both[0] + HEAD_WEIGHT * both[1]
        return both.detach(), torch.autograd.grad(total, self.parameters)

    def accumulate(self, tokens: Tensor, follow: bool) -> Tensor:
        """Set every ``.grad`` to the batch's mean gradient; return the two mean losses."""
        parts = tokens.split(PART)
        results = list(self.pool.map(self._part, parts, [follow] * len(parts)))
        for index, parameter in enumerate(self.parameters):
            stacked = torch.stack([grads[index] for _, grads in results])
            parameter.grad = stacked.sum(0) / len(parts)
        return torch.stack([both for both, _ in results]).mean(0)


def optimizer_for(sample: Sample, rate: float) -> torch.optim.AdamW:
    """AdamW that decays matrices only; norms hover around their stored zero anyway."""
    matrices = [p for p in sample.parameters() if p.ndim > 1]
    vectors = [p for p in sample.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), eps=1e-8, foreach=True)


class Run:
    """A training run that can stop at any step and go on from its last checkpoint."""

    def __init__(self, plan: Plan, sample: Sample, windows: data.Windows, workers: int) -> None:
        self.plan, self.sample, self.windows = plan, sample, windows
        self.optimizer = optimizer_for(sample, plan.rate)
        self.gradients = Gradients(sample, workers)
        self.step = 0
        self.seconds = 0.0

    @property
    def progress(self) -> float:
        """Part of the schedule that is behind us: by steps, or by time if that runs out first."""
        return max(self.step / self.plan.steps, self.seconds / 60 / self.plan.minutes)

    def advance(self) -> Tensor:
        """One step of the optimizer; returns the two losses before it."""
        began = time.monotonic()
        progress = self.progress
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(progress, self.plan.rate)
        both = self.gradients.accumulate(self.windows[self.step], progress >= FOLLOW_FROM)
        torch.nn.utils.clip_grad_norm_(self.sample.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1
        self.seconds += time.monotonic() - began
        return both

    def store(self, path: Path) -> None:
        """Write the checkpoint beside the old one first: a kill must not cost both."""
        state = {
            "plan": asdict(self.plan),
            "model": self.sample.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "seconds": self.seconds,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(state, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)

    def resume(self, path: Path) -> None:
        """Take up a stored run; refuse one that was planned otherwise."""
        state = torch.load(path, weights_only=True)
        if state["plan"] != asdict(self.plan):
            raise SystemExit(f"{path} belongs to another plan: {state['plan']}")
        self.sample.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.seconds = state["step"], state["seconds"]


def train(run: Run, checkpoint: Path, every: float, export: Callable[[], None]) -> None:
    """Advance to the end of the plan; checkpoint and export every so many minutes."""
    mean: Tensor | None = None
    stored = run.seconds
    while run.progress < 1:
        both = run.advance()
        mean = both if mean is None else 0.98 * mean + 0.02 * both
        if run.step % 50 == 0:
            line = f"step {run.step}  {run.seconds / 60:.1f} min  progress {run.progress:.3f}"
            print(f"{line}  verifier {mean[0]:.3f}  head {mean[1]:.3f}", file=sys.stderr)
        if run.seconds - stored > every * 60:
            stored = run.seconds
            run.store(checkpoint)
            export()
    run.store(checkpoint)
    export()


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the model")
    parser.add_argument("--work", type=Path, required=True, help="folder for the checkpoint")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=4800, help="length of the schedule")
    parser.add_argument("--minutes", type=float, default=90.0, help="upper limit on its time")
    parser.add_argument("--batch", type=int, default=4, help="sequences per step")
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--every", type=float, default=5.0, help="minutes between checkpoints")
    return parser.parse_args()


def main() -> None:
    """Read the library, train or go on training, and leave a model folder."""
    asked = arguments()
    plan = Plan(asked.seed, asked.steps, asked.minutes, asked.batch, asked.context, asked.rate)
    texts = list(data.split(data.read_library(), plan.seed).train.values())
    tokenizer = data.train_tokenizer(texts)
    data.save_tokenizer(tokenizer, asked.out)
    stream = data.encode(tokenizer, texts)
    torch.manual_seed(plan.seed)
    sample = build(sample_config(data.VOCABULARY, data.end_of_text(tokenizer)))
    windows = data.Windows(stream, plan.context + 1, plan.batch, plan.seed)
    run = Run(plan, sample, windows, asked.workers)
    checkpoint = asked.work / "checkpoint.pt"
    if checkpoint.exists():
        run.resume(checkpoint)
    print(f"{len(stream)} training tokens, from step {run.step}", file=sys.stderr)
    train(run, checkpoint, asked.every, lambda: print(save(sample, asked.out), file=sys.stderr))


if __name__ == "__main__":
    main()
