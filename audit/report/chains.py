"""`audit chain` and `audit lossless` on a terminal. Imports no torch; nothing is computed here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console

from audit.records import Estimate
from audit.report.terminal import rows
from audit.report.wording import REGISTER_WORDS, clean, interval_title
from audit.words import count

if TYPE_CHECKING:
    from audit.chains.records import (
        ChainFigures,
        ChainHead,
        ChainResult,
        LosslessHead,
        LosslessResult,
        SlotHarm,
    )

_DASH = "–"
_Placed = TypeVar("_Placed", "ChainFigures", "SlotHarm")


def show_chain(result: ChainResult, console: Console, *, quiet: bool) -> None:
    """Ranked heads, then each head's slots and each candidate's harm per slot."""
    if not quiet:
        for head in result.heads:
            _show_slots(head, console)
        for head in result.heads[1:]:
            _show_harm(head, console)
    if len(result.heads) > 1:
        _show_ranking(result.heads, console)
    for head in result.heads:
        _say(console, f"{head.head.name}: {chain_sentence(head)}")
    for found in result.findings:
        _say(console, f"{found.severity}: {found.subject}: {found.sentence} ({found.code})")
    if not quiet:
        _show_basis(result, console)


def _show_basis(result: ChainResult, console: Console) -> None:
    """What the figures rest on."""
    if result.verifier and result.verifier_agreement is not None:
        _say(
            console,
            f"checked by {result.verifier}, whose greedy token is the trace's oracle at "
            f"{100 * result.verifier_agreement:.2f} % of the positions checked",
        )
    for note in result.notes:
        _say(console, f"note: {note}")
    for said in result.assumptions:
        _say(console, f"assumed: {said}")


def chain_sentence(head: ChainHead) -> str:
    """Tokens per round on the worst corpus."""
    worst = min(
        (one for one in head.figures if one.corpus),
        key=lambda one: one.tokens_per_round.value or 0.0,
    )
    return (
        f"{_plain(worst.tokens_per_round)} tokens per round on {worst.corpus}, its worst corpus, "
        f"chain acceptance {_share(worst.chain_acceptance)}; each slot reads {head.recursion}"
    )


def show_lossless(result: LosslessResult, console: Console, *, quiet: bool) -> None:
    """Whether the texts are the same, and accepted slots beside what `chain` predicts."""
    for one in result.heads:
        if not quiet:
            _show_rounds(one, console)
        for difference in one.differences:
            _say(console, f"differs: {difference.sentence}")
        _say(console, lossless_sentence(one, result))
    if quiet:
        return
    for note in result.notes:
        _say(console, f"note: {note}")
    _say(console, f"the verifier's smallest margin: {result.smallest_margin:.2g} logits")


def lossless_sentence(one: LosslessHead, result: LosslessResult) -> str:
    """One head's answer."""
    texts = f"{count(result.prompts, 'text')} of {count(result.new_tokens, 'token')} together"
    same = f"{texts}, identical token for token with and without the head"
    if not one.identical:
        same = f"{len(one.differences):,} of {texts} are NOT those without the head"
    tokens = "–" if one.tokens_per_round is None else f"{one.tokens_per_round:.3f}"
    chain = "as chain predicts in every one"
    if one.rounds_apart:
        chain = f"NOT as chain predicts in {one.rounds_apart:,} of them"
    return (
        f"{one.head.name}: {same}; {tokens} tokens per round over "
        f"{count(one.rounds, 'round')}, {chain}"
    )


def _show_rounds(one: LosslessHead, console: Console) -> None:
    header = (clean(one.head.name), "drafted", "accepted", "of rounds", "predicted by chain")
    lines = [
        [
            f"slot {slot}", f"{one.drafted[slot]:,}", f"{one.accepted[slot]:,}",
            _of(one.accepted[slot], one.rounds), f"{one.predicted[slot]:,}",
        ]
        for slot in range(len(one.drafted))
    ]  # fmt: skip
    rows(console, header, lines)
    _say(console, f"each slot reads {one.recursion}")


