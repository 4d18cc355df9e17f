"""A cut as people type it: `q4_0`, `prune:0.5:activation`, `trim:ranks.txt:32768`.

Read once at the edge into a `Cut`; what follows trusts it.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from audit.errors import BadUsageError, UnsupportedFormatError
from audit.files.paths import check_is_file
from audit.forge.quantize import ENCODABLE, is_made_by_llama_quantize, llama_quantize_command

Family = Literal["fidelity", "function", "vocabulary", "noise"]
Kind = Literal["quantize", "fp8", "prune", "lowrank", "noise", "trim"]

_FAMILIES: dict[Kind, Family] = {
    "quantize": "fidelity",
    "fp8": "fidelity",
    "prune": "function",
    "lowrank": "function",
    "trim": "vocabulary",
    "noise": "noise",
}
EXAMPLES = (
    "q8_0", "q4_0", "nvfp4", "fp8", "prune:0.5", "prune:0.5:activation", "lowrank:0.25",
    "lowrank:0.25:calibrated", "noise:0.15", "trim:ranks.txt:32768",
)  # fmt: skip
_NOISE_MAX = 2.0
"""Twice the weights themselves: nothing of the head is left by then."""


@dataclass(frozen=True, slots=True)
class Cut:
    """One way to make a candidate out of a reference."""

    kind: Kind
    encoding: str | None = None
    """Of `quantize`; of `trim` where the kept rows are quantized too."""
    keep: float | None = None
    """Of `prune`, the fraction of channels; of `lowrank`, the fraction of weights."""
    calibrated: bool = False
    """Whether it is fitted to states: pruning by activation, low rank by whitening."""
    strength: float | None = None
    """Of `noise`, relative to each matrix's rms."""
    card: Path | None = None
    """Of `trim`, the ranks card."""
    count: int | None = None
    """Of `trim`, how many of its ids; None for all."""
    ids: tuple[int, ...] | None = None
    """Of `trim`, the ids themselves in the order of rank, where not simply the card's first."""
    consumer: str | None = None
    """Of `trim`, the engine whose conventions the file follows; a name of `trim.CONSUMERS`."""

    @property
    def family(self) -> Family:
        """What kind of damage it does."""
        return _FAMILIES[self.kind]

    @property
    def title(self) -> str:
        """For people."""
        return _TITLES[self.kind](self)

    def __str__(self) -> str:
        """The text that parses to this cut."""
        parts: list[str] = [self.kind]
        if self.kind == "quantize":
            return str(self.encoding).lower()
        if self.kind == "trim":
            parts += [str(self.card)] + ([str(self.count)] if self.count else [])
        numbers = [value for value in (self.keep, self.strength) if value is not None]
        parts += [str(value) for value in numbers]
        if self.calibrated:
            parts.append("activation" if self.kind == "prune" else "calibrated")
        return ":".join(parts)


def parse_cut(text: str) -> Cut:
    """A cut from its text.

    Raises:
        BadUsageError: no such cut, or a number out of range.
        UnsupportedFormatError: a type that llama-quantize makes; the hint is the command.
    """
    word, *rest = text.strip().split(":")
    word = word.lower().replace("-", "_")
    reader = _READERS.get(word)
    if reader is not None:
        return reader(rest, text)
    encoding = word.upper()
    if is_made_by_llama_quantize(encoding):
        raise UnsupportedFormatError(
            f"{encoding} is made by llama.cpp's own tool, not here",
            hint=llama_quantize_command(encoding),
        )
    if encoding not in ENCODABLE:
        raise _unknown(word, text)
    _no_more(rest, text, word)
    return Cut("quantize", encoding=encoding)


def check_card(cut: Cut) -> None:
    """Raise AuditError where the ranks card of a trim is no file."""
    if cut.card is not None:
        check_is_file(cut.card)


