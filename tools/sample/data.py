"""What the sample is trained on: the running Python's own standard library, tokenized once.

The library's sources are on every machine that can run the script, they are real code, and
their licence allows it. Tests, generated tables and vendored wheels are left out: they are
large and teach a small model little. Whole modules are held out, by a seeded draw, so that
the figures in the sample's README are about text that the weights never saw.
"""

from __future__ import annotations

import json
import random
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

END_OF_TEXT = "<|endoftext|>"
VOCABULARY = 8192
HELD_OUT_SHARE = 0.04
# One file may not dominate, and a longer held-out module would only slow the measurement.
LARGEST_FILE = 240_000
SKIPPED = frozenset(
    {"site-packages", "dist-packages", "lib-dynload", "ensurepip", "__pycache__"}
    | {"test", "tests", "idle_test", "lib2to3", "encodings", "pydoc_data", "turtledemo"}
)


@dataclass(frozen=True)
class Sources:
    """Module texts by path relative to the library, split for good."""

    train: dict[str, str]
    held_out: dict[str, str]


def _kept(relative: Path) -> bool:
    """Whether a file is ordinary library code."""
    folders = relative.parts[:-1]
    return not any(part in SKIPPED or part.startswith("config-") for part in folders)


def read_library() -> dict[str, str]:
    """All kept modules of the running Python, sorted by path, so that a seed means something."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found: dict[str, str] = {}
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if not _kept(relative) or not 0 < path.stat().st_size <= LARGEST_FILE:
            continue
        try:
            found[relative.as_posix()] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
    return found


def split(library: dict[str, str], seed: int) -> Sources:
    """Hold out a seeded set of modules that makes up ``HELD_OUT_SHARE`` of the text."""
    names = sorted(library)
    random.Random(seed).shuffle(names)
    budget = HELD_OUT_SHARE * sum(map(len, library.values()))
    held: set[str] = set()
    for name in names:
        if budget <= 0:
            break
        held.add(name)
        budget -= len(library[name])
    train = {name: text for name, text in library.items() if name not in held}
    return Sources(train, {name: library[name] for name in sorted(held)})


def end_of_text(tokenizer: Tokenizer) -> int:
    """The id of the token that closes every module."""
    number: int | None = tokenizer.token_to_id(END_OF_TEXT)
    if number is None:
        raise ValueError(f"the tokenizer has no {END_OF_TEXT} token")
    return number


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """Byte-level BPE: any text round-trips, as in the Qwen family."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write what ``AutoTokenizer`` reads, with the file compacted: it ships in the package."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 512,
    }
    text = json.dumps(settings, indent=2) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=False), encoding="utf-8")


def encode(tokenizer: Tokenizer, texts: list[str]) -> Tensor:
    """One stream of token ids; every module is closed by the end-of-text token."""
    end = end_of_text(tokenizer)
    stream: list[int] = []
    for text in texts:
        stream += tokenizer.encode(text).ids
        stream.append(end)
    return torch.from_numpy(np.asarray(stream, dtype=np.int64))


class Windows:
    """Training windows at random offsets; step n always sees the same ones, also on resume."""

    def __init__(self, stream: Tensor, length: int, batch: int, seed: int) -> None:
        self.stream, self.length, self.batch, self.seed = stream, length, batch, seed

    def __getitem__(self, step: int) -> Tensor:
        """Token ids [batch, length] of this step."""
        draw = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        last = len(self.stream) - self.length
        starts = torch.randint(last + 1, (self.batch,), generator=draw)
        return torch.stack([self.stream[start : start + self.length] for start in starts.tolist()])


def consecutive(stream: Tensor, length: int) -> Tensor:
    """The whole stream as windows [N, length] without overlap; the rest at the end is dropped."""
    count = len(stream) // length
    return stream[: count * length].view(count, length)
