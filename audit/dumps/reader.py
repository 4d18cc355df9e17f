"""What every tool's reader offers: which files fit it, its sequences, and what its manual says.

A manual's word on the norm stage is kept to be held against the measurement, never used instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from audit.dumps.listing import Stored
from audit.dumps.sequence import DumpSequence
from audit.errors import UnreadableError
from audit.records import Finding, Stage

Numbering = Literal["entering", "leaving"]
"""Whether id i is the state entering layer i (vLLM, SGLang) or leaving it (ModelOpt)."""


class Reader(ABC):
    """One tool's files."""

    name: ClassVar[str]
    """As `--format` takes it."""
    holds: ClassVar[str]
    """What its files look like, for the list in an error."""
    documented: ClassVar[Stage | None] = None
    """Norm stage by its documentation; None where it writes either."""
    needs_tokens: ClassVar[bool] = False
    """Its files hold no token ids, or may hold none."""

    def __init__(self, dump: Path, files: Sequence[Path], tokens: Path | None) -> None:
        """Prepare to read `files` of `dump`; `tokens` are the ids where the dump has none."""
        self.dump, self.tokens = dump, tokens
        self.files = list(files)
        self.findings: list[Finding] = []
        """What was noticed while reading."""

    @classmethod
    @abstractmethod
    def fits(cls, path: Path, stored: Stored) -> bool:
        """Whether this file is one of this tool's, by its name and by what is stored."""

    @abstractmethod
    def read(self, path: Path) -> Iterator[DumpSequence]:
        """The sequences of one file, not checked yet.

        Raises:
            AuditError: the file is not what this tool writes.
        """

    @classmethod
    def default_layers(cls, depth: int, count: int) -> tuple[int, ...] | None:
        """Layers that `count` further states enter by default, in a model of `depth` layers; None
        where the tool documents no default."""
        return (2, depth // 2, depth - 3) if count == 3 else None  # what EAGLE-3 heads read

    def numbering_of(self, stage: Stage) -> Numbering:
        """How the tool numbers layers, for states of this stage."""
        return "entering"

    def note(self, code: str, sentence: str) -> None:
        """Keep a note, once."""
        finding = Finding(code=code, severity="note", subject="dump", sentence=sentence)
        if finding not in self.findings:
            self.findings.append(finding)

    def unfit(self, path: Path, stored: Stored | None) -> UnreadableError:
        """The refusal of a file that this tool did not write."""
        found = f"; it holds {stored.says()}" if stored else ""
        return UnreadableError(
            f"{path} is not a file of {self.name} ({self.holds}){found}",
            hint="leave --format at auto, or keep only one tool's files in the folder",
            where=path,
        )