def _unknown(word: str, text: str) -> BadUsageError:
    near = difflib.get_close_matches(word, [*_READERS, *(e.lower() for e in ENCODABLE)], n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"for instance {', '.join(EXAMPLES)}"
    return BadUsageError(f"there is no cut {text!r}", hint=hint)


def _read_fp8(rest: list[str], text: str) -> Cut:
    _no_more(rest, text, "fp8")
    return Cut("fp8")


def _read_prune(rest: list[str], text: str) -> Cut:
    keep, way = _fraction_and_way(rest, text, "prune", ("magnitude", "activation"))
    return Cut("prune", keep=keep, calibrated=way == "activation")


def _read_lowrank(rest: list[str], text: str) -> Cut:
    keep, way = _fraction_and_way(rest, text, "lowrank", ("plain", "calibrated"))
    return Cut("lowrank", keep=keep, calibrated=way == "calibrated")


def _read_noise(rest: list[str], text: str) -> Cut:
    if len(rest) != 1:
        raise BadUsageError(f"{text!r} must say how strong", hint="for instance noise:0.15")
    strength = _number(rest[0], text)
    if not 0.0 < strength <= _NOISE_MAX:
        raise BadUsageError(
            f"noise of strength {rest[0]} in {text!r}",
            hint=f"it is relative to the weights' rms: over 0, at most {_NOISE_MAX:g}",
        )
    return Cut("noise", strength=strength)


def _read_trim(rest: list[str], text: str) -> Cut:
    count = int(rest.pop()) if len(rest) > 1 and rest[-1].isdigit() else None
    card = ":".join(rest)
    if not card or count == 0:
        what = "keeps no rows" if card else "names no ranks card"
        raise BadUsageError(f"{text!r} {what}", hint="for instance trim:ranks.txt:32768")
    return Cut("trim", card=Path(card), count=count)


_READERS: dict[str, Callable[[list[str], str], Cut]] = {
    "fp8": _read_fp8,
    "prune": _read_prune,
    "lowrank": _read_lowrank,
    "noise": _read_noise,
    "trim": _read_trim,
}


def _fraction_and_way(
    rest: list[str], text: str, word: str, ways: tuple[str, str]
) -> tuple[float, str]:
    """The fraction kept, below 1, and which of two ways; the first is the default."""
    if not rest or len(rest) > 2:
        raise BadUsageError(
            f"{text!r} must say how much is kept",
            hint=f"for instance {word}:0.5 or {word}:0.5:{ways[1]}",
        )
    keep = _number(rest[0], text)
    if not 0.0 < keep < 1.0:
        raise BadUsageError(
            f"{word} keeps {rest[0]} in {text!r}", hint="a fraction over 0 and under 1: 0.5 is half"
        )
    way = rest[1] if len(rest) == 2 else ways[0]
    if way not in ways:
        raise BadUsageError(f"{word} {way!r} in {text!r}", hint=f"{ways[0]} or {ways[1]}")
    return keep, way


def _number(word: str, text: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadUsageError(f"{word!r} in {text!r} is not a number", hint="write it as 0.5")
    return value


def _no_more(rest: list[str], text: str, word: str) -> None:
    if rest:
        raise BadUsageError(f"{text!r}: {word} takes nothing after a colon", hint=f"write {word}")


def _percent(fraction: float | None) -> str:
    return f"{100 * (fraction or 0.0):g} %"


def _trim_title(cut: Cut) -> str:
    card = cut.card.name if cut.card else ""
    rows = f"{cut.count:,} rows by {card}" if cut.count else f"the rows of {card}"
    return f"{rows}, {cut.encoding}" if cut.encoding else rows


_TITLES: dict[Kind, Callable[[Cut], str]] = {
    "quantize": lambda cut: str(cut.encoding),
    "fp8": lambda cut: "FP8 (E4M3), a scale per row",
    "prune": lambda cut: (
        f"{_percent(cut.keep)} of MLP channels kept, "
        + ("by activation" if cut.calibrated else "by magnitude")
    ),
    "lowrank": lambda cut: (
        f"low rank, {_percent(cut.keep)} of the weights, "
        + ("calibrated" if cut.calibrated else "plain")
    ),
    "noise": lambda cut: f"noise of {_percent(cut.strength)}",
    "trim": _trim_title,
}
