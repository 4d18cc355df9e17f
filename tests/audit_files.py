"""A small verifier's files for end-to-end tests: a head, states it is right on, candidates."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file

from audit.records import TraceInfo
from audit.traces import Trace, write_trace

V, H = 400, 48


def head_weight(seed: int = 0) -> torch.Tensor:
    return torch.randn(V, H, generator=torch.Generator().manual_seed(seed))


def write_head(path: Path, weight: torch.Tensor, **more: torch.Tensor) -> Path:
    save_file({"lm_head.weight": weight.contiguous(), **more}, path)
    return path


def make_trace(
    path: Path,
    weight: torch.Tensor,
    *,
    corpus: str = "code",
    register: str = "in_distribution",
    sequences: int = 8,
    length: int = 20,
    seed: int = 1,
    stage: str = "post_norm",
    oracle: torch.Tensor | None = None,
    model_sha256: str | None = "m" * 64,
    vocabulary: int | None = None,
) -> Path:
    """States drawn at random; the oracle is the head's own greedy token unless given."""
    n = sequences * length
    rng = torch.Generator().manual_seed(seed)
    hidden = torch.randn(n, weight.shape[1], generator=rng)
    greedy = (hidden @ weight.T).argmax(-1)
    info = TraceInfo.model_validate(
        {
            "model": "tiny", "model_sha256": model_sha256, "tokenizer_sha256": None,
            "vocabulary": vocabulary, "corpus": corpus, "register": register, "language": None,
            "stage": stage, "oracle": "verifier_greedy", "captured_by": "test",
        }
    )  # fmt: skip
    trace = Trace(
        info=info,
        hidden=hidden,
        token=torch.randint(0, V, (n,), generator=rng),
        oracle=greedy if oracle is None else oracle,
        sequence=torch.arange(sequences).repeat_interleave(length),
        position=torch.arange(length).repeat(sequences),
    )
    write_trace(trace, path)
    return path
