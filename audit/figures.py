"""Documents of figures that a command wrote with `-o` and another one reads: chains and costs.

Their files come from anywhere, so size, shape, version and consistency are checked before use.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from audit.errors import NotFoundError, UnreadableError, first_line, first_wrong
from audit.records import Record

_MOST_BYTES = 1 << 26
D = TypeVar("D", bound=Record)


def read_figures(
    path: Path,
    kind: type[D],
    what: str,
    hint: str,
    schema: Callable[[D], int],
    newest: int,
    contradiction: Callable[[D], Any],
) -> D:
    """The document in a file.

    Args:
        kind: its record.
        what: its command, such as chain.
        hint: how it is made.
        schema: the version that a document bears.
        newest: the newest version that can be read.
        contradiction: what of a document contradicts the rest of it, if anything does.

    Raises:
        NotFoundError: there is no such file.
        UnreadableError: it is none of ours, of a newer version, or contradicts itself.
    """
    if not path.is_file():
        raise NotFoundError(f"there is no file {path}", hint=hint, where=path)

    def refused(why: str, hint: str = hint) -> UnreadableError:
        return UnreadableError(why, hint=hint, where=path)

    try:
        if path.stat().st_size > _MOST_BYTES:
            raise refused(f"this file is too long for {what} figures")
        found = kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise refused(
            f"this is no document of audit {what}: {first_wrong(error, 'the whole')}"
        ) from error
    except OSError as error:
        raise refused(f"the {what} figures can not be read: {first_line(error)}") from error
    if (version := schema(found)) > newest:
        raise refused(
            f"these {what} figures have schema {version}, this version reads up to {newest}",
            "install a newer head-audit",
        )
    if wrong := contradiction(found):
        raise refused(f"these {what} figures contradict themselves: {wrong}")
    return found
