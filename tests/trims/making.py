"""Traces of given oracle tokens, and the sample's own, for tests of ranks and trims."""

from __future__ import annotations

from pathlib import Path

import torch

from audit.records import TraceInfo
from audit.traces import Trace, write_trace

SAMPLE = Path(__file__).resolve().parents[2] / "audit" / "sample"
MODEL = SAMPLE / "model"
TRACES = SAMPLE / "traces"


def trace_of(
    oracle: list[list[int]],
    corpus: str = "code",
    register: str = "in_distribution",
    vocabulary: int | None = 50,
    language: str | None = None,
) -> Trace:
    """One sequence per list of oracle tokens; the states are nothing."""
    flat = torch.tensor([i for one in oracle for i in one])
    lengths = [len(one) for one in oracle]
    info = TraceInfo.model_validate(
        {
            "model": "tiny", "model_sha256": "m" * 64, "tokenizer_sha256": None,
            "vocabulary": vocabulary, "corpus": corpus, "register": register,
            "language": language, "stage": "post_norm", "oracle": "verifier_greedy",
            "captured_by": "test",
        }
    )  # fmt: skip
    return Trace(
        info=info,
        hidden=torch.zeros(len(flat), 4),
        token=flat.clamp(min=0),
        oracle=flat,
        sequence=torch.arange(len(oracle)).repeat_interleave(torch.tensor(lengths)),
        position=torch.cat([torch.arange(n) for n in lengths]),
    )


def stored_trace(folder: Path, trace: Trace) -> Path:
    path = folder / f"{trace.info.corpus}.trace.safetensors"
    write_trace(trace, path)
    return path


def card(path: Path, ids) -> Path:
    path.write_text("".join(f"{int(i)}\n" for i in ids))
    return path
