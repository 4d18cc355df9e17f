"""TOML -> `Policy`. Unknown keys are errors with a suggestion; so is what can not have been meant.

A policy that is read wrongly passes what it should stop, so nothing is guessed and nothing ignored.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from audit.errors import BadPolicyError, NotFoundError
from audit.policy.changes import changes_between
from audit.policy.limits import Limit
from audit.policy.records import Policy
from audit.policy.requirements import Requirement
from audit.policy.suggest import did_you_mean
from audit.records import Record

_MAX_BYTES = 1 << 20
_TABLES: Mapping[str, type[Record]] = {"require": Requirement, "limit": Limit}
_NOT_TOML = {"sha256", "changes"}
R = TypeVar("R", bound=Record)


def load_policy(path: Path) -> Policy:
    """A policy from its file, with what changed since the policy that it names as `previous`.

    Raises:
        NotFoundError: there is no such file.
        BadPolicyError: it is not a policy, has a limit that can not fail, or `previous` is missing
            or none.
    """
    policy = parse_policy(read_text(path), path)
    for limit in policy.limits:
        if limit.is_hollow:
            raise BadPolicyError(
                f"the limit {limit.name!r} can not fail: {limit.measure} never leaves its bounds",
                hint="tighten it, or leave it out",
                where=path,
            )
    if policy.previous is None:
        return policy
    before = path.parent / policy.previous
    if before.exists() and before.samefile(path):
        raise BadPolicyError(
            "this policy names itself as its previous one",
            hint="name the file of the policy before it, or drop the key `previous`",
            where=path,
        )
    if not before.is_file():
        raise BadPolicyError(
            f"the previous policy {policy.previous} is not there",
            hint="put it beside this one, or drop the key `previous`",
            where=path,
        )
    changes = changes_between(parse_policy(read_text(before), before), policy)
    return policy.model_copy(update={"changes": changes})


def parse_policy(text: str, where: Path | str) -> Policy:
    """A policy from its text.

    Raises:
        BadPolicyError: no TOML, unknown keys or names, missing reasons, nonsense values.
    """
    content = parse_toml(text, where)
    known = keys_of(Policy) - _NOT_TOML
    check_keys(content, known, "the policy", where)
    for table, kind in _TABLES.items():
        for i, part in enumerate(tables_of(content, table, where), start=1):
            check_keys(part, keys_of(kind), label(table, part, i), where)
    for table, kind in _TABLES.items():
        content[table] = [
            validated(kind, part, label(table, part, i), where)
            for i, part in enumerate(content.get(table, []), start=1)
        ]
    content["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    return validated(Policy, content, "the policy", where)


def read_text(path: Path) -> str:
    """The text of a policy or waiver file.

    Raises:
        NotFoundError: there is no such file.
        BadPolicyError: it is no text, or far too long.
    """
    if not path.is_file():
        raise NotFoundError(
            f"there is no file {path.name}",
            hint="write a policy with: audit policy init -o policy.toml",
            where=path,
        )
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise BadPolicyError("this file is too long for a policy", where=path)
        return path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadPolicyError(
            f"{path.name} can not be read as text: {error}", hint="save it as UTF-8", where=path
        ) from error


def parse_toml(text: str, where: Path | str) -> dict[str, Any]:
    """The tables of a TOML text. Raises BadPolicyError with the place of the mistake."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also for endless integers
        raise BadPolicyError(
            f"this is not TOML: {error}", hint="see: audit policy init", where=where
        ) from error


def tables_of(content: Mapping[str, Any], name: str, where: Path | str) -> list[dict[str, Any]]:
    """The tables `[[name]]`. Raises BadPolicyError when they are written otherwise."""
    found = content.get(name, [])
    if isinstance(found, list) and all(isinstance(one, dict) for one in found):
        return found
    raise BadPolicyError(
        f"{name} is not a list of tables", hint=f"head each one with [[{name}]]", where=where
    )


def keys_of(kind: type[Record]) -> set[str]:
    """The keys that a record is written with."""
    return {field.alias or name for name, field in kind.model_fields.items()}


def check_keys(
    table: Mapping[str, Any], known: Collection[str], what: str, where: Path | str
) -> None:
    """Raises BadPolicyError for a key that nobody reads, with the one that was meant."""
    for key in table:
        if key not in known:
            raise BadPolicyError(
                f"{what} has the unknown key {key!r}",
                hint=did_you_mean(key, sorted(known)),
                where=where,
            )


def label(table: str, part: Mapping[str, Any], i: int) -> str:
    """How a sentence calls one table: by its name, else by its number."""
    name = part.get("name")
    return f"{table} {name!r}" if isinstance(name, str) else f"{table} number {i}"


def validated(kind: type[R], content: Mapping[str, Any], what: str, where: Path | str) -> R:
    """The record of a table. Raises BadPolicyError with the first thing that is wrong."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        sentence, hint = _told(key, first)
        raise BadPolicyError(f"{what}: {sentence}", hint=hint, where=where) from error


def _told(key: str, error: Any) -> tuple[str, str]:
    """What is wrong with one key, and what to write."""
    said = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "missing":
        why = {
            "reason": "say why the policy asks for this",
            "date": "the day it got into the policy, such as 2026-01-31",
        }
        return f"{key} is missing", why.get(key, "see: audit policy init")
    if error["type"] == "literal_error":
        given, known = error["input"], re.findall(r"'([^']*)'", error["ctx"]["expected"])
        hint = did_you_mean(str(given), known) if known else said
        return f"{key} = {given!r} is not possible", hint
    if error["type"] == "tuple_type":
        return f"{key} = {error['input']!r:.60} is not a list", f'write {key} = ["…"]'
    if error["type"] == "value_error":
        sentence, _, hint = said.partition(": ")
        prefix = "" if not key or sentence.startswith(key) else f"{key}: "
        return f"{prefix}{sentence}", hint
    return f"{key} = {error['input']!r:.60}: {said[:1].lower()}{said[1:]}", "see: audit policy init"
