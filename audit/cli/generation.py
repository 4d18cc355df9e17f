"""Options about text that the model itself continues."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from audit.cli.frame import SEED
from audit.errors import BadUsageError

if TYPE_CHECKING:
    from audit.traces.recipe import Generation

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--generate", type=click.IntRange(min=1), metavar="N",
        help="The model continues each window of the text by up to N tokens of its own; the trace "
        "is then of NAME-generated.",
    ),
    click.option(
        "--temperature", type=click.FloatRange(min=0, min_open=True),
        help="Sample what is generated; else it is the greedy token.",
    ),
    click.option(
        "--top-k", type=click.IntRange(min=1), help="Sample among the K likeliest tokens."
    ),
    click.option(
        "--top-p", type=click.FloatRange(min=0, max=1, min_open=True),
        help="Sample among the likeliest tokens that together have this probability.",
    ),
    click.option("--seed", type=SEED, help="Of the sample; default 0."),
    click.option("--ignore-eos", is_flag=True, help="Generate on behind end-of-sequence tokens."),
    click.option(
        "--only-generated", is_flag=True,
        help="Count generated positions only; heads still read the text before them.",
    ),
)  # fmt: skip


def generation_options(command: _Command) -> _Command:
    """Give a command these options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def generation_of(options: dict[str, Any]) -> Generation | None:
    """What the options ask for; None without `--generate`.

    Raises:
        BadUsageError: an option that would be ignored.
    """
    from audit.traces.recipe import Generation

    sampling = ("temperature", "top_k", "top_p")
    sampled = any(options[name] is not None for name in sampling)
    if options["generate"] is None:
        given = [*sampling, "seed", "ignore_eos", "only_generated"]
        _refuse(given, options, "is about generated text", "add --generate N, or leave it out")
        return None
    if not sampled:
        _refuse(["seed"], options, "is of a sample", "add --temperature, or leave it out")
    return Generation(
        tokens=options["generate"],
        temperature=(options["temperature"] or 1.0) if sampled else None,
        top_k=options["top_k"],
        top_p=options["top_p"],
        seed=options["seed"] or 0,
        ignore_eos=options["ignore_eos"],
        only_generated=options["only_generated"],
    )


def _refuse(names: list[str], options: dict[str, Any], why: str, hint: str) -> None:
    for name in names:
        if options[name] is not None and options[name] is not False:
            raise BadUsageError(f"--{name.replace('_', '-')} {why}", hint=hint)
