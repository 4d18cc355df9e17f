"""Whether the sizes of a sweep pay: their measured acceptance and `audit cost`'s model together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from audit.cost.acceptance import Source
from audit.cost.asking import target_work
from audit.cost.assumptions import assumptions_of
from audit.cost.records import Scenario
from audit.cost.stored import draft_work, head_cost, planned_cost
from audit.cost.worth import Served, scenario
from audit.heads import Head
from audit.records import Estimate
from audit.trims.sweep import Size

if TYPE_CHECKING:
    from audit.trims.asking import TrimRequest


@dataclass(frozen=True, slots=True)
class Paid:
    """What the sizes are worth, and on which assumptions."""

    scenarios: tuple[Scenario, ...] = ()
    assumptions: tuple[str, ...] = ()


def worth_of(request: TrimRequest, ref: Head, sizes: Sequence[Size]) -> Paid:
    """The reference and every size, per corpus that they were measured on."""
    machine = request.machine
    assert machine is not None
    base = head_cost(ref)
    planned = [planned_cost(ref, s.rows, request.encoding, base, rows_only=True) for s in sizes]
    named = [p.model_copy(update={"name": s.name}) for p, s in zip(planned, sizes, strict=True)]
    costs = [base, *named]
    verifier, work, _ = target_work(request.ref, request.pair.block.verifier, machine.at.context)
    drafts = [draft_work(ref, cost) for cost in costs]
    served = Served(costs, drafts, work, machine, request.slots)
    sources = _sources(sizes)
    return Paid(
        tuple(scenario(served, source, sweep=False) for source in sources),
        assumptions_of(machine, request.slots, verifier, sources),
    )


def _sources(sizes: Sequence[Size]) -> list[Source]:
    """Acceptance per corpus: the reference's, then each size's."""
    found = []
    for first in (e for e in sizes[0].estimates if e.measure == "acceptance_ref" and e.corpus):
        even = {0: first.value} if first.value is not None else {}
        for number, size in enumerate(sizes, start=1):
            for e in size.estimates:
                if _is_acceptance(e, first.corpus) and e.value is not None:
                    even[number] = e.value
        found.append(
            Source(
                name=str(first.corpus), corpus=first.corpus, register=first.register_,
                said="measured by this sweep: one slot, each further slot accepted as often",
                even=even, measured={}, positions=first.positions, sequences=first.sequences,
            )
        )  # fmt: skip
    return found


def _is_acceptance(e: Estimate, corpus: str | None) -> bool:
    return (e.measure, e.corpus) == ("acceptance_cand", corpus)
