"""Proof that the head's forward is the layout's: it must reproduce a golden checkpoint.

The golden folder holds a tiny random checkpoint (``hf/``) and ``expected.safetensors``, the
tokens, states, proposals and top-2 logits that another implementation computed for it.
Run ``python -m tools.sample.golden FOLDER``, or call ``check`` from a test.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from .model import load

TOLERANCE = 1e-3


@dataclass(frozen=True)
class Agreement:
    """How far this forward is from the expected one."""

    rows: int
    greedy_mismatches: int
    worst_logit: float
    verifier_mismatches: int
    worst_verifier_logit: float

    @property
    def holds(self) -> bool:
        """Same proposals everywhere, and logits within the tolerance."""
        wrong = self.greedy_mismatches + self.verifier_mismatches
        return wrong == 0 and max(self.worst_logit, self.worst_verifier_logit) <= TOLERANCE


def _compare(logits: Tensor, greedy: Tensor, top2: Tensor) -> tuple[int, float]:
    """Rows whose best token differs, and the largest difference among the two best logits."""
    mismatches = int((logits.argmax(-1) != greedy).sum())
    return mismatches, float((logits.topk(2).values - top2).abs().max())


@torch.inference_mode()
def check(folder: Path) -> Agreement:
    """Run verifier and head on the golden tokens; the head reads the *recorded* states."""
    sample = load(folder / "hf")
    expected = load_file(folder / "expected.safetensors")
    tokens = expected["tokens"].long()
    project = sample.verifier.lm_head
    head = project(sample.head_states(tokens, expected["trunk_hidden_post_norm"]))
    verifier = sample(tokens).verifier
    wrong, worst = _compare(head, expected["mtp_greedy"], expected["mtp_top2"])
    wrong_v, worst_v = _compare(verifier, expected["verifier_greedy"], expected["verifier_top2"])
    return Agreement(head.shape[:-1].numel(), wrong, worst, wrong_v, worst_v)


def main() -> None:
    """Print the agreement; exit with 1 where it does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="holds hf/ and expected.safetensors")
    agreement = check(parser.parse_args().folder)
    print(agreement)
    raise SystemExit(0 if agreement.holds else 1)


if __name__ == "__main__":
    main()
