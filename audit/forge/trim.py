"""Rows of a vocabulary by a ranks card, and the map from draft rows to target ids.

Kept rows stand in the order of ascending id, as EAGLE-3's tools write them. llama.cpp reads `d2t`
as absolute ids (I64), vLLM and the EAGLE-3 repositories as offsets: id = row + d2t[row]; a bool
`t2d` beside it says which ids are kept and settles which reading is meant (formats.md 2).
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from audit.errors import BadUsageError
from audit.heads.vocab_map import check_ids, drop_duplicates, read_id_list


def ids_of_card(card: Path, count: int | None, vocabulary: int) -> Tensor:
    """The first `count` distinct ids of a ranks card (all of them by default), int64 ascending.

    Raises:
        AuditError: the card can not be read or names ids outside the vocabulary.
        BadUsageError: it has fewer distinct ids than asked for.
    """
    listed = read_id_list(card)
    ids = check_ids(drop_duplicates(listed), vocabulary, card)
    if count is not None and count > len(ids):
        repeated = len(listed) - len(ids)
        more = f" ({repeated} of its {len(listed)} entries are repeated)" if repeated else ""
        raise BadUsageError(
            f"{card.name} names {len(ids)} distinct ids{more}, {count} were asked for",
            hint=f"ask for at most {len(ids)}, or rank more tokens",
            where=card,
        )
    return ids[:count].sort().values


def absolute_d2t(ids: Tensor) -> Tensor:
    """`d2t` as GGUF has it: the target id of each row, int64 [rows]."""
    return ids.clone()


def offset_d2t(ids: Tensor) -> Tensor:
    """`d2t` as EAGLE-3 checkpoints have it: target id minus row, int64 [rows]."""
    return ids - torch.arange(len(ids))


def t2d_mask(ids: Tensor, vocabulary: int) -> Tensor:
    """`t2d`: True at each id that has a row, bool [vocabulary]."""
    mask = torch.zeros(vocabulary, dtype=torch.bool)
    mask[ids] = True
    return mask
