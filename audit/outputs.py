"""Can a file be written there? Asked before the work whose result it is to hold.

Permissions say little (`/proc` grants all and takes nothing, names may be too long), so it is
tried. What a file of that name may hold already is the business of each command.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from audit.errors import BadUsageError


def unwritable(output: Path) -> str:
    """Why no file can be made at `output`; empty when one can. Leaves nothing behind."""
    made: list[Path] = []
    try:
        if output.is_dir():
            return "this is a folder"
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
    if why := unwritable(output):
        raise BadUsageError(
            f"the {what} can not be written: {why}", hint="choose another place", where=output
        )


def _try(output: Path) -> None:
    """Make and remove a file beside `output`, and `output` itself where nothing is there yet."""
    handle, name = tempfile.mkstemp(dir=output.absolute().parent, prefix=".trying-")
    os.close(handle)
    Path(name).unlink()
    if not output.exists():
        os.close(os.open(output, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        output.unlink()
