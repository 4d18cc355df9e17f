"""What a ledger is and how much it holds, without reading a single run."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, func, select, text

from audit.ledger import keep, schema
from audit.ledger.ledger import Ledger
from audit.ledger.listing import newest
from audit.ledger.migrations import version_of


@dataclass(frozen=True, slots=True)
class LedgerInfo:
    """Facts about a ledger."""

    ledger: str
    """Folder or URL."""
    id: str | None
    """What ties files and database together; None while nothing was written."""
    database: str
    """Its URL, without a password."""
    schema_version: int
    journal: str | None
    """SQLite's way of writing; None elsewhere."""
    newest: str | None
    """The newest run."""
    counts: dict[str, int]
    unreadable: dict[str, str]
    """Id -> why, for runs that can not be read."""


def describe(ledger: Ledger) -> LedgerInfo:
    """Facts about a ledger. Raises AuditError when its database can not be used."""
    database, unreadable = ledger.index.catch_up()
    tables = (schema.runs, schema.reviews, schema.waivers, schema.judgements)

    def work(connection: Connection) -> LedgerInfo:
        counts = {
            table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in tables
        }
        for folder in (keep.CALIBRATIONS, keep.POLICIES):
            counts[folder] = len(keep.kept(ledger.store, folder))
        lite = database.dialect == "sqlite"
        journal = connection.execute(text("PRAGMA journal_mode")).scalar() if lite else None
        return LedgerInfo(
            ledger=ledger.where,
            id=connection.execute(select(schema.identity.c.ledger)).scalar(),
            database=database.shown,
            schema_version=version_of(connection),
            journal=str(journal) if journal else None,
            newest=next(iter(newest(connection)), None),
            counts=counts,
            unreadable=unreadable,
        )

    return database.read(work)
