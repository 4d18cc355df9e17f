"""The ranks card: a text file of one id per line, and CARD.json beside it with what is known of it.

Any engine reads the text. The JSON is bound to it by its hash: of a card that was edited since, it
says nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, ValidationError

from audit import __version__
from audit.atomic import atomic_path
from audit.errors import BadUsageError, UnreadableError
from audit.provenance import sha256_file
from audit.records import SCHEMA_VERSION
from audit.records.base import Record


class CorpusShare(Record):
    """What one corpus gave to a card."""

    corpus: str
    register_: str
    weight: float
    positions: int
    distinct: int
    """Ids emitted there."""
    coverage: float
    """Share of its positions whose token the card holds, on the very text it was made from."""
    trace_sha256: str | None


class CardFacts(Record):
    """What CARD.json says."""

    schema_: int = SCHEMA_VERSION
    card_sha256: str
    made_by: str
    rows: int
    vocabulary: int
    seen: int
    seen_kept: int
    forced: dict[str, list[int]]
    padded: list[int]
    counts: list[int]
    """How often each id of the card was emitted, in the card's order."""
    corpora: list[CorpusShare]
    flavour: str | None
    model: str
    model_sha256: str | None
    tokenizer_sha256: str | None

    model_config = ConfigDict(extra="ignore")

    @property
    def must(self) -> list[int]:
        """Ids that stand in the card only because they must be kept."""
        return [i for ids in self.forced.values() for i in ids]


def json_beside(card: Path) -> Path:
    """CARD.json."""
    return card.with_name(f"{card.name}.json")


def write_card(card: Path, ids: Sequence[int], about: Mapping[str, Any]) -> CardFacts:
    """Write both files, or neither.

    Args:
        card: the text file.
        ids: in the order of the card.
        about: the fields of `CardFacts` but the two that follow from the text.

    Raises:
        BadUsageError: the place can not be written, or the name is not that of a text file.
    """
    if card.suffix != ".txt":
        raise BadUsageError(
            f"a ranks card is written as .txt, not as {card.name}",
            hint=f"name it {card.stem or 'ranks'}.txt",
            where=card,
        )
    if card.exists() and not json_beside(card).is_file():
        raise BadUsageError(
            "a file is there already that `audit rank` did not write",
            hint="choose another name with -o",
            where=card,
        )
    try:
        with atomic_path(json_beside(card)) as beside, atomic_path(card) as text:
            text.write_text("".join(f"{i}\n" for i in ids), encoding="utf-8")
            facts = CardFacts.model_validate(
                {
                    "card_sha256": sha256_file(text), "made_by": f"head-audit {__version__}",
                    "rows": len(ids), **about,
                }
            )  # fmt: skip
            beside.write_text(facts.model_dump_json(indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadUsageError(
            f"the card can not be written: {error.strerror}", hint="choose another -o", where=card
        ) from error
    return facts


def read_facts(card: Path) -> CardFacts | None:
    """What CARD.json says of this very card; None where there is none or it is of another text.

    Raises:
        UnreadableError: the file there is not what `write_card` writes.
    """
    path = json_beside(card)
    if not path.is_file() or not card.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        facts = CardFacts.model_validate(content)
    except (OSError, ValueError, RecursionError, ValidationError) as error:
        raise UnreadableError(
            f"{path.name} beside the card is not what `audit rank` writes",
            hint="remove it, or make the card again",
            where=path,
        ) from error
    return facts if facts.card_sha256 == sha256_file(card) else None
