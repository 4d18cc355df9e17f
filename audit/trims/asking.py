"""What `audit trim` does, from files to a result, without its words. Read this for the order.

The list is cut to size, held against the traces (which missing ids cost most), all sizes run in
one pass over the reference, and the file is written last, when all else is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from audit.cost.machine import Machine
from audit.cost.records import Scenario
from audit.errors import BadUsageError, MismatchError
from audit.files import open_container
from audit.heads import Head, HeadOptions
from audit.heads.keeping import kept_ids, lost_ids
from audit.heads.tokens import Tokens
from audit.measure import valid_ids
from audit.pair import HeadChoice, PairOptions, choose_head, load_ref
from audit.records import Control
from audit.records.base import Record
from audit.stats import Resampling
from audit.traces import Trace, find_traces, read_traces
from audit.trims.choosing import Chooser, read_chooser
from audit.trims.commands import tokens_for
from audit.trims.emitted import Emitted, Ids, emitted
from audit.trims.escaped import Escaped, escaped_ids
from audit.trims.paying import Paid, worth_of
from audit.trims.spare import write_spare_card
from audit.trims.sweep import Progress, Size, sweep
from audit.trims.trimming import Trimmed, Wanted, check_wanted, write_trim


@dataclass(frozen=True, slots=True)
class TrimRequest:
    """Everything a user can ask of `audit trim`."""

    ref: Path
    card: Path
    rows: int | None = None
    """None for the whole list."""
    sizes: tuple[int, ...] = ()
    """Of a sweep, in place of `rows`."""
    traces: tuple[Path, ...] = ()
    out: Path | None = None
    force: bool = False
    """Whatever is at `out` may be replaced."""
    consumer: str | None = None
    encoding: str | None = None
    spare: int = 0
    spare_card: Path | None = None
    ref_options: HeadOptions = field(default_factory=HeadOptions)
    pair: PairOptions = field(default_factory=PairOptions)
    resampling: Resampling = field(default_factory=Resampling)
    device: str = "cpu"
    machine: Machine | None = None
    """Where given, a sweep also says what each size is worth on it."""
    slots: int = 1


class TrimResult(Record):
    """What came of it; lists without content are empty, `written` null without -o."""

    reference: str
    card: str
    rows: int
    spare: list[int]
    """Ids added to the list's own."""
    lost: dict[str, list[int]] | None
    """Stop, special and byte tokens without a row; null where REF's file names none."""
    escaped: list[Escaped]
    sizes: list[Size]
    worth: tuple[Scenario, ...] = ()
    """What each size is worth, per corpus; empty without figures of a machine."""
    assumptions: tuple[str, ...] = ()
    anchors: list[Control]
    written: Trimmed | None
    spare_card: str | None
    notes: list[str]


def run_trim(request: TrimRequest, progress: Progress | None = None) -> TrimResult:
    """Cut a list to size, measure, write. Raises AuditError for bad input of any kind."""
    _check(request)
    choice = choose_head(request.ref, [], request.pair.head)
    ref = load_ref(request.ref, choice, request.ref_options, request.pair.block)
    chooser = _present(read_chooser(request.card, ref.vocabulary), ref)
    traces = read_traces(find_traces(request.traces, request.ref)) if request.traces else []
    tokens = tokens_for(open_container(request.ref), traces)
    given = [emitted(trace, tokens) for trace in traces]
    if given and max(int(one.oracle.max()) for one in given) >= ref.vocabulary:
        raise MismatchError(
            f"the traces hold ids beyond the {ref.vocabulary:,} of {ref.record.name}",
            hint="these traces are of another model",
            where=request.ref,
        )
    sizes = request.sizes or (request.rows or len(chooser.ids),)
    cuts = {rows: chooser.first(rows) for rows in sizes}
    base = cuts[sizes[-1]]
    missing = _missing(given, base, ref, traces, tokens)
    spare = [one.id for one in missing[: request.spare]]
    ids = np.concatenate([base, np.array(spare, np.int64)])
    wanted = _wanted(request, ids)
    if wanted:
        check_wanted(ref, wanted, traces)
    swept, anchors = list[Size](), list[Control]()
    if traces:
        done = sweep(
            ref, _trims(request, cuts, given, ref, traces, tokens), traces, request.resampling,
            encoding=request.encoding, tokens=tokens, device=request.device, progress=progress,
        )  # fmt: skip
        swept, anchors = done.sizes, done.anchors
    paid = worth_of(request, ref, swept) if request.machine else Paid()
    if request.spare_card:
        write_spare_card(request.spare_card, base, spare, chooser, given, ref.vocabulary)
    keep = kept_ids(tokens)
    return TrimResult(
        reference=ref.record.name,
        card=request.card.name,
        rows=len(ids),
        spare=spare,
        lost=lost_ids(keep, ids.tolist()) if any(keep.values()) else None,
        escaped=missing,
        sizes=swept,
        worth=paid.scenarios,
        assumptions=paid.assumptions,
        anchors=anchors,
        written=write_trim(ref, choice, wanted, traces, request.pair.block) if wanted else None,
        spare_card=str(request.spare_card) if request.spare_card else None,
        notes=_notes(request, chooser, choice, len(spare)),
    )


