"""What all commands share: shared options as one object, errors, exit codes, JSON.

Exit codes: 0 done or passed, 1 gate failed, 2 usage or bad input, 3 undecided, 70 internal error,
130 interrupted, 129 and 143 ended by SIGHUP and SIGTERM, 141 whoever read the output has left
(128 + the signal, as a shell counts; never 1, which means a failed gate). With `--json` stdout
carries exactly one JSON document, whatever happens. Imports at the top stay light: what is slow is
imported under `guarded`.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import math
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from audit.errors import AuditError, BadUsageError

if TYPE_CHECKING:
    from rich.console import Console

    from audit.ledger import Ledger

_SIGNALS = ("SIGTERM", "SIGHUP")
USAGE, INTERNAL, INTERRUPTED, NO_READER = 2, 70, 130, 141


class _Above(click.FloatRange):
    """A number within bounds, and one at all: click takes NaN for a float in any range."""

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no number that anything could be divided by.", param, ctx)
        return number


ABOVE = _Above(min=1e-9, max=1e9)
"""Milliseconds, GB/s or TFLOPS: so wide that no device is left out, so narrow that products and
quotients of them stay numbers."""
SEED = click.IntRange(0, 2**63 - 1)
RESAMPLES = click.IntRange(100, 1_000_000)
_Command = TypeVar("_Command", bound=Callable[..., Any])
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


class Ended(BaseException):
    """A signal asked the process to end; raised so that nothing half-written stays."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number
        """As a shell counts it."""


@contextlib.contextmanager
def ending_cleanly() -> Iterator[None]:
    """Raise `Ended` on SIGTERM and SIGHUP where they would kill; as Ctrl-C raises."""

    def end(number: int, frame: object) -> NoReturn:
        raise Ended(number)

    before = {}
    with contextlib.suppress(ValueError):  # only the main thread may set handlers
        for name in _SIGNALS:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True)
class Shared:
    """Options that mean the same in every command."""

    as_json: bool
    quiet: int
    no_color: bool
    ledger_at: str | None
    """What --ledger says."""

    def open_ledger(self) -> Ledger:
        """The ledger that --ledger, AUDIT_LEDGER and AUDIT_DB_URL name."""
        from audit.ledger import open_ledger

        return open_ledger(self.ledger_at)

    @property
    def out(self) -> Console:
        """Console for results. A pipe gets lines as long as they need to be."""
        from audit.report.terminal import console

        return console(no_color=self.no_color, width=None if sys.stdout.isatty() else 160)

    @property
    def err(self) -> Console:
        """Console for progress and errors."""
        from audit.report.terminal import console

        return console(no_color=self.no_color, stderr=True)

    def print_json(self, value: Any) -> None:
        """The one document on stdout."""
        from audit.provenance import json_text

        click.echo(json_text(value))


def trace_option(help_text: str) -> Callable[[_Command], _Command]:
    """`--trace`, repeatable, as `traces`; `--traces` is the same."""
    kind = click.Path(path_type=Path)
    return click.option("--trace", "--traces", "traces", type=kind, multiple=True, help=help_text)


def shared_options(function: Callable[..., int | None]) -> Callable[..., None]:
    """Give a command the shared options as `shared`, and turn what it raises into an exit code.

    The command returns its exit code, None for 0.
    """

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
    @click.option("-q", "--quiet", count=True, help="Less on the terminal; -qq nothing.")
    @click.option("--no-color", is_flag=True, help="No colour, as with NO_COLOR set.")
    @click.option(
        "--ledger",
        "ledger_at",
        metavar="PLACE",
        help="Folder or URL of runs; else AUDIT_LEDGER, else ./audit-ledger.",
    )
    @functools.wraps(function)
    def command(
        *args: Any,
        as_json: bool,
        quiet: int,
        no_color: bool,
        ledger_at: str | None,
        **options: Any,
    ) -> None:
        shared = Shared(as_json, quiet, no_color, ledger_at)
        sys.exit(guarded(lambda: function(*args, shared=shared, **options), as_json))

    return command


def default_group(command: str) -> type[click.Group]:
    """A class of groups in which options without a command belong to `command`."""

    class Group(click.Group):
        def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
            if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
                args = [command, *args]
            return super().parse_args(ctx, args)

    return Group


def guarded(work: Callable[[], int | None], as_json: bool) -> int:
    """Run `work` and return the exit code, printing what went wrong."""
    try:
        code = work() or 0
        sys.stdout.flush()
        return code
    except AuditError as error:
        show_error(error.as_json(), as_json)
        return error.exit_code
    except KeyboardInterrupt:
        show_error(_plain("interrupted", "interrupted; nothing half-written was left"), as_json)
        return INTERRUPTED
    except Ended as ended:
        show_error(
            _plain("interrupted", "ended by a signal; nothing half-written was left"), as_json
        )
        return ended.exit_code
    except MemoryError:
        show_error(_plain("memory", "not enough memory for this audit"), as_json)
        return INTERNAL
    except BrokenPipeError:
        _leave_stdout()
        return NO_READER
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
            return refuse_output(error.strerror, as_json)
        traceback.print_exc()
        message = f"this is a bug in head-audit: {type(error).__name__}: {error}"
        show_error(_plain("internal", message), as_json)
        return INTERNAL


def refuse_output(why: str | None, as_json: bool = False) -> int:
    """Say that there is nowhere to write, on stderr if that is stdout; return the exit code."""
    said = _plain("usage", f"the output cannot be written: {why}")
    try:
        if as_json:
            sys.stdout.flush()
        show_error(said, as_json)
    except OSError:
        show_error(said, as_json=False)
    _leave_stdout()
    return USAGE


def _leave_stdout() -> None:
    """Let what is still buffered go nowhere, or Python would fail on it once more at its end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def check_device(device: str) -> None:
    """Raises BadUsageError unless torch can keep values on this device."""
    import torch

    try:
        # `meta` makes tensors too, but they hold nothing.
        torch.ones(1, device=device).tolist()
    except (RuntimeError, AssertionError) as error:
        why = str(error).partition("\n")[0] or type(error).__name__
        if why.startswith("Expected one of"):  # and then all that torch has ever heard of
            why = "torch knows no such device"
        raise BadUsageError(
            f"device {device!r} can not be used: {why}", hint="--device cpu works everywhere"
        ) from error


def show_error(document: dict[str, dict[str, str]], as_json: bool) -> None:
    """An error as JSON on stdout, or as one sentence and a hint on stderr."""
    if as_json:
        from audit.provenance import json_text

        click.echo(json_text(document))
        return
    from audit.report.wording import clean

    error = document["error"]
    where = f" [{error['where']}]" if error["where"] else ""
    click.echo(f"error: {clean(error['message'])}{clean(where)}", err=True)
    if error["hint"]:
        click.echo(f"hint: {clean(error['hint'])}", err=True)


def _plain(kind: str, message: str) -> dict[str, dict[str, str]]:
    return {"error": {"kind": kind, "message": message, "hint": "", "where": ""}}
