"""Records as text and back: run documents and their ids, and the seals of everything appended.

A run is named by the hash of its own content, a review, waiver or judgement by the hash of its
other fields; so whatever was changed later no longer fits its name. Touches no file.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import ValidationError

from audit.errors import BadUsageError, NotFoundError, UnreadableError, first_line, first_wrong
from audit.provenance import json_text, sha256_json, visible
from audit.records import SCHEMA_VERSION, Candidate, GateResult, Record, Review, Run, Waiver

ID_LENGTH = 16
"""Hex digits of the SHA-256 that name a run: 64 bits, ample for any ledger."""


class Judgement(Record):
    """One answer of the gate on one candidate of a run."""

    id: str
    """Hash of the other fields."""
    run: str
    head_sha256: str
    gate: GateResult


Entry = TypeVar("Entry", Review, Waiver, Judgement)


def content_id(run: Run) -> str:
    """The id that a run's content gives: hash of the document with `run` empty."""
    blank = run.model_copy(update={"run": ""})
    return sha256_json(_content(blank))[:ID_LENGTH]


def run_json(run: Run) -> str:
    """The run as the one JSON document that `--json` prints and the ledger keeps."""
    return json_text(run.model_dump(by_alias=True, mode="json"))


def parse_run(content: bytes, where: str) -> Run:
    """A run document from its bytes.

    Raises:
        UnreadableError: it is no run, or of a newer schema.
    """
    try:
        document = json.loads(content.decode())
        version = document.get("schema") if isinstance(document, dict) else None
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise UnreadableError(
                f"this run has schema {version}, this version reads up to {SCHEMA_VERSION}",
                hint="install a newer head-audit",
                where=where,
            )
        return Run.model_validate(document)
    except (ValueError, RecursionError) as error:
        why = first_line(error)
        if isinstance(error, ValidationError):
            why = first_wrong(error, "the whole")
        raise UnreadableError(
            f"this is not a run document: {why}",
            hint="restore the file from a copy, or run the audit again",
            where=where,
        ) from error


def find_candidate(run: Run, wanted: str | None) -> Candidate:
    """The candidate of this name, or beginning of its hash; the only one when none is named.

    Raises:
        BadUsageError: it is not told which one is meant.
        NotFoundError: the run has no such candidate.
    """
    names = ", ".join(one.head.name for one in run.candidates)
    if wanted is None:
        if len(run.candidates) == 1:
            return run.candidates[0]
        raise BadUsageError(
            f"run {run.run} has {len(run.candidates)} candidates: {names}",
            hint="say which one with --candidate NAME",
        )
    named = [one for one in run.candidates if one.head.name == wanted]
    hashed = [one for one in run.candidates if wanted and one.head.sha256.startswith(wanted)]
    found = named or hashed
    if len({one.head.sha256 for one in found}) == 1:
        return found[0]
    raise NotFoundError(
        f"run {run.run} has {'no' if not found else 'more than one'} candidate {wanted!r}",
        hint=f"it has: {names or 'none at all'}",
    )


def seal(entry: Entry) -> Entry:
    """The entry with its id filled in."""
    return entry.model_copy(update={"id": entry_id(entry)})


def entry_id(entry: Review | Waiver | Judgement) -> str:
    """The id that an entry's other fields give; see `_content`."""
    return sha256_json(_content(entry, exclude={"id"}))


def _content(record: Record, exclude: set[str] | None = None) -> Any:
    """What a record's hash is over: fields that say more than their default.

    So a field that a later version adds leaves the names of older records as they are.
    """
    return record.model_dump(by_alias=True, mode="json", exclude=exclude, exclude_defaults=True)


def storable(text: str) -> str:
    """Text that every database takes: names come from strangers' files."""
    return visible(text).replace("\0", "\\u0000")


def changed(what: str, why: str, where: str) -> UnreadableError:
    """The error for something immutable that is no longer what was written."""
    return UnreadableError(
        f"this {what} was changed after it was written: {why}",
        hint=f"a {what} is immutable; restore it from a copy, or make a new one",
        where=where,
    )
