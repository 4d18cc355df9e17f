"""How much each corpus counts when ranks are made.

A weight multiplies a corpus's *share*: every corpus counts once, however long its trace is, and
weight 2.5 counts it two and a half times. A flavour is a set of weights by corpus and register.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from audit.errors import BadUsageError
from audit.records import TraceInfo

FLAVOURS = {
    "agentic": "code and tool transcripts 3, chat 1, everything else 1/4",
    "prose": "prose and chat 3, code and tool transcripts 1/4",
    "mixed": "every corpus 1",
}
_TOOLS = ("agent", "tool", "code")
_CHAT = ("chat",)


def weights_of(
    infos: Sequence[TraceInfo], flavour: str, given: Sequence[str]
) -> dict[str, Fraction]:
    """Weight by corpus; `given` texts of the form NAME=2.5 go before the flavour.

    Raises:
        BadUsageError: a text of another form, a corpus that no trace is of, a negative or endless
            number, or no weight above zero.
    """
    named = dict(map(_parse, given))
    corpora = [info.corpus for info in infos]
    if unknown := [name for name in named if name not in corpora]:
        raise BadUsageError(
            f"--weight names {unknown[0]!r}, and no trace is of it",
            hint=f"the corpora are {', '.join(corpora)}",
        )
    found = {info.corpus: _flavoured(info, flavour) for info in infos} | named
    if not any(found.values()):
        raise BadUsageError("every corpus has weight 0", hint="give one of them a weight")
    return found


def _parse(text: str) -> tuple[str, Fraction]:
    name, equals, number = text.rpartition("=")
    try:
        weight = Fraction(number)
    except (ValueError, ZeroDivisionError):
        weight = Fraction(-1)
    if not equals or not name or weight < 0:
        raise BadUsageError(
            f"--weight {text!r} is not a corpus and a weight", hint="--weight python-code=2.5"
        )
    return name, weight


def _flavoured(info: TraceInfo, flavour: str) -> Fraction:
    """By the corpus's name and language: traces say no more of what a text is."""
    name = info.corpus.lower()
    tools = any(word in name for word in _TOOLS) or (info.language or "").startswith("code")
    kind = "tools" if tools else "chat" if any(word in name for word in _CHAT) else "prose"
    return _WEIGHTS[flavour][kind]


_WEIGHTS: Mapping[str, Mapping[str, Fraction]] = {
    "agentic": {"tools": Fraction(3), "chat": Fraction(1), "prose": Fraction(1, 4)},
    "prose": {"tools": Fraction(1, 4), "chat": Fraction(3), "prose": Fraction(3)},
    "mixed": dict.fromkeys(("tools", "chat", "prose"), Fraction(1)),
}
