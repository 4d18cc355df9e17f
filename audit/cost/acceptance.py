"""Where acceptance comes from: what a user says, a recorded run, or figures of `audit chain`.

A run knows one slot; further slots are then taken to be accepted with the same chance. A chain
document knows each slot as it was measured, and nothing beyond its last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from audit.chains.records import ChainResult
from audit.cost.records import HeadCost
from audit.cost.rounds import shares_of
from audit.errors import BadUsageError, MismatchError
from audit.records import Register, Run
from audit.report.wording import REGISTER_WORDS


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

    def shares(self, head: int, slots: int) -> list[float] | None:
        """p_0 .. p_(K-1); None where this source does not know so much."""
        if head in self.measured:
            known = self.measured[head]
            return list(known[:slots]) if slots <= len(known) else None
        return shares_of(self.even[head], slots) if head in self.even else None


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
    found: dict[tuple[str | None, Register | None], dict[int, float]] = {}
    for number, head in enumerate(heads):
        candidate = run.candidates[0] if number == 0 else known.get(head.sha256 or "")
        measure = "acceptance_ref" if number == 0 else "acceptance_cand"
        for e in candidate.estimates if candidate else ():
            if e.measure == measure and e.token_class is None and e.value is not None:
                found.setdefault((e.corpus, e.register_), {})[number] = e.value
    said = f"run {run.run or 'latest'}: one slot, each further slot accepted as often"
    return [
        Source(_named(corpus, register), corpus, register, said, even, {})
        for (corpus, register), even in found.items()
    ]


def chain_sources(chain: ChainResult, heads: Sequence[HeadCost]) -> list[Source]:
    """p_k of every slot from `audit chain`, per corpus and per register.

    Raises:
        MismatchError: none of these heads is in it.
    """
    numbers = {head.sha256: number for number, head in enumerate(heads) if head.sha256}
    found: dict[tuple[str | None, Register | None], dict[int, tuple[float, ...]]] = {}
    for one in chain.heads:
        number = numbers.get(one.head.sha256)
        if number is None:
            continue
        for figures in one.figures:
            if shares := figures.shares_known:
                found.setdefault((figures.corpus, figures.register_), {})[number] = shares
    if not found:
        raise MismatchError(
            "the chain figures are of other heads than these",
            hint="measure them with `audit chain REF CAND -o FILE` on these very files",
        )
    said = f"measured by audit chain, {chain.slots} slots, p-min {chain.p_min:g}"
    return [
        Source(_named(corpus, register), corpus, register, said, {}, measured)
        for (corpus, register), measured in found.items()
    ]


def _named(corpus: str | None, register: Register | None) -> str:
    if corpus:
        return corpus
    return f"all {REGISTER_WORDS[register]}" if register else "all"
