"""`audit`: the group of commands. Each command's module is imported only when it is used."""

from __future__ import annotations

import io
import sys
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Any

import click

from audit import __version__
from audit.cli.frame import (
    INTERRUPTED,
    Ended,
    ending_cleanly,
    guarded,
    refuse_output,
    show_error,
)

_COMMANDS = {
    "compare": "compare compressed heads with their reference: the main job",
    "inspect": "what head is in a file, and what the preflight says of it",
    "demo": "all of it on the sample inside the package",
    "capture": "run a model over text and record a trace",
    "import": "turn another tool's hidden-state dump into a trace",
    "study": "what known cuts of a reference cost, and which rules hold on it",
    "forge": "make a candidate: quantize, prune, low rank, noise or trim",
    "rank": "a ranked vocabulary from what the model emits, and `rank check` for any list",
    "trim": "a head under a ranked vocabulary, or several sizes of it in one pass",
    "chain": "recursive drafting: tokens per round, slot by slot, checked by the verifier",
    "cost": "bytes of a draft step, and what a head is worth: a model, never a measured speed",
    "lossless": "greedy text with a head and without: must be the same, token for token",
    "gate": "hold a recorded run against a policy",
    "policy": "write, check and compare the policies of a gate",
    "runs": "the ledger's runs, the newest first",
    "show": "one run of the ledger",
    "report": "a run as Markdown, HTML, JSON, JUnit XML or a model-card section",
    "diff": "two recorded candidates held against each other",
    "review": "sign a decision on a run, or read what was decided",
    "waive": "let one head pass one limit until a day",
    "waivers": "which heads may pass which limits",
    "ledger": "the ledger itself: what is in it, and is it whole",
    "corpora": "the bundled corpora",
    "dashboard": "open the app in which people review heads",
}

_EPILOG = """\b
Exit codes: 0 done or passed, 1 gate failed, 2 usage or bad input,
3 undecided, 70 internal error, 130 interrupted (129 and 143 by SIGHUP and SIGTERM),
141 output closed early.

\b
Example:
  audit compare ref.safetensors cand.gguf --trace code.trace.safetensors
"""


class _Lazy(click.Group):
    """Finds a command's module by its name, so that `audit --help` loads no torch."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        name = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        command = getattr(import_module(f"audit.cli.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if len(args) > 1 and args[0] not in _COMMANDS and Path(args[0]).exists():
            ctx.fail(f"a command is missing; did you mean: audit compare {' '.join(args[:2])}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(
    cls=_Lazy,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="audit")
def group() -> None:
    """Find out what compressing a draft head cost, before it is deployed."""


def main(args: list[str] | None = None) -> None:
    """Entry point."""
    try:
        with ending_cleanly():
            sys.exit(_main(sys.argv[1:] if args is None else args))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Ended as ended:
        sys.exit(ended.exit_code)


def _main(given: list[str]) -> int:
    """The exit code. Usage errors obey `--json` too; no command at all is a call for help."""
    stdout = sys.stdout
    if stdout is None:  # so Python says that it was closed
        return refuse_output("stdout is closed")
    for stream in (stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    as_json = "--json" in given

    def run() -> int:
        try:
            result: Any = group.main(given or ["--help"], standalone_mode=False)
        except click.exceptions.Abort:
            raise KeyboardInterrupt from None
        except click.ClickException as error:
            _usage(error, as_json)
            return error.exit_code
        except SystemExit as stop:
            # When nobody reads its help, click wraps the streams and exits with 1.
            if sys.stdout is not stdout:
                raise BrokenPipeError from stop
            raise
        return result if isinstance(result, int) else 0

    return guarded(run, as_json)


def _usage(error: click.ClickException, as_json: bool) -> None:
    ctx = getattr(error, "ctx", None)
    hint = f"see: {ctx.command_path} --help" if ctx else "see: audit --help"
    fields = {"kind": "usage", "message": error.format_message(), "hint": hint, "where": ""}
    show_error({"error": fields}, as_json)
