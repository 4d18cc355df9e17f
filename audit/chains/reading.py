"""Reading what `audit chain -o` wrote. Imports no torch."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from audit.chains.consistent import contradiction
from audit.chains.records import CHAIN_SCHEMA, ChainResult
from audit.errors import NotFoundError, UnreadableError, first_line

_MOST_BYTES = 1 << 26


def read_chain(path: Path) -> ChainResult:
    """The document in a file.

    Raises:
        NotFoundError: there is no such file.
        UnreadableError: it is none of ours, of a newer version, or contradicts itself.
    """
    hint = "write it with `audit chain REF CAND --slots K -o FILE`"
    if not path.is_file():
        raise NotFoundError(f"there is no file {path}", hint=hint, where=path)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UnreadableError("this file is too long for chain figures", hint=hint, where=path)
        found = ChainResult.model_validate_json(path.read_bytes())
    except ValidationError as error:
        what = error.errors()[0]
        key = ".".join(str(part) for part in what["loc"])
        raise UnreadableError(
            f"this is no document of audit chain: {key or 'the whole'}: {what['msg']}",
            hint=hint,
            where=path,
        ) from error
    except OSError as error:
        raise UnreadableError(
            f"the chain figures can not be read: {first_line(error)}", hint=hint, where=path
        ) from error
    if found.schema_ > CHAIN_SCHEMA:
        raise UnreadableError(
            f"these chain figures have schema {found.schema_}, this version reads up to "
            f"{CHAIN_SCHEMA}",
            hint="install a newer head-audit",
            where=path,
        )
    if wrong := contradiction(found):
        raise UnreadableError(
            f"these chain figures contradict themselves: {wrong}", hint=hint, where=path
        )
    return found
