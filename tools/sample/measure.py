"""Figures of the finished sample on modules that it never saw.

``python -m tools.sample.measure MODEL --seed SEED --out figures.json`` loads the exported
bfloat16 weights back in float32, as every reader of the package will, and must be given the
training's seed: it decides which modules were held out.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from . import data
from .model import Sample, load, parameters_of

CONTEXT = 256
BATCH = 8
# None ends in a space or a line break: those belong to the token that follows them.
PROMPTS = (
    "def is_valid(value):\n    if not isinstance(value,",
    'def read_lines(path, encoding=None):\n    """Return the lines of a file."""\n    with',
    'class Stack:\n    """A stack of items."""\n\n    def __init__(self, items=None):',
    "\n\ndef",
)


@dataclass
class Counts:
    """Sums over held-out windows; every figure is a ratio of two of them."""

    nats: float = 0.0
    correct: int = 0
    positions: int = 0
    target_bytes: int = 0
    accepted: int = 0
    accepted_text: int = 0
    accepted_wrong_state: int = 0
    proposals: int = 0
    oracle: Tensor = field(default_factory=lambda: torch.zeros(data.VOCABULARY, dtype=torch.long))

    def figures(self) -> dict[str, float | int]:
        """The ratios that the README quotes."""
        return {
            "positions": self.positions,
            "perplexity": math.exp(self.nats / self.positions),
            "bits_per_byte": self.nats / math.log(2) / self.target_bytes,
            "next_token_accuracy": self.correct / self.positions,
            "proposals": self.proposals,
            "acceptance": self.accepted / self.proposals,
            "acceptance_wrong_state": self.accepted_wrong_state / self.proposals,
            "chance": int(self.oracle.max()) / self.proposals,
            "second_next_token_accuracy": self.accepted_text / self.proposals,
        }


def token_bytes(tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """Bytes of text that each token stands for; the end of a text stands for none."""
    # In a byte-level vocabulary every character of a token's name is one byte.
    names = tokenizer.convert_ids_to_tokens(list(range(data.VOCABULARY)))
    return torch.tensor([0 if name == data.END_OF_TEXT else len(name) for name in names])


def add_verifier(counts: Counts, logits: Tensor, labels: Tensor, sizes: Tensor) -> None:
    """How well the verifier predicts the text's next token."""
    counts.nats += float(cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum"))
    counts.correct += int((logits.argmax(-1) == labels).sum())
    counts.positions += labels.numel()
    counts.target_bytes += int(sizes[labels].sum())


def add_head(counts: Counts, sample: Sample, inputs: Tensor, oracle: Tensor) -> None:
    """How often the head's proposal is the verifier's greedy token one row later.

    The control gives the head the states of another window. A head that only knew common
    pairs of tokens would not notice.
    """
    hidden = sample.verifier.model(input_ids=inputs, use_cache=False).last_hidden_state
    project = sample.verifier.lm_head
    proposed = project(sample.head_states(inputs, hidden)).argmax(-1)
    astray = project(sample.head_states(inputs, hidden.roll(1, dims=0))).argmax(-1)
    wanted = oracle[:, 1:]
    counts.accepted += int((proposed == wanted).sum())
    counts.accepted_wrong_state += int((astray == wanted).sum())
    counts.accepted_text += int((proposed[:, :-1] == inputs[:, 2:]).sum())
    counts.proposals += wanted.numel()
    counts.oracle += torch.bincount(wanted.flatten(), minlength=data.VOCABULARY)


@torch.inference_mode()
def measure(sample: Sample, stream: Tensor, sizes: Tensor) -> Counts:
    """Teacher-forced over the held-out stream, in windows as long as the training's."""
    counts = Counts()
    for window in data.consecutive(stream, CONTEXT + 1).split(BATCH):
        inputs, labels = window[:, :-1], window[:, 1:]
        logits = sample.verifier(input_ids=inputs, use_cache=False).logits
        add_verifier(counts, logits, labels, sizes)
        add_head(counts, sample, inputs, logits.argmax(-1))
    return counts


def continuations(folder: Path, length: int) -> dict[str, str]:
    """Greedy text after each prompt, through the front door that users take."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = {}
    for prompt in PROMPTS:
        encoded = tokenizer(prompt, return_tensors="pt")
        out = model.generate(**encoded, do_sample=False, max_new_tokens=length)
        texts[prompt] = tokenizer.decode(out[0], skip_special_tokens=False)
    return texts


def main() -> None:
    """Measure, print the continuations, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--length", type=int, default=64, help="tokens per continuation")
    asked = parser.parse_args()
    held_out = data.split(data.read_library(), asked.seed).held_out
    tokenizer = AutoTokenizer.from_pretrained(asked.model)
    stream = data.encode(tokenizer.backend_tokenizer, list(held_out.values()))
    counts = measure(load(asked.model), stream, token_bytes(tokenizer))
    texts = continuations(asked.model, asked.length)
    report = {
        "seed": asked.seed,
        "parameters": parameters_of(asked.model),
        "held_out": sorted(held_out),
        "figures": counts.figures(),
        "continuations": texts,
    }
    print(json.dumps(report["figures"], indent=2), *texts.values(), sep="\n" + "-" * 72 + "\n")
    asked.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
