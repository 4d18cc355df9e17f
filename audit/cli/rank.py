"""`audit rank`: a ranked vocabulary from what a model emits; `rank check`: any list judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from audit.cli.frame import RESAMPLES, SEED, Shared, default_group, shared_options

_FILE = click.Path(path_type=Path)
_TRACES = click.option(
    "--trace", "traces", type=_FILE, multiple=True, required=True,
    help="Trace file, or folder of traces; may be repeated.",
)  # fmt: skip

_EPILOG = """\b
Examples:
  audit rank --trace traces/ --model model/ --rows 8192 -o ranks.txt
  audit rank check ranks.txt --trace traces/ --model model/
"""
_MAKE_EPILOG = """\b
Every corpus counts once, however long its trace is; a weight multiplies that. Flavours:
  agentic  code and tool transcripts 3, chat 1, everything else 1/4
  prose    prose and chat 3, code and tool transcripts 1/4
  mixed    every corpus 1
Code is told by the trace's language (code:...) or by the corpus's name (code, tool, agent).

\b
Examples:
  audit rank make --trace traces/ --model model/ -o ranks.txt
  audit rank make --trace traces/ --model model.gguf --rows 32768 --flavour agentic -o ranks.txt
  audit rank make --trace traces/ --model model/ --weight german=2.5 -o ranks.txt
"""
_CHECK_EPILOG = """\b
CARD: one id per line (.txt), .json, .npy, .safetensors, or a .pt list (FR-Spec, SGLang).

\b
Examples:
  audit rank check ranks.txt --trace traces/ --model model/
  audit rank check freq_32768.pt --trace traces/ --json
"""


@click.group(cls=default_group("make"), epilog=_EPILOG)
def rank() -> None:
    """Make a ranked vocabulary (without a command), or check any list of ids."""


@rank.command(epilog=_MAKE_EPILOG)
@_TRACES
@click.option(
    "--model", type=_FILE, required=True,
    help="Model folder or GGUF: its stop, special and byte tokens are always kept.",
)  # fmt: skip
@click.option("-o", "--output", type=_FILE, required=True, help="The card, a .txt file.")
@click.option("--rows", type=int, help="How many ids; else all that there are.")
@click.option(
    "--flavour", type=click.Choice(["agentic", "prose", "mixed"]), default="mixed",
    show_default=True, help="Weights by kind of corpus; see below.",
)  # fmt: skip
@click.option(
    "--weight", "weights", multiple=True, metavar="NAME=W",
    help="Weight of one corpus, before the flavour's; may be repeated.",
)  # fmt: skip
@click.option("--pad", is_flag=True, help="Fill up with ids never seen, and mark them in the JSON.")
@shared_options
def make(shared: Shared, **options: Any) -> None:
    """Rank the tokens that a model emits on its traces, most frequent first.

    Beside the card lies CARD.json: counts, shares per corpus, and how many ids were really seen.
    """
    from audit.report.trims import show_made
    from audit.trims.commands import make_card

    made = make_card(
        traces=options["traces"], model=options["model"], out=options["output"],
        rows=options["rows"], flavour=options["flavour"], weights=options["weights"],
        pad=options["pad"],
    )  # fmt: skip
    if shared.as_json:
        shared.print_json(made.model_dump(mode="json", exclude={"counts"}))
    elif shared.quiet < 2:
        show_made(made, options["output"], shared.out, quiet=bool(shared.quiet))


@rank.command(epilog=_CHECK_EPILOG)
@click.argument("card", type=_FILE)
@_TRACES
@click.option(
    "--model", type=_FILE, help="Model folder or GGUF, for stop, special and byte tokens."
)
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option(
    "--resamples", type=RESAMPLES, default=4000, show_default=True,
    help="Bootstrap resamples of the sequences.",
)  # fmt: skip
@shared_options
def check(shared: Shared, card: Path, **options: Any) -> None:
    """Judge a list of ids by what the model emits: good, padded, foreign or poor.

    Coverage is the share of the model's tokens that the list holds: no draft with these rows can
    be accepted more often.
    """
    from audit.report.trims import show_check
    from audit.stats import Resampling
    from audit.trims.commands import check_list

    how = Resampling(resamples=options["resamples"], seed=options["seed"])
    found = check_list(card, options["traces"], options["model"], how)
    if shared.as_json:
        lists = {"facts": {"counts", "padded"}}
        shared.print_json(found.model_dump(mode="json", by_alias=True, exclude=lists))
    elif shared.quiet < 2:
        show_check(found, shared.out, quiet=bool(shared.quiet))
