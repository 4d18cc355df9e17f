"""What a user may say about how a head is to be read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from audit.heads.vocab_map import Convention


@dataclass(frozen=True, slots=True)
class HeadOptions:
    """Choices for one head; the defaults mean: decide from the file or refuse."""

    tensor: str | None = None
    """The projection's tensor, where the names do not tell."""
    map: Path | None = None
    """List of target ids, one per row, for a trimmed head whose file has none."""
    d2t_convention: Convention = "auto"
    factors: tuple[str, str] | None = None
    """Names of a low-rank head's factors: [vocabulary, rank], then [rank, hidden]."""
    keep_index: Path | None = None
    """List of the hidden channels that a narrower head reads."""
    vocabulary: int | None = None
    """Size of the target vocabulary, for a trimmed head that does not say."""
