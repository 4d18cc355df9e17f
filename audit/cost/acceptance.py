"""Where acceptance comes from: what a user says, a recorded run, or figures of `audit chain`.

A run knows one slot; further slots are then taken to be accepted with the same chance. A chain
document knows each slot as it was measured, and nothing beyond its last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from audit.chains.records import ChainResult
from audit.cost.records import HeadCost
from audit.cost.rounds import even_acceptance, shares_of
from audit.errors import BadUsageError, MismatchError
from audit.records import Estimate, Register, Run
from audit.report.wording import REGISTER_WORDS

_Place = tuple[str | None, Register | None]


@dataclass(frozen=True, slots=True)
class Source:
    """Acceptance of some heads on one text."""

    name: str
    corpus: str | None
    register: Register | None
    said: str
    """Where it comes from, in words."""
    even: Mapping[int, float]
    """Number of the head -> acceptance of every slot."""
    measured: Mapping[int, tuple[float, ...]]
    """Number of the head -> p_k."""
    ends: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """Number of the head -> interval of `even`, or of tokens per round of all slots measured."""
    positions: int = 0
    sequences: int = 0

    def shares(self, head: int, slots: int) -> list[float] | None:
        """p_0 .. p_(K-1); None where this source does not know so much."""
        if head in self.measured:
            known = self.measured[head]
            return list(known[:slots]) if slots <= len(known) else None
        return shares_of(self.even[head], slots) if head in self.even else None

    def interval(self, head: int, slots: int) -> tuple[float, float] | None:
        """Even acceptance at both ends of what was measured; None where that is not known."""
        if head not in self.ends:
            return None
        low, high = self.ends[head]
        if head in self.even:
            return low, high
        if slots != len(self.measured[head]):
            return None
        evens = even_acceptance(low, slots), even_acceptance(min(high, slots + 1.0), slots)
        return (evens[0], evens[1]) if evens[0] is not None and evens[1] is not None else None


def given_source(values: Sequence[float], heads: int) -> Source:
    """What `--acceptance` says: one for all heads, or one for each.

    Raises:
        BadUsageError: another number of values, or one that is no share.
    """
    if bad := [value for value in values if not 0.0 <= value <= 1.0]:
        raise BadUsageError(
            f"--acceptance {bad[0]:g} is no share", hint="a fraction of one, such as 0.66"
        )
    if len(values) not in (1, heads):
        raise BadUsageError(
            f"{len(values)} acceptances for {heads} heads",
            hint="one for all of them, or one for each, REF first",
        )
    even = {head: values[head if len(values) > 1 else 0] for head in range(heads)}
    return Source("given", None, None, "as given with --acceptance", even, {})


def run_sources(run: Run, heads: Sequence[HeadCost]) -> list[Source]:
    """Acceptance of one slot from a recorded run, per corpus and per register.

    Raises:
        MismatchError: the run is of another reference.
    """
    if run.reference.sha256 != heads[0].sha256:
        raise MismatchError(
            f"run {run.run} has another reference ({run.reference.name}) than this one",
            hint="record one with `audit compare` on these very heads",
        )
    known = {candidate.head.sha256: candidate for candidate in run.candidates}
    found: dict[_Place, dict[int, Estimate]] = {}
    for number, head in enumerate(heads):
        candidate = run.candidates[0] if number == 0 else known.get(head.sha256 or "")
        measure = "acceptance_ref" if number == 0 else "acceptance_cand"
        for e in candidate.estimates if candidate else ():
            if e.measure == measure and e.token_class is None and e.value is not None:
                found.setdefault((e.corpus, e.register_), {})[number] = e
    said = f"run {run.run or 'latest'}: one slot, each further slot accepted as often"
    return [_source(place, said, known, {}) for place, known in found.items()]


def chain_sources(chain: ChainResult, heads: Sequence[HeadCost]) -> list[Source]:
    """p_k of every slot from `audit chain`, per corpus and per register.

    Raises:
        MismatchError: none of these heads is in it.
    """
    numbers = {head.sha256: number for number, head in enumerate(heads) if head.sha256}
    shares: dict[_Place, dict[int, tuple[float, ...]]] = {}
    tokens: dict[_Place, dict[int, Estimate]] = {}
    for one in chain.heads:
        number = numbers.get(one.head.sha256)
        for figures in one.figures if number is not None else ():
            assert number is not None
            place = (figures.corpus, figures.register_)
            if known := figures.shares_known:
                shares.setdefault(place, {})[number] = known
                tokens.setdefault(place, {})[number] = figures.tokens_per_round
    if not shares:
        raise MismatchError(
            "the chain figures are of other heads than these",
            hint="measure them with `audit chain REF CAND -o FILE` on these very files",
        )
    said = f"measured by audit chain, {chain.slots} slots, p-min {chain.p_min:g}"
    return [_source(place, said, tokens[place], known) for place, known in shares.items()]


def _source(
    place: _Place,
    said: str,
    known: Mapping[int, Estimate],
    measured: Mapping[int, tuple[float, ...]],
) -> Source:
    """A source from estimates: of acceptance, or, where `measured` is given, of tokens."""
    corpus, register = place
    first = next(iter(known.values()))
    pairs = {n: (e.low, e.high) for n, e in known.items()}
    ends = {n: (a, b) for n, (a, b) in pairs.items() if a is not None and b is not None}
    even = {n: e.value for n, e in known.items() if e.value is not None}
    return Source(
        name=corpus or (f"all {REGISTER_WORDS[register]}" if register else "all"),
        corpus=corpus,
        register=register,
        said=said,
        even={} if measured else even,
        measured=measured,
        ends=ends,
        positions=first.positions,
        sequences=first.sequences,
    )
