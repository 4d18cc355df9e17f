"""What a user can say of a dump."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from audit.dumps.reader import Numbering
from audit.records import Register, Stage


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """Everything a user can say of a dump."""

    dump: Path
    corpus: str
    register: Register = "in_distribution"
    language: str | None = None
    format: str = "auto"
    model: Path | None = None
    """The verifier's folder or file, for norm, head and hashes."""
    stage: Stage | None = None
    tokens: Path | None = None
    oracle_from: Path | None = None
    layers: tuple[int, ...] = ()
    numbering: Numbering | None = None
    only_loss_mask: bool = False
    max_positions: int | None = None
    limit_files: int | None = None
    device: str = "cpu"
    force: bool = False
    """Go on where the alignment can not be shown; the trace says so."""
