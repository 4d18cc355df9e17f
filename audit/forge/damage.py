"""How far a cut moved the weights: norm of the change over the norm of what was cut."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from audit.blocks import Block, BlockHead
from audit.blocks.sources import read_weight
from audit.forge.heads import Parts
from audit.forge.matrices import CutMatrix
from audit.heads.adapters import LowRankInput
from audit.heads.head import Head

_TILE_ROWS = 4096


def weight_errors(
    ref: Head, cand: Head, parts: Parts, matrices: Mapping[str, CutMatrix]
) -> dict[str, float]:
    """Part -> relative error of its weights; nothing for rows that were only left out."""
    found = {}
    if parts.block and isinstance(ref, BlockHead):
        found["block"] = _ratio(*_of_block(ref.block, matrices))
    if parts.projection and len(cand.ids) == len(ref.ids):
        found["projection"] = _ratio(*_of_rows(ref, cand))
    return found


def _of_block(block: Block, matrices: Mapping[str, CutMatrix]) -> tuple[float, float]:
    """Squared norms of the change and of the weights."""
    change, whole = 0.0, 0.0
    for name, matrix in matrices.items():
        old, new = read_weight(block.container, name).double(), matrix.values().double()
        size = float(old.square().sum())
        whole += size
        if old.shape == new.shape:
            change += float((old - new).square().sum())
        else:  # pruned: channels are missing, the others are what they were
            change += max(0.0, size - float(new.square().sum()))
    return change, whole


def _of_rows(ref: Head, cand: Head) -> tuple[float, float]:
    right = cand.adapt.right if isinstance(cand.adapt, LowRankInput) else None
    change, whole = 0.0, 0.0
    for start in range(0, ref.rows.count, _TILE_ROWS):
        stop = min(start + _TILE_ROWS, ref.rows.count)
        old, new = ref.rows.tile(start, stop), cand.rows.tile(start, stop)
        new = new if right is None else new @ right
        change += float(torch.linalg.vector_norm(old - new, dtype=torch.float64)) ** 2
        whole += float(torch.linalg.vector_norm(old, dtype=torch.float64)) ** 2
    return change, whole


def _ratio(change: float, whole: float) -> float:
    return float((change / whole) ** 0.5) if whole else 0.0
