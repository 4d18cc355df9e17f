"""Ranks, trims and sweeps on a terminal, and a sweep as CSV. Imports no torch.

Everything here is shown from what the `trims` package measured; nothing is computed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from audit.report.terminal import rows
from audit.report.wording import REGISTER_WORDS, clean, interval, number, scope, size
from audit.words import count

if TYPE_CHECKING:
    from audit.trims.card import CardFacts
    from audit.trims.checking import CardCheck
    from audit.trims.escaped import Escaped
    from audit.trims.sweep import Size
    from audit.trims.trimming import Trimmed

_CEILING = "vocabulary_ceiling"


def show_made(made: CardFacts, out: Path, console: Console, *, quiet: bool) -> None:
    """A card that was made."""
    forced = {kind: len(ids) for kind, ids in made.forced.items() if ids}
    kept = ", ".join(f"{many:,} {kind}" for kind, many in forced.items()) or "none"
    say(
        console,
        f"{out}: {made.rows:,} of {made.vocabulary:,} ids; {made.seen_kept:,} of the "
        f"{made.seen:,} ids seen, kept though never seen: {kept}",
    )
    if made.padded:
        say(console, f"padding: {len(made.padded):,} ids that nobody emitted, marked in the JSON")
    if quiet:
        return
    header = ("corpus", "register", "weight", "positions", "distinct ids", "covered")
    lines = [
        [
            clean(one.corpus), REGISTER_WORDS[one.register_], f"{one.weight:g}",
            f"{one.positions:,}", f"{one.distinct:,}", number(_CEILING, one.coverage),
        ]
        for one in made.corpora
    ]  # fmt: skip
    rows(console, header, lines)
    say(console, "covered: on the very text it was made from; on other text it is less")


def show_check(found: CardCheck, console: Console, *, quiet: bool) -> None:
    """A list that was judged."""
    if not quiet:
        _show_counts(found, console)
        _show_coverage(found, console)
    say(console, f"{found.card}: {found.verdict.sentence}")


def _show_counts(found: CardCheck, console: Console) -> None:
    unseen = f"{found.never_seen:,} never emitted on these traces"
    lines = [
        f"{found.card}: {found.listed:,} entries, {found.distinct:,} distinct ids of "
        f"{found.vocabulary:,}",
        f"  {found.repeated:,} repeated, {found.outside:,} beyond the vocabulary, {found.filled:,} "
        f"that only fill it up, {unseen} (the last {found.never_seen_tail:,} in a row)",
        f"  it lacks {found.missing:,} of the {found.seen:,} ids emitted here, and holds "
        f"{number(_CEILING, found.overlap)} of the {found.overlap_of:,} most frequent",
    ]
    for line in (*lines, *(f"  {note}" for note in found.notes)):
        say(console, line)
    show_lost(found.lost, console)
    say(console, "")


def show_lost(lost: Mapping[str, Sequence[int]] | None, console: Console) -> None:
    """Stop, special and byte tokens that have no row."""
    for kind, ids in (lost or {}).items():
        if ids:
            some = ", ".join(map(str, ids[:5])) + (", …" if len(ids) > 5 else "")
            say(console, f"  no row for {count(len(ids), f'{kind} token')} (ids {some})")
    if lost is None:
        say(console, "  stop, special and byte tokens: no file here names any")


def _show_coverage(found: CardCheck, console: Console) -> None:
    own = {one.corpus: one for one in found.own_list}
    gained = {str(e.corpus): e for e in found.marginal.gained if e.corpus}
    header = (
        "ceiling on", "register", "coverage", "95 % interval", "own list", "costs",
        f"last {found.marginal.rows:,} rows",
    )  # fmt: skip
    lines = []
    for e in (e for e in found.coverage if e.corpus):
        one = own[str(e.corpus)]
        lines.append(
            [
                scope(e), REGISTER_WORDS[one.register_], number(_CEILING, e.value), interval(e),
                f"{number(_CEILING, one.own_coverage)} ({one.rows:,})",
                number("shift_loss", one.cost), number(_CEILING, gained[str(e.corpus)].value),
            ]
        )  # fmt: skip
    rows(console, header, lines)
    classes = [e for e in found.coverage_by_class if e.corpus is None]
    if classes:
        lines = [
            [
                str(e.token_class), scope(e), number(_CEILING, e.value), interval(e),
                f"{e.positions:,}",
            ]
            for e in classes
        ]  # fmt: skip
        rows(console, ("token class", "on", "coverage", "95 % interval", "positions"), lines)


def show_sweep(sizes: Sequence[Size], console: Console) -> None:
    """One line per size and corpus."""
    header = ("rows", "on", "ceiling", "acceptance", "retention", "95 % interval", "head", "ratio")
    lines = []
    for one in sizes:
        for corpus in _corpora(one):
            found = {e.measure: e for e in one.estimates if e.corpus == corpus}
            kept = found["retention"]
            lines.append(
                [
                    clean(one.name), scope(kept), number(_CEILING, found[_CEILING].value),
                    number("acceptance_cand", found["acceptance_cand"].value),
                    number("retention", kept.value), interval(kept), size(one.head_bytes),
                    f"1 : {one.row_ratio:.3f}",
                ]
            )  # fmt: skip
    rows(console, header, lines)


def sweep_csv(sizes: Sequence[Size]) -> str:
    """A sweep as CSV: one line per size, corpus and measure, in plain fractions."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        (
            "name", "rows", "head_bytes", "row_ratio", "corpus", "register", "measure", "value",
            "low", "high", "level", "positions", "sequences",
        )
    )  # fmt: skip
    for one in sizes:
        for e in one.estimates:
            writer.writerow(
                (
                    clean(one.name), one.rows, one.head_bytes, one.row_ratio,
                    clean(e.corpus or ""), e.register_, e.measure, e.value, e.low, e.high, e.level,
                    e.positions, e.sequences,
                )
            )  # fmt: skip
    return text.getvalue()


