"""Whether a document of `audit chain` agrees with itself, before anything is computed from it.

Files come from strangers, and figures of chains go into runs, gates and break-even margins. Every
share can be worked out again from the counts beside it; what can not be is held to its range.
Whether the counts are true, no file can tell. Imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from audit.chains.records import DISAGREES, OTHER, ChainFigures, ChainHead, ChainResult, SlotHarm
from audit.records import Estimate

_SAME = 1e-9
"""Figures closer than this differ by the order of a sum."""


def contradiction(chain: ChainResult) -> str | None:
    """The first thing in which the document contradicts itself; None where there is none."""
    return next(_contradictions(chain), None)


def close(value: float | None, expected: float | None) -> bool:
    """Whether two figures are the same, or both missing."""
    if value is None or expected is None:
        return value is expected
    return math.isclose(value, expected, rel_tol=_SAME, abs_tol=_SAME)


def _contradictions(chain: ChainResult) -> Iterator[str]:
    if chain.slots < 1 or not 0.0 <= chain.p_min <= 1.0:
        yield f"{chain.slots} slots with p-min {chain.p_min:g} are no chains"
    if not chain.heads or not chain.traces:
        yield "it names no heads, or no traces"
    agreement = chain.verifier_agreement
    if agreement is not None and not 0.0 <= agreement <= 1.0:
        yield f"the verifier's agreement {agreement:g} is no share"
    names = [trace.info.corpus for trace in chain.traces]
    if len(set(names)) < len(names):
        yield "it holds two traces of one corpus"
    if any(found.code not in (OTHER, DISAGREES) for found in chain.findings):
        yield "it holds findings that are not of chains"
    hashes = [one.head.sha256 for one in chain.heads[1:]]
    if len(set(hashes)) < len(hashes):
        yield "it holds one candidate twice"
    for number, head in enumerate(chain.heads):
        for said in _of_head(chain, head, chain.heads[0] if number else None):
            yield f"{head.head.name}: {said}"


def _of_head(chain: ChainResult, head: ChainHead, ref: ChainHead | None) -> Iterator[str]:
    places = [(one.corpus, one.register_) for one in head.figures]
    corpora = {(trace.info.corpus, trace.info.register_) for trace in chain.traces}
    pooled = {(None, register) for _, register in corpora}
    if len(set(places)) < len(places) or set(places) != corpora | pooled:
        yield "its figures are not those of its traces, each once, and of their registers"
    for one in head.figures:
        for said in _of_figures(one, chain.slots):
            yield f"{_place(one)}: {said}"
    for one in head.figures:
        if one.corpus is None and not _pools(one, head):
            yield f"{_place(one)}: its counts are not the sums of its corpora's"
    yield from _of_harms(head, ref, chain.slots)


def _of_harms(head: ChainHead, ref: ChainHead | None, slots: int) -> Iterator[str]:
    if ref is None:
        if head.harm:
            yield "the reference has a harm of its own"
        return
    ours = {(one.corpus, one.register_): one for one in head.figures}
    if [(one.corpus, one.register_) for one in head.harm] != list(ours):
        yield "its harm is of other texts than its figures"
    theirs = {(one.corpus, one.register_): one for one in ref.figures}
    for harm in head.harm:
        place = (harm.corpus, harm.register_)
        for said in _of_harm(harm, theirs[place], ours[place], slots):
            yield f"{_place(harm)}: {said}"


def _of_figures(one: ChainFigures, slots: int) -> Iterator[str]:
    if {len(one.drafted), len(one.accepted), len(one.p), len(one.c)} != {slots}:
        yield f"it has not {slots} slots everywhere"
        return
    if not 0 <= one.sequences <= one.chains:
        yield f"{one.chains} chains in {one.sequences} sequences"
    last = one.chains
    for slot, (drafted, accepted) in enumerate(zip(one.drafted, one.accepted, strict=True)):
        if not 0 <= accepted <= min(drafted, last) or drafted > one.chains:
            yield (
                f"slot {slot}: {accepted} accepted of {drafted} drafted, after {last} that got "
                f"there of {one.chains} chains"
            )
        yield from _estimated(one, one.p[slot], "chain_share", accepted, one.chains, 0, 1)
        yield from _estimated(one, one.c[slot], "slot_acceptance", accepted, last, 0, 1)
        last = accepted
    total, chains = sum(one.accepted), one.chains
    yield from _estimated(
        one, one.chain_acceptance, "chain_acceptance", total, slots * chains, 0, 1
    )
    yield from _estimated(
        one, one.tokens_per_round, "tokens_per_round", chains + total, chains, 1, slots + 1
    )


def _of_harm(harm: SlotHarm, ref: ChainFigures, cand: ChainFigures, slots: int) -> Iterator[str]:
    lists = (harm.both, harm.disagreements, harm.harm, harm.loss)
    if {len(one) for one in lists} != {slots}:
        yield f"its harm has not {slots} slots everywhere"
        return
    if ref.chains != cand.chains:
        yield f"{cand.chains} chains, of the reference {ref.chains}"
    for slot, (differ, both) in enumerate(zip(harm.disagreements, harm.both, strict=True)):
        if not 0 <= differ <= both <= cand.chains:
            yield f"slot {slot}: {differ} disagreements in {both} chains of {cand.chains}"
        lost = ref.accepted[slot] - cand.accepted[slot]
        yield from _estimated(harm, harm.loss[slot], "chain_loss", lost, cand.chains, -1, 1)
        yield from _ranged(harm, harm.harm[slot], "slot_harm", -1, 1)
    lost = sum(ref.accepted) - sum(cand.accepted)
    yield from _estimated(harm, harm.tokens_lost, "tokens_lost", lost, cand.chains, -slots, slots)


def _estimated(
    place: ChainFigures | SlotHarm, e: Estimate, measure: str, above: int, below: int,
    least: float, most: float,
) -> Iterator[str]:  # fmt: skip
    """An estimate beside the counts that it is the ratio of."""
    expected = above / below if below else None
    if not close(e.value, expected):
        yield f"{measure} {_said(e.value)} where its counts say {_said(expected)}"
    yield from _ranged(place, e, measure, least, most)


def _ranged(
    place: ChainFigures | SlotHarm, e: Estimate, measure: str, least: float, most: float
) -> Iterator[str]:
    """An estimate's own bounds, and that it is of what it stands at."""
    about = (e.measure, e.corpus, e.register_, e.token_class)
    if about != (measure, place.corpus, place.register_, None):
        yield f"an estimate of {e.measure} stands where {measure} belongs"
    if isinstance(place, ChainFigures) and (e.positions, e.sequences) != (
        place.chains, place.sequences,
    ):  # fmt: skip
        yield f"{measure} of {e.positions} chains, of which there are {place.chains}"
    for value in (e.value, e.low, e.high, e.macro):
        if value is not None and not least - _SAME <= value <= most + _SAME:
            yield f"{measure} {value:g} is not from {least:g} to {most:g}"
    if (e.low is None) != (e.high is None) or not 0.0 < e.level < 1.0:
        yield f"{measure} has half an interval, or one of level {e.level:g}"
    if e.low is not None and e.high is not None and e.low > e.high:
        yield f"{measure} has an interval from {e.low:g} down to {e.high:g}"


def _pools(one: ChainFigures, head: ChainHead) -> bool:
    parts = [f for f in head.figures if f.corpus and f.register_ == one.register_]
    counts = [(f.chains, f.sequences, *f.drafted, *f.accepted) for f in (one, *parts)]
    return counts[0] == tuple(map(sum, zip(*counts[1:], strict=True)))


def _place(one: ChainFigures | SlotHarm) -> str:
    return one.corpus or f"all {one.register_}"


def _said(value: float | None) -> str:
    return "nothing" if value is None else f"{value:g}"