def _show_slots(head: ChainHead, console: Console) -> None:
    level = head.figures[0].tokens_per_round.level
    header: tuple[str, ...] = (
        clean(head.head.name), "slot", "drafted", "accepted", "p", interval_title(level), "c",
        interval_title(level),
    )  # fmt: skip
    lines = []
    for one in _shown(head.figures):
        lines += [
            [
                _place(one) if slot == 0 else "", str(slot), _of(one.drafted[slot], one.chains),
                f"{one.accepted[slot]:,}", _share(one.p[slot]), _shares(one.p[slot]),
                _share(one.c[slot]), _shares(one.c[slot]),
            ]
            for slot in range(len(one.p))
        ]  # fmt: skip
    rows(console, header, lines)
    titles = ("on", "chains", "tokens per round", interval_title(level), "macro",
              "chain acceptance", interval_title(level))  # fmt: skip
    totals = [
        [
            _place(one), f"{one.chains:,}", _plain(one.tokens_per_round),
            _plains(one.tokens_per_round), _number(one.tokens_per_round.macro),
            _share(one.chain_acceptance), _shares(one.chain_acceptance),
        ]
        for one in _shown(head.figures)
    ]  # fmt: skip
    rows(console, titles, totals)
    _say(console, "")


def _show_harm(head: ChainHead, console: Console) -> None:
    level = head.figures[0].tokens_per_round.level
    header = (
        f"{clean(head.head.name)} against REF", "slot", "both there", "differ", "harm",
        interval_title(level), "p lost", interval_title(level),
    )  # fmt: skip
    lines = []
    for one in _shown(head.harm):
        lines += [
            [
                _place(one) if slot == 0 else "", str(slot), f"{one.both[slot]:,}",
                f"{one.disagreements[slot]:,}", _plain(one.harm[slot]), _plains(one.harm[slot]),
                _points(one.loss[slot].value), _ends(one.loss[slot]),
            ]
            for slot in range(len(one.loss))
        ]  # fmt: skip
    rows(console, header, lines)
    _say(console, "")


def _show_ranking(heads: Sequence[ChainHead], console: Console) -> None:
    """All heads, the best first, by their worst corpus."""
    lines = []
    for head in sorted(heads, key=_worst, reverse=True):
        worst = min(
            (one for one in head.figures if one.corpus),
            key=lambda one: one.tokens_per_round.value or 0.0,
        )
        lost = [one.tokens_lost for one in head.harm if one.corpus == worst.corpus]
        lines.append(
            [
                clean(head.head.name), clean(head.head.encoding), _plain(worst.tokens_per_round),
                _plains(worst.tokens_per_round), _place(worst), _share(worst.chain_acceptance),
                _plain(lost[0]) if lost else _DASH, _plains(lost[0]) if lost else _DASH,
            ]
        )  # fmt: skip
    level = heads[0].figures[0].tokens_per_round.level
    header = ("ranked", "type", "tokens per round", interval_title(level), "on its worst",
              "chain acceptance", "tokens lost", interval_title(level))  # fmt: skip
    rows(console, header, lines)


def _shown(found: Sequence[_Placed]) -> list[_Placed]:
    """Every corpus, and registers of several: one of a single corpus says the same again."""
    several = [
        register
        for register in REGISTER_WORDS
        if sum(one.corpus is not None and one.register_ == register for one in found) > 1
    ]
    return [one for one in found if one.corpus or one.register_ in several]


def _worst(head: ChainHead) -> float:
    return min(one.tokens_per_round.value or 0.0 for one in head.figures if one.corpus)


def _place(one: ChainFigures | SlotHarm) -> str:
    return clean(one.corpus) if one.corpus else f"all {REGISTER_WORDS[one.register_]}"


def _of(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else _DASH


def _number(value: float | None) -> str:
    return _DASH if value is None else f"{value:.3f}"


def _plain(e: Estimate) -> str:
    return _number(e.value)


def _share(e: Estimate) -> str:
    return _DASH if e.value is None else f"{100 * e.value:.1f} %"


def _points(value: float | None) -> str:
    return _DASH if value is None else f"{100 * value:+.1f} pt"


def _plains(e: Estimate) -> str:
    return _between(e, f"{e.low:.3f} to {e.high:.3f}" if e.low is not None else "")


def _shares(e: Estimate) -> str:
    return _between(e, f"{100 * (e.low or 0):.1f} % to {100 * (e.high or 0):.1f} %")


def _ends(e: Estimate) -> str:
    return _between(e, f"{_points(e.low)} to {_points(e.high)}")


def _between(e: Estimate, words: str) -> str:
    if e.low is None or e.high is None:
        return clean(e.reason or "no interval")
    return words


def _say(console: Console, text: str) -> None:
    console.print(clean(text), soft_wrap=True)
