"""What all commands share: shared options as one object, errors, exit codes, JSON.

Exit codes: 0 done or passed, 1 gate failed, 2 usage or bad input, 3 undecided, 70 internal error,
130 interrupted. With `--json` stdout carries exactly one JSON document, whatever happens.
"""

from __future__ import annotations

import functools
import json
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from audit.errors import AuditError
from audit.ledger import ledger_folder

INTERNAL, INTERRUPTED = 70, 130


@dataclass(frozen=True, slots=True)
class Shared:
    """Options that mean the same in every command."""

    as_json: bool
    quiet: int
    no_color: bool
    ledger: Path

    @property
    def out(self) -> Console:
        """Console for results. A pipe gets lines as long as they need to be."""
        width = None if sys.stdout.isatty() else 160
        return Console(no_color=self.no_color, width=width, highlight=False, soft_wrap=False)

    @property
    def err(self) -> Console:
        """Console for progress and errors."""
        return Console(stderr=True, no_color=self.no_color, highlight=False)

    def print_json(self, value: Any) -> None:
        """The one document on stdout."""
        click.echo(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))


def shared_options(function: Callable[..., int | None]) -> Callable[..., None]:
    """Give a command the shared options as `shared`, and turn what it raises into an exit code.

    The command returns its exit code, None for 0.
    """

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
    @click.option("-q", "--quiet", count=True, help="Less on the terminal; -qq nothing.")
    @click.option("--no-color", is_flag=True, help="No colour, as with NO_COLOR set.")
    @click.option(
        "--ledger",
        type=click.Path(path_type=Path, file_okay=False),
        help="Folder of runs; else AUDIT_LEDGER, else ./audit-ledger.",
    )
    @functools.wraps(function)
    def command(
        *args: Any, as_json: bool, quiet: int, no_color: bool, ledger: Path | None, **options: Any
    ) -> None:
        shared = Shared(as_json, quiet, no_color, ledger_folder(ledger))
        sys.exit(guarded(lambda: function(*args, shared=shared, **options), as_json))

    return command


def guarded(work: Callable[[], int | None], as_json: bool) -> int:
    """Run `work` and return the exit code, printing what went wrong."""
    try:
        return work() or 0
    except AuditError as error:
        show_error(error.as_json(), as_json)
        return error.exit_code
    except KeyboardInterrupt:
        show_error(_plain("interrupted", "interrupted; nothing half-written was left"), as_json)
        return INTERRUPTED
    except MemoryError:
        show_error(_plain("memory", "not enough memory for this audit"), as_json)
        return INTERNAL
    except Exception as error:
        traceback.print_exc()
        message = f"this is a bug in head-audit: {type(error).__name__}: {error}"
        show_error(_plain("internal", message), as_json)
        return INTERNAL


def show_error(document: dict[str, dict[str, str]], as_json: bool) -> None:
    """An error as JSON on stdout, or as one sentence and a hint on stderr."""
    if as_json:
        click.echo(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False))
        return
    from audit.report.wording import clean

    error = document["error"]
    where = f" [{error['where']}]" if error["where"] else ""
    click.echo(f"error: {clean(error['message'])}{clean(where)}", err=True)
    if error["hint"]:
        click.echo(f"hint: {clean(error['hint'])}", err=True)


def _plain(kind: str, message: str) -> dict[str, dict[str, str]]:
    return {"error": {"kind": kind, "message": message, "hint": "", "where": ""}}