def show_escaped(found: Sequence[Escaped], shown: int, console: Console) -> None:
    """The costliest missing ids."""
    header = ("missing id", "text", "class", "positions", "share", "together", "most on")
    lines = [
        [
            str(one.id), "–" if one.text is None else clean(repr(one.text)),
            one.token_class or "–", f"{one.positions:,}", number(_CEILING, one.share),
            number(_CEILING, one.running_share), clean(one.worst_corpus),
        ]
        for one in found[:shown]
    ]  # fmt: skip
    rows(console, header, lines)
    if len(found) > shown:
        say(console, f"showing {shown:,} of {len(found):,} missing ids: --escaped {len(found)}")


def show_trimmed(done: Trimmed, console: Console, *, quiet: bool) -> None:
    """A head that was written and read back."""
    change = "rows unchanged"
    if done.relative_error is not None:
        change = f"relative weight error {100 * done.relative_error:.2f} %"
    say(
        console,
        f"{done.file}: {done.rows:,} of {done.vocabulary:,} rows (1 : {done.row_ratio:.3f}) for "
        f"{done.consumer}, {done.encoding}, {done.head_bytes_before:,} -> {done.head_bytes:,} "
        f"bytes, {change}, read back and equal",
    )
    if quiet:
        return
    for one in done.proven:
        near = f", {one.near_ties:,} of them near-ties" if one.differing else ""
        say(
            console,
            f"  on {one.corpus}: proposals differ from the reference's own rows at "
            f"{one.differing:,} of {one.positions:,} positions{near}",
        )
    for note in done.notes:
        say(console, f"  {note}")


def _corpora(one: Size) -> list[str]:
    """Corpora in the order of the estimates."""
    return list(dict.fromkeys(e.corpus for e in one.estimates if e.corpus))


def say(console: Console, text: str) -> None:
    """One line, made harmless."""
    console.print(clean(text), soft_wrap=True)
