"""What `audit cost` does, from files to a result, without its words. Read this for the order.

Heads are loaded as `audit compare` loads them, their bytes counted, acceptance found, and the
arithmetic of rounds done on what is known of times. Every assumption goes into the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from audit.blocks.gguf_config import gguf_config
from audit.chains.records import ChainResult
from audit.cost.acceptance import Source, chain_sources, given_source, run_sources
from audit.cost.assumptions import assumptions_of
from audit.cost.machine import Machine, Work
from audit.cost.measured import read_measured
from audit.cost.records import CostResult, HeadCost, VerifierCost
from audit.cost.stored import draft_work, head_cost, planned_cost
from audit.cost.tensors import text_fields, verifier_work
from audit.cost.worth import Served, scenario
from audit.errors import AuditError, BadUsageError
from audit.files import Container, open_container
from audit.files.depth import layer_numbers
from audit.files.made import made_by_forge
from audit.heads import Head, HeadOptions
from audit.measure import refuse_twins, with_own_names
from audit.pair import HeadChoice, PairOptions, choose_head, load_cand, load_ref
from audit.records import Run


@dataclass(frozen=True, slots=True)
class Plan:
    """A size that is asked about before anything is made."""

    rows: int
    encoding: str | None


@dataclass(frozen=True, slots=True)
class CostRequest:
    """Everything a user can ask of `audit cost`."""

    ref: Path
    candidates: tuple[Path, ...] = ()
    plans: tuple[Plan, ...] = ()
    ref_options: HeadOptions = field(default_factory=HeadOptions)
    pair: PairOptions = field(default_factory=PairOptions)
    machine: Machine = field(default_factory=Machine)
    slots: int = 1
    acceptance: tuple[float, ...] = ()
    run: Run | None = None
    chain: ChainResult | None = None
    measured: Path | None = None


def run_cost(request: CostRequest) -> CostResult:
    """Count bytes and, where acceptance and times are known, what each head is worth.

    Raises:
        AuditError: bad input of any kind.
    """
    _check(request)
    measured = read_measured(request.measured) if request.measured else ()
    choice = choose_head(request.ref, request.candidates, request.pair.head)
    ref = load_ref(request.ref, choice, request.ref_options, request.pair.block)
    cands = with_own_names([_candidate(path, choice, request, ref) for path in request.candidates])
    refuse_twins(cands)
    costs = [head_cost(ref)]
    costs += [head_cost(cand, costs[0]) for cand in cands]
    costs += [planned_cost(ref, plan.rows, plan.encoding, costs[0]) for plan in request.plans]
    loaded = [ref, *cands, *(ref for _ in request.plans)]
    drafts = [draft_work(head, cost) for head, cost in zip(loaded, costs, strict=True)]
    at = request.machine.at
    verifier, work, notes = target_work(request.ref, request.pair.block.verifier, at.context)
    served = Served(costs, drafts, work, request.machine, request.slots)
    sources = _sources(request, costs)
    return CostResult(
        heads=tuple(costs),
        verifier=verifier,
        scenarios=tuple(scenario(served, one, sweep=True) for one in sources),
        measured=measured,
        assumptions=assumptions_of(request.machine, request.slots, verifier, sources),
        notes=(*notes, *_simulated(request), *_unmatched(costs, [m.head for m in measured])),
    )


def _check(request: CostRequest) -> None:
    """Refuse what contradicts itself before anything is read."""
    given = {"--acceptance": request.acceptance, "--run": request.run, "--chain": request.chain}
    named = [name for name, value in given.items() if value]
    if len(named) > 1:
        raise BadUsageError(
            f"{' and '.join(named)} both say what is accepted", hint="give one of them"
        )
    heads = 1 + len(request.candidates) + len(request.plans)
    if len(request.machine.draft_ms) > heads:
        raise BadUsageError(
            f"{len(request.machine.draft_ms)} draft steps for {heads} heads",
            hint="--draft-ms once for REF, then once for each CAND",
        )


def _candidate(path: Path, choice: HeadChoice, request: CostRequest, ref: Head) -> Head:
    cand = load_cand(path, choice, HeadOptions(), request.pair.block, ref)
    if isinstance(cand, Head):
        return cand
    raise BadUsageError(
        f"{path.name} holds proposals, no weights whose bytes could be counted",
        hint="give the head itself",
        where=path,
    )


def target_work(
    ref: Path, verifier: Container | None, context: int
) -> tuple[VerifierCost | None, Work | None, list[str]]:
    """The target model's step: of `verifier`, else of REF where that is a whole model; notes."""
    container = verifier or _whole(open_container(ref))
    if container is None:
        return None, None, ["no target model is at hand (--verifier): its bytes are not known"]
    notes = []
    try:
        fields = text_fields(
            gguf_config(container) if container.format == "gguf" else container.config
        )
    except AuditError:
        fields = {}
    cost, work = verifier_work(container, fields, context)
    if work.longest and context > work.longest:
        notes.append(
            f"{container.path.name} was made for {work.longest:,} tokens, fewer than the context "
            f"of {context:,} that is asked about"
        )
    if not work.kv:
        notes.append(f"{container.path.name} does not tell its KV cache: it is taken as empty")
    return cost, work, notes


def _whole(container: Container) -> Container | None:
    """The container, where it holds a model's first layer, so no mere draft."""
    return container if 0 in layer_numbers(container) else None


def _sources(request: CostRequest, costs: Sequence[HeadCost]) -> list[Source]:
    if request.acceptance:
        return [given_source(request.acceptance, len(costs))]
    if request.run:
        return run_sources(request.run, costs)
    if request.chain:
        return chain_sources(request.chain, costs)
    return []


def _simulated(request: CostRequest) -> list[str]:
    """A cut that lies in its file as the floats it stands for has not the bytes of its type."""
    found = []
    for path in (request.ref, *request.candidates):
        about = made_by_forge(open_container(path).metadata) or {}
        if about.get("simulated"):
            found.append(
                f"{path.name} is a simulated cut ({about.get('cut')}): its bytes here are those of "
                "the file; --plan ROWS:TYPE tells those of a type"
            )
    return found


def _unmatched(costs: Sequence[HeadCost], measured: Sequence[str]) -> list[str]:
    names = {cost.name for cost in costs}
    return [f"measured, and none of these heads: {name}" for name in measured if name not in names]
