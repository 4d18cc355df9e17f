"""Rows of a vocabulary by a ranks card, and the map from draft rows to target ids.

Kept rows stand in the order of ascending id, as EAGLE-3's tools write them, except for memra, whose
rows stand in the order of rank. llama.cpp reads `d2t` as absolute ids (I64), memra too (I32); vLLM,
SGLang and the EAGLE-3 repositories as offsets: id = row + d2t[row]; a bool `t2d` beside it says
which ids are kept and settles which reading is meant. vLLM's Medusa heads have absolute ids under
the name `token_map`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from audit.errors import BadUsageError
from audit.forge.writers import Stored, stored
from audit.heads.vocab_map import check_ids, drop_duplicates, read_id_list


@dataclass(frozen=True, slots=True)
class Consumer:
    """How one engine reads a trimmed head."""

    name: str
    suffixes: tuple[str, ...]
    """Of the files it reads, the usual one first."""
    by_rank: bool = False
    """Rows in the order of rank; else of ascending id."""
    narrow: bool = False
    """`d2t` as I32; else I64."""
    is_medusa: bool = False
    """Absolute ids under the name `token_map`."""


CONSUMERS = {
    consumer.name: consumer
    for consumer in (
        Consumer("llama.cpp", (".gguf",)),
        Consumer("vllm", (".safetensors",)),
        Consumer("vllm-medusa", (".safetensors",), is_medusa=True),
        Consumer("sglang", (".safetensors", ".pt")),
        Consumer("memra", (".gguf",), by_rank=True, narrow=True),
    )
}


def map_tensors(
    ids: Tensor, vocabulary: int, *, is_gguf: bool, consumer: Consumer | None
) -> list[Stored]:
    """The tensors that say which target id each row stands for, int64 [rows] in any order."""
    if is_gguf:
        wanted = absolute_d2t(ids)
        return [stored("d2t", wanted.int() if consumer and consumer.narrow else wanted)]
    if consumer and consumer.is_medusa:
        return [stored("token_map", absolute_d2t(ids))]
    return [stored("d2t", offset_d2t(ids)), stored("t2d", t2d_mask(ids, vocabulary))]


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
