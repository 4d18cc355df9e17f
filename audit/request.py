"""What one audit is asked for, and what it gives back before it is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from audit.anchor import ANCHOR_MIN
from audit.heads import HeadOptions
from audit.ledger import Ledger
from audit.pair import PairOptions
from audit.records import Run
from audit.stats import Resampling
from audit.table import Frame


@dataclass(frozen=True, slots=True)
class CandidateRequest:
    """One candidate: a file, or a ranks card that cuts the reference's own rows."""

    path: Path
    options: HeadOptions = field(default_factory=HeadOptions)
    is_trim: bool = False


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """Everything a user can ask of one audit."""

    ref: Path
    candidates: tuple[CandidateRequest, ...]
    ref_options: HeadOptions = field(default_factory=HeadOptions)
    traces: tuple[Path, ...] = ()
    kl: bool = False
    device: str = "cpu"
    anchor_min: float = ANCHOR_MIN
    resampling: Resampling = field(default_factory=Resampling)
    pair: PairOptions = field(default_factory=PairOptions)
    force: bool = False
    """Compare what does not belong together, and mark the run."""
    ledger: Ledger | None = None
    """Where the reference's calibration may be; None to judge by the published rule alone."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that is not in a ledger yet, and its position tables."""

    run: Run
    frames: list[Frame]
