"""The order of the pass: which target ids come together, so that trims of the reference are free.

Ids that are kept by the very same trims form one *part*. Parts are disjoint and together they are
the vocabulary; the pass takes part after part, so that every tile of weights belongs to one part
and each product is as wide as without trims. A head's answer is merged from its answers on the
parts, and a trim's from the reference's answers on the parts that it keeps. Nested trims, as
prefixes of one ranks card are, make one part more than there are trims; k unrelated ones up to 2^k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.logits import even_pieces


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Ids that the same trims keep."""

    tiles: Sequence[Tensor]
    """Its ids in pieces, int64 ascending on the CPU."""
    padding: Sequence[Tensor]
    """Its ids that the tokenizer does not know, likewise."""
    keepers: tuple[bool, ...]
    """For each trim, whether it keeps these ids."""


def parts_of(vocabulary: int, trims: Sequence[Tensor], *, valid: int, tile: int) -> list[Part]:
    """The ids 0..vocabulary-1 in parts.

    Args:
        vocabulary: number of ids, padding included.
        trims: the ids that each trim keeps, int64 on the CPU.
        valid: ids from here on are padding.
        tile: the most ids in a piece.
    """
    place = torch.zeros(vocabulary, dtype=torch.int64)
    keeps = torch.zeros(vocabulary, len(trims), dtype=torch.bool)
    for i, kept in enumerate(trims):
        keeps[kept, i] = True
        place = 2 * place + keeps[:, i]
        # Renumbered each time: few of the 2^k combinations occur, and 2^64 would not fit.
        place = (place.bincount() > 0).cumsum(0)[place] - 1
    parts = place.argsort(stable=True).split(place.bincount().tolist())
    out = []
    # What most trims keep comes first: each trim then soon has an answer that few ids can beat.
    for ids in reversed(parts):
        real, unknown = ids[ids < valid], ids[ids >= valid]
        keepers = tuple(keeps[ids[0]].tolist())
        out.append(Part(_pieces(real, tile), _pieces(unknown, tile), keepers))
    return out


def _pieces(ids: Tensor, tile: int) -> Sequence[Tensor]:
    return [ids[piece] for piece in even_pieces(len(ids), tile)]
