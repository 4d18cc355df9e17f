"""Can a file be written there? Asked before the work whose result it is to hold.

Permissions say little (`/proc` grants all and takes nothing, names may be too long), so it is
tried. A report or a document of figures takes the place of an earlier one only, never of anything
else, and never of a ledger's own files; what heads and traces may replace is told by their own
commands. Devices and pipes are written into.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path

from audit.atomic import atomic_path
from audit.errors import BadUsageError

_BEGINNING = 1 << 12
_OURS = re.compile(
    rb"\A(### Draft head audit|## What compression cost|### What \\d+ known cuts |"
    rb'<\?xml [^>]*>\s*<testsuites name="audit"|'
    rb'\s*\{\s*"(schema|schema_version|\$schema)":)|<title>(Audit of|What \\d+ known cuts) '
)
"""How reports, run documents and documents of figures begin."""
_LEDGER, _KEPT = "ledger-id", ("runs", "calibrations", "policies")


def unwritable(output: Path) -> str:
    """Why no file can be made at `output`; empty when one can. Leaves nothing behind."""
    made: list[Path] = []
    try:
        if output.is_dir():
            return "this is a folder"
        if output.exists() and not output.is_file():
            return ""  # a device or a pipe
        for folder in reversed(output.absolute().parents):
            if not folder.exists():
                folder.mkdir()
                made.append(folder)
            elif not folder.is_dir():
                return f"{folder} is not a folder"
        _try(output)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        return getattr(error, "strerror", None) or str(error)
    finally:
        for folder in reversed(made):
            with contextlib.suppress(OSError):  # somebody has put a file there meanwhile
                folder.rmdir()
    return ""


def check_output(output: Path, what: str) -> None:
    """Raise BadUsageError unless `what`, such as a report, can be written at `output`."""
    if why := unwritable(output) or _holds_something_else(output):
        raise BadUsageError(
            f"the {what} can not be written: {why}", hint="choose another place", where=output
        )


def write_output(output: Path, text: str, what: str) -> None:
    """Write a text, whole or not at all; see `check_output`.

    Raises:
        BadUsageError: there can be no file at this place, or something else is there.
    """
    check_output(output, what)
    try:
        if output.exists() and not output.is_file():
            output.write_text(text, encoding="utf-8")
            return
        with atomic_path(output) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadUsageError(
            f"the {what} can not be written: {error.strerror}",
            hint="choose another place",
            where=output,
        ) from error


def _holds_something_else(output: Path) -> str:
    """What is there already and must stay; empty for nothing and for an earlier report."""
    place = output.absolute().resolve()
    for root in place.parents:
        if (root / _LEDGER).is_file() and place.relative_to(root).parts[0] in _KEPT:
            return "this is inside a ledger, whose files are never written over"
    if not output.is_file():
        return ""
    with output.open("rb") as stream:
        beginning = stream.read(_BEGINNING)
    if not beginning or _OURS.search(beginning):
        return ""
    return "a file is there already that is no report of this program"


def _try(output: Path) -> None:
    """Make and remove a file beside `output`, and `output` itself where nothing is there yet."""
    handle, name = tempfile.mkstemp(dir=output.absolute().parent, prefix=".trying-")
    os.close(handle)
    Path(name).unlink()
    if not output.exists():
        os.close(os.open(output, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        output.unlink()
