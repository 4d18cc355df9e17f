"""What a configuration may ask for, asked before anything is built from it.

Configurations come from strangers as much as tensors do: a rotary setting that means nothing would
run and be wrong. The number of layers is the business of `audit.files.depth`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from audit.errors import BadUsageError, UnreadableError


def check_width(hidden: Any, where: Path) -> None:
    """Raise UnreadableError for a hidden_size that no state can have."""
    if not isinstance(hidden, int) or isinstance(hidden, bool) or hidden < 1:
        raise UnreadableError(
            f"hidden_size is {hidden!r:.40} in the configuration; it must be 1 or more",
            hint="correct the configuration beside the head",
            where=where,
        )


def check_rotary(fields: Mapping[str, Any], where: Path) -> None:
    """Refuse rotary settings that mean nothing.

    Raises:
        UnreadableError: it names the key.
    """
    for path, value in _numbers(fields, ""):
        want = _wanted(path)
        if want is not None and not want.holds(value):
            raise UnreadableError(
                f"{path} is {min(value, 1e300):.4g} in the configuration; it must be {want.words}",
                hint="correct the configuration beside the head",
                where=where,
            )


@dataclass(frozen=True, slots=True)
class _Want:
    words: str
    holds: Callable[[float], bool]


_OVER_ZERO = _Want("a finite number over 0", lambda value: 0 < value < math.inf)
_SHARE = _Want("over 0 and at most 1", lambda value: 0 < value <= 1)
_WANTED = {
    "partial_rotary_factor": _SHARE, "rotary_pct": _SHARE, "rope_theta": _OVER_ZERO,
    "rope_local_base_freq": _OVER_ZERO, "rotary_emb_base": _OVER_ZERO,
}  # fmt: skip


def _wanted(path: str) -> _Want | None:
    """What a number must be, by its key; None for one that transformers checks or nobody can."""
    key = path.rpartition(".")[2]
    return _OVER_ZERO if key == "factor" and "rope" in path else _WANTED.get(key)


def check_offset(offset: int | None, config: Any, where: Path) -> None:
    """Refuse a `--position-offset` beyond the positions that the model was made for.

    Raises:
        BadUsageError: it is.
    """
    longest = getattr(config, "max_position_embeddings", None)
    if offset is None or not isinstance(longest, int) or 0 <= offset < longest:
        return
    raise BadUsageError(
        f"--position-offset {offset} is outside the {longest:,} positions of this model",
        hint=f"0 to {longest - 1}; most engines start at 0 or 1",
        where=where,
    )


def _numbers(value: Any, path: str) -> Iterator[tuple[str, float]]:
    """All numbers of a configuration with their keys, as in rope_parameters.rope_theta."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _numbers(part, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for part in value:
            yield from _numbers(part, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            yield path, float(value)
        except OverflowError:
            yield path, math.inf