def _check(request: TrimRequest) -> None:
    """Refuse what contradicts itself before anything is read."""
    needs = {"--sweep": request.sizes, "--spare": request.spare}
    if lacking := [name for name, value in needs.items() if value and not request.traces]:
        raise BadUsageError(
            f"{lacking[0]} is measured on traces, and none was given", hint="--trace FILE"
        )
    if request.sizes and (request.out or request.rows is not None or request.spare_card):
        raise BadUsageError(
            "--sweep tries several sizes and writes none",
            hint="sweep first, then write one size with --rows N -o FILE",
        )
    if request.spare_card and not request.spare:
        raise BadUsageError(
            "--spare-card adds spare ids, and none were asked for", hint="--spare M"
        )
    if not (request.out or request.sizes or request.spare_card or request.traces):
        raise BadUsageError(
            "nothing was asked for", hint="-o FILE to write the head, or --sweep 8192,16384"
        )
    if request.machine and not request.sizes:
        raise BadUsageError(
            "step times tell what the sizes of a sweep are worth",
            hint="--sweep 8192,16384, or `audit cost` for a head that is made",
        )
    if request.encoding and not request.out and not request.sizes:
        raise BadUsageError("--to needs a file to write", hint="-o FILE")


def _present(chooser: Chooser, ref: Head) -> Chooser:
    """Refuse a list with ids that REF has no row for."""
    absent = np.setdiff1d(chooser.ids, ref.ids.numpy())
    if len(absent):
        raise BadUsageError(
            f"{len(absent):,} ids of {chooser.card.name} have no row in {ref.record.name}, "
            f"the first is {int(absent[0])}",
            hint="trim the full head",
            where=chooser.card,
        )
    return chooser


def _missing(
    given: Sequence[Emitted], kept: Ids, ref: Head, traces: Sequence[Trace], tokens: Tokens
) -> list[Escaped]:
    """Ids that escape, of those that REF has a row for."""
    if not given:
        return []
    valid = min(valid_ids(ref, trace) for trace in traces)
    known = set(ref.ids.tolist())
    found = escaped_ids(given, kept, ref.vocabulary, tokens)
    return [one for one in found if one.id in known and one.id < valid]


def _trims(
    request: TrimRequest,
    cuts: dict[int, Ids],
    given: Sequence[Emitted],
    ref: Head,
    traces: Sequence[Trace],
    tokens: Tokens,
) -> list[tuple[str, Ids]]:
    """Each size, and each size with its own spare ids."""
    found = []
    for rows, ids in cuts.items():
        found.append((f"{rows:,}", ids))
        more = _missing(given, ids, ref, traces, tokens)[: request.spare]
        if more:
            spare = np.array([one.id for one in more], np.int64)
            found.append((f"{rows:,} + {len(more):,}", np.concatenate([ids, spare])))
    return found


def _wanted(request: TrimRequest, ids: Ids) -> Wanted | None:
    if request.out is None:
        return None
    return Wanted(request.card, ids, request.consumer, request.encoding, request.out, request.force)


def _notes(request: TrimRequest, chooser: Chooser, choice: HeadChoice, spare: int) -> list[str]:
    notes = list(chooser.notes)
    if choice.others:
        others = ", ".join(choice.others)
        notes.append(f"the LM head was trimmed; REF also holds {others}: --head {choice.others[0]}")
    if spare < request.spare:
        notes.append(f"only {spare:,} ids escape on these traces, so no more were added")
    return notes
