"""Reviews, waivers and judgements: rows that are appended, named by their content, never changed.

Appending the same entry twice is appending it once, so a writer that is not sure may repeat itself.
Reading checks each row against its name again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError
from sqlalchemy import ColumnElement, Connection, Row, Table, select

from audit.errors import BadUsageError
from audit.ledger import schema
from audit.ledger.database import insert_new
from audit.ledger.documents import Entry, Judgement, changed, entry_id, storable
from audit.provenance import json_text
from audit.records import GateResult, Review, Waiver

_Any = Review | Waiver | Judgement


def append(connection: Connection, entry: _Any) -> bool:
    """Append a sealed entry; return whether it is new.

    Raises:
        BadUsageError: its text can not be kept.
    """
    table, _ = _KINDS[type(entry)]
    row = _judgement_row(entry) if isinstance(entry, Judgement) else entry.model_dump(mode="json")
    if isinstance(entry, Review):
        row["waivers"] = json_text(list(entry.waivers), indent=None)
    for name, value in row.items():
        _check_text(name, value)
    return bool(insert_new(connection, table, [row]))


def entries(connection: Connection, kind: type[Entry], *where: ColumnElement[bool]) -> list[Entry]:
    """Entries of one kind in the order in which they were appended.

    Raises:
        UnreadableError: an entry was changed.
    """
    table, read = _KINDS[kind]
    found = connection.execute(select(table).where(*where).order_by(table.c.entry)).all()
    return [_checked(row, read) for row in found]


def changed_entries(connection: Connection, kind: type[Entry]) -> list[str]:
    """Names of the entries that no longer fit them."""
    table, read = _KINDS[kind]
    rows = connection.execute(select(table).order_by(table.c.entry)).all()
    return [row.id for row in rows if not _fits(row, read)]


def _checked(row: Row[Any], read: Callable[[Row[Any]], Entry]) -> Entry:
    if not _fits(row, read):
        raise changed(read.__name__.strip("_"), "it no longer gives its name", f"id {row.id}")
    return read(row)


def _fits(row: Row[Any], read: Callable[[Row[Any]], Entry]) -> bool:
    try:
        found = read(row)
    except (ValidationError, ValueError):
        return False
    if isinstance(found, Judgement):
        # The answer itself is covered by the id, and may be of a version with fewer fields.
        told = _judgement_row(found) | {"gate": row.gate}
        if told != _without_entry(row):
            return False
    return entry_id(found) == found.id


def _without_entry(row: Row[Any]) -> dict[str, Any]:
    return {name: value for name, value in row._mapping.items() if name != "entry"}


def _review(row: Row[Any]) -> Review:
    return Review.model_validate(_without_entry(row) | {"waivers": json.loads(row.waivers)})


def _waiver(row: Row[Any]) -> Waiver:
    return Waiver.model_validate(_without_entry(row))


def _judgement(row: Row[Any]) -> Judgement:
    gate = GateResult.model_validate_json(row.gate)
    return Judgement(id=row.id, run=row.run, head_sha256=row.head_sha256, gate=gate)


def _judgement_row(judgement: Judgement) -> dict[str, Any]:
    gate = judgement.gate
    return {
        "id": judgement.id,
        "run": judgement.run,
        "head_sha256": judgement.head_sha256,
        "outcome": gate.outcome,
        "policy_name": storable(gate.policy.name),
        "policy_sha256": storable(gate.policy.sha256),
        "judged": storable(gate.judged),
        "gate": json_text(gate.model_dump(by_alias=True, mode="json"), indent=None),
    }


def _check_text(name: str, value: object) -> None:
    if isinstance(value, str) and storable(value) != value:
        raise BadUsageError(f"this {name} can not be kept as text", hint="give it in UTF-8")


_KINDS: dict[type, tuple[Table, Callable[[Row[Any]], Any]]] = {
    Review: (schema.reviews, _review),
    Waiver: (schema.waivers, _waiver),
    Judgement: (schema.judgements, _judgement),
}
