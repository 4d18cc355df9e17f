"""Where a limit is held: which corpora or registers, and what was measured there."""

from __future__ import annotations

from dataclasses import dataclass

from audit.catalogue import SHIFT_MEASURES
from audit.evidence import find
from audit.policy import Limit
from audit.records import Candidate, Estimate, Register, Run
from audit.report.wording import REGISTER_WORDS, clean
from audit.samples import REGISTERS


@dataclass(frozen=True, slots=True)
class Place:
    """A corpus, or all of a register where `corpus` is None."""

    register: Register
    corpus: str | None
    token_class: str | None = None

    @property
    def words(self) -> str:
        """Such as `on german` or `under domain shift, class han`."""
        named = {"domain_shift": "under domain shift", "same_register": "on the same register"}
        words = f"on {clean(self.corpus)}" if self.corpus else named.get(
            self.register, REGISTER_WORDS[self.register]
        )  # fmt: skip
        return f"{words}, class {self.token_class}" if self.token_class else words

    def estimate(self, candidate: Candidate, measure: str) -> Estimate | None:
        """What was measured there; None when nothing was."""
        return find(candidate.estimates, measure, self.register, self.corpus, self.token_class)


def places_of(run: Run, limit: Limit) -> list[Place]:
    """Where the run's traces let a limit be held, before any look at estimates."""
    register = "domain_shift" if limit.measure in SHIFT_MEASURES else limit.register_
    infos = [
        trace.info
        for trace in run.traces
        if register in (None, trace.info.register_) and limit.corpus in (None, trace.info.corpus)
    ]
    if limit.over == "corpora":
        return [Place(info.register_, info.corpus, limit.token_class) for info in infos]
    present = {info.register_ for info in infos}
    return [Place(name, None, limit.token_class) for name in REGISTERS if name in present]


def seen_places(candidate: Candidate, limit: Limit, places: list[Place]) -> tuple[list[Place], int]:
    """The places where a class was seen often enough, and how many others were passed over.

    A class that never occurs on a corpus has no estimate there, which is nothing missing; on a
    corpus that the limit names it is.
    """
    if limit.token_class is None or limit.corpus is not None:
        return places, 0
    least = limit.ignore_fewer_than or 1
    kept, rare = [], 0
    for place in places:
        estimate = place.estimate(candidate, limit.measure)
        if estimate is not None and estimate.positions >= least:
            kept.append(place)
        elif estimate is not None:
            rare += 1
    return kept, rare


def nowhere(limit: Limit, rare: int) -> str:
    """Why there is no place to hold a limit."""
    if limit.token_class is not None:
        where = f"no position of class {limit.token_class}"
        if rare:
            return f"{where} often enough: fewer than {limit.ignore_fewer_than} on each corpus"
        return f"{where} was seen there, or the tokenizer is not known"
    if limit.corpus:
        register = f" as {REGISTER_WORDS[limit.register_]}" if limit.register_ else ""
        return f"the corpus {limit.corpus} was not audited{register}"
    under = "domain_shift" if limit.measure in SHIFT_MEASURES else limit.register_
    return f"no text {REGISTER_WORDS[under]} was audited" if under else "nothing was audited"
