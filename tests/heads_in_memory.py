"""Heads made of tensors, for tests that need no files."""

from __future__ import annotations

import torch

from audit.heads.head import Head, PostHead
from audit.heads.rows import DenseRows
from audit.records import HeadRecord


def record(name: str, rows: int, vocabulary: int) -> HeadRecord:
    return HeadRecord(
        name=name, path=f"{name}.safetensors", kind="lm", container="safetensors", encoding="F32",
        rows=rows, columns=1, vocabulary=vocabulary, stored_bytes=rows, bits_per_weight=32.0,
        sha256="0" * 64, tensors=("lm_head.weight",), tied=False,
    )  # fmt: skip


def head_of(
    weight: torch.Tensor,
    name: str = "head",
    *,
    ids: torch.Tensor | None = None,
    vocabulary: int | None = None,
    bias: torch.Tensor | None = None,
    post: PostHead | None = None,
    valid: int | None = None,
) -> Head:
    count = len(weight)
    return Head(
        record=record(name, count, vocabulary or count),
        rows=DenseRows(weight),
        ids=torch.arange(count) if ids is None else ids,
        hidden_size=weight.shape[1],
        bias=bias,
        post=post or PostHead(),
        valid=valid,
    )
