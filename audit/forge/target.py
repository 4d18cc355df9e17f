"""Where a forged head may be written: not over anything else, and never over what it is made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from audit.errors import BadUsageError
from audit.files.made import is_forged
from audit.forge.cuts import Cut
from audit.forge.projection import suffix_for
from audit.outputs import unwritable


def check_target(out: Path, inputs: Iterable[Path], *, force: bool = False) -> None:
    """Refuse a place that can not be written or holds something else.

    Args:
        inputs: files that the cut is made from or with.
        force: whatever else is there may be replaced.

    Raises:
        BadUsageError: no file can be made there, or one is there that neither `audit forge` nor
            `audit trim` made.
    """
    if why := unwritable(out):
        raise _refused(out, why, "choose another place with -o")
    if not out.exists():
        return
    if any(path.exists() and out.samefile(path) for path in inputs):
        raise _refused(out, "this is what the cut is made from", "choose another name with -o")
    if not out.is_file():
        raise _refused(out, "this is not a regular file", "choose another place with -o")
    if not force and not is_forged(out):
        raise _refused(
            out,
            "this file is there already and the audit did not make it",
            "choose another name with -o, or replace it with --force",
        )


def name_files(cuts: Sequence[Cut], output: Path, head: str, kind: str | None) -> dict[Path, Cut]:
    """Which file each cut goes into: `output` itself, or for several cuts one each in it.

    Args:
        head: its name, such as exit:16, with which the files' names begin.
        kind: the files' format; None for the one that suits each cut.

    Raises:
        BadUsageError: two cuts would have one name.
    """
    if len(cuts) == 1:
        return {output: cuts[0]}
    found: dict[Path, Cut] = {}
    for cut in cuts:
        text = f"trim-{cut.card.stem}-{cut.count or 'all'}" if cut.card else str(cut)
        suffix = f".{kind}" if kind else suffix_for(cut)
        path = output / (re.sub(r"[^\w.-]+", "-", f"{head}-{text}") + suffix)
        if path in found:
            raise BadUsageError(
                f"{found[path]} and {cut} would both be written to {path.name}",
                hint="forge them one by one, each with a name of its own",
                where=output,
            )
        found[path] = cut
    return found


def _refused(out: Path, why: str, hint: str) -> BadUsageError:
    return BadUsageError(f"the head can not be written: {why}", hint=hint, where=out)
