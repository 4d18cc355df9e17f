"""What comes between the states and the rows: low-rank factors, kept channels, LoRA on the head."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from audit.errors import MismatchError, UnreadableError, UnsupportedFormatError
from audit.files import Container
from audit.heads.head import Head
from audit.heads.identity import head_hash
from audit.heads.rows import AdaptedRows, Rows
from audit.heads.stored import stored_rows
from audit.heads.vocab_map import check_ids

_SPECIAL_LORA = ("use_dora", "alpha_pattern", "rank_pattern", "lora_bias")
"""Settings under which W + (alpha / r) B A is not the whole story."""


@dataclass(frozen=True, slots=True, eq=False)
class LowRankInput:
    """states [n, columns] -> states @ right.T [n, rank]: the input side of W = left @ right."""

    right: Tensor
    """float32 [rank, columns]."""

    @property
    def columns(self) -> int:
        return self.right.shape[1]

    def __call__(self, states: Tensor) -> Tensor:
        return states @ self.right.to(states.device).t()


@dataclass(frozen=True, slots=True, eq=False)
class KeepColumns:
    """states [n, hidden] -> the channels that a narrower head reads [n, k]."""

    index: Tensor = field()
    """int64 [k]."""

    def __call__(self, states: Tensor) -> Tensor:
        return states.index_select(1, self.index.to(states.device))


def low_rank(container: Container, left: str, right: str) -> tuple[Rows, LowRankInput]:
    """The two factors of a head W = left @ right, left [rows, rank], right [rank, hidden].

    Raises:
        MismatchError: their shapes do not multiply to a low-rank matrix.
    """
    rows, inner = stored_rows(container, left), stored_rows(container, right)
    if rows.columns != inner.count:
        raise MismatchError(
            f"{left} is {rows.count} x {rows.columns} and {right} is {inner.count} x "
            f"{inner.columns}: the first must have as many columns as the second has rows",
            hint="name the output side first: --factors LEFT,RIGHT with W = LEFT @ RIGHT",
            where=container.path,
        )
    return rows, LowRankInput(inner.tile(0, inner.count))


def keep_columns(index: Tensor, columns: int, hidden: int, where: Path) -> KeepColumns:
    """The channels a pruned head reads, checked against its width and the states' width."""
    if len(index) != columns:
        raise MismatchError(
            f"the keep-index names {len(index)} channels, the head has {columns} columns",
            hint="use the index list that was saved when the head was pruned",
            where=where,
        )
    return KeepColumns(check_ids(index, hidden, where))


def lora_head(container: Container, pair: tuple[str, str], base: Head, config_file: Path) -> Head:
    """The reference with a PEFT adapter on its head: W + (alpha / r) B @ A.

    Raises:
        UnreadableError: no or a malformed adapter_config.json, which holds alpha.
        MismatchError: the factors do not fit the reference.
    """
    left, right = (stored_rows(container, name) for name in pair)
    shape = (left.count, right.columns)
    if left.columns != right.count or shape != (base.rows.count, base.rows.columns):
        raise MismatchError(
            f"the adapter's factors {left.count} x {left.columns} and {right.count} x "
            f"{right.columns} do not fit a head of {base.rows.count} x {base.rows.columns}",
            hint="the adapter was made for another model",
            where=container.path,
        )
    scale = _lora_scale(config_file, rank=left.columns)
    _check_plain(container, pair)
    rows = AdaptedRows(base.rows, left.tile(0, left.count) * scale, right.tile(0, right.count))
    raw = [("lora", container.entries[n].encoding, container.bytes_of(n)) for n in pair]
    record = base.record.model_copy(
        update={
            "name": container.path.name,
            "path": str(container.path),
            "encoding": f"{base.record.encoding}+LoRA",
            "sha256": head_hash(raw, {"base": base.record.sha256, "scale": scale}),
            "tensors": pair,
            "stored_bytes": (base.record.stored_bytes or 0) + sum(r[2].numel() for r in raw),
            "bits_per_weight": None,
            "notes": (f"LoRA adapter of rank {left.columns} on the reference, scale {scale:g}",),
        }
    )
    return replace(base, record=record, rows=rows)


def _check_plain(container: Container, pair: tuple[str, str]) -> None:
    """Refuse whatever else an adapter holds for the head: a magnitude (DoRA), a bias, a base."""
    others = [n for n in container.entries if "lm_head" in n and n not in pair]
    if others:
        raise UnsupportedFormatError(
            f"beside its two factors the adapter holds {', '.join(sorted(others)[:3])} for the "
            "head, which this version does not apply",
            hint="merge the adapter into the model and compare the merged head",
            where=container.path,
        )


def _lora_scale(config_file: Path, rank: int) -> float:
    try:
        config: dict[str, Any] = json.loads(config_file.read_text(encoding="utf-8"))
        alpha = float(config["lora_alpha"])
        declared = int(config["r"])
        root = bool(config.get("use_rslora"))
        special = [key for key in _SPECIAL_LORA if config.get(key)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnreadableError(
            f"the adapter's scale is in adapter_config.json (r, lora_alpha): {error!r}",
            hint="keep adapter_config.json beside the adapter's weights",
            where=config_file,
        ) from error
    if special:
        raise UnsupportedFormatError(
            f"the adapter's {', '.join(special)} is not applied by this version",
            hint="merge the adapter into the model and compare the merged head",
            where=config_file,
        )
    if declared != rank:
        raise MismatchError(
            f"adapter_config.json says r = {declared}, the factors have rank {rank}",
            hint="the adapter has a rank of its own for the head (rank_pattern): state it as r",
            where=config_file,
        )
    scale = alpha / (math.sqrt(rank) if root else rank)
    if not math.isfinite(scale):
        raise UnreadableError("lora_alpha is not a finite number", where=config_file)
    return scale
