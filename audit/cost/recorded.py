"""Chain figures and break-even margins in a Run, so that reports show and policies limit them.

They join the candidate's estimates under the measures of `catalogue.CHAIN_MEASURES`; K and every
assumption stand in the run's settings. Figures of other heads or other traces are refused; those of
corpora that the run lacks are left out. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from audit.chains.records import ChainHead, ChainResult
from audit.cost.consistent import contradiction
from audit.cost.records import COST_SCHEMA, CostResult
from audit.errors import BadUsageError, MismatchError
from audit.figures import read_figures
from audit.records import Candidate, Estimate, Register, Run
from audit.words import some

_LEVEL = 0.95
_Place = tuple[str | None, Register | None]
_MODEL = "a model on stated assumptions; the interval is that of acceptance"


def read_cost(path: Path) -> CostResult:
    """What `audit cost -o` wrote. Raises as `read_figures` does."""
    return read_figures(
        path, CostResult, "cost", "write it with `audit cost REF CAND ... -o FILE`",
        lambda found: found.schema_version, COST_SCHEMA, contradiction,
    )  # fmt: skip


def with_figures(run: Run, chain: ChainResult | None, cost: CostResult | None) -> Run:
    """The run with what `audit chain` and `audit cost` found of its candidates.

    Raises:
        MismatchError: they are of another reference, of none of these candidates, or of other
            traces.
        BadUsageError: acceptance was given by hand, which measures nothing.
    """
    settings: dict[str, Any] = dict(run.provenance.settings)
    more: dict[str, list[Estimate]] = {one.head.sha256: [] for one in run.candidates}
    if chain:
        _check_chain(run, chain)
        measured = {(one.corpus, one.register_) for one in chain.heads[0].figures}
        shared = _shared(run, measured, "chain")
        for head in chain.heads[1:]:
            more.setdefault(head.head.sha256, []).extend(_of_chain(head, shared))
        settings["chain"] = {
            "slots": chain.slots, "p_min": chain.p_min, "anchors": chain.anchors,
            "seed": chain.seed, "verifier": chain.verifier,
        }  # fmt: skip
    if cost:
        _check_cost(run, cost)
        shared = _shared(run, {(one.corpus, one.register_) for one in cost.scenarios}, "cost")
        for number, one in enumerate(cost.heads[1:], start=1):
            more.setdefault(one.sha256 or "", []).extend(_of_cost(cost, number, shared))
        first = cost.scenarios[0].worth[0]
        settings["cost"] = {
            "slots": first.slots, "context": first.context, "users": first.users,
            "assumptions": list(cost.assumptions),
        }  # fmt: skip
    findings = chain.findings if chain else ()
    candidates = tuple(_joined(one, more[one.head.sha256]) for one in run.candidates)
    provenance = run.provenance.model_copy(update={"settings": settings})
    changed = {
        "candidates": candidates, "provenance": provenance,
        "preflight": (*run.preflight, *findings),
    }  # fmt: skip
    return run.model_copy(update=changed)


def _joined(candidate: Candidate, more: list[Estimate]) -> Candidate:
    return candidate.model_copy(update={"estimates": (*candidate.estimates, *more)})


def _check_chain(run: Run, chain: ChainResult) -> None:
    _check_heads(run, [one.head.sha256 for one in chain.heads], "chain")
    here = {trace.info.corpus: trace.sha256 for trace in run.traces}
    for trace in chain.traces:
        if here.get(trace.info.corpus, trace.sha256) != trace.sha256:
            raise MismatchError(
                f"the chain figures were measured on another trace of {trace.info.corpus}",
                hint="run `audit chain` on the traces of this audit",
            )


def _check_cost(run: Run, cost: CostResult) -> None:
    _check_heads(run, [one.sha256 for one in cost.heads], "cost")
    if not cost.scenarios or any(one.register_ is None for one in cost.scenarios):
        raise BadUsageError(
            "the cost figures rest on no acceptance that was measured",
            hint="`audit cost ... --chain FILE -o COST` or `--run ID -o COST`",
        )


def _check_heads(run: Run, hashes: list[str | None], what: str) -> None:
    if not hashes or hashes[0] != run.reference.sha256:
        raise MismatchError(
            f"the {what} figures are of another reference than {run.reference.name}",
            hint=f"run `audit {what}` on these very files",
        )
    if not {one.head.sha256 for one in run.candidates} & set(hashes[1:]):
        raise MismatchError(
            f"the {what} figures are of none of these candidates",
            hint=f"run `audit {what}` on these very files",
        )


def _shared(run: Run, measured: Iterable[_Place], what: str) -> set[_Place]:
    """Texts of the figures that the run has as well. A whole register only where both have the
    same corpora of it, so that pooling is the same.

    Raises:
        MismatchError: there is none.
    """
    ours = {(trace.info.corpus, trace.info.register_) for trace in run.traces}
    theirs = {(corpus, register) for corpus, register in measured if corpus is not None}
    shared: set[_Place] = {place for place in ours if place in theirs}
    if not shared:
        raise MismatchError(
            f"the {what} figures are of {some(sorted(corpus for corpus, _ in theirs))}, of which "
            "this audit has no trace",
            hint="make them from the traces of this audit",
        )
    for register in {register for _, register in ours}:
        if {p for p in ours if p[1] == register} == {p for p in theirs if p[1] == register}:
            shared.add((None, register))
    return shared


def _of_chain(head: ChainHead, shared: set[_Place]) -> Iterator[Estimate]:
    for one in head.figures:
        if (one.corpus, one.register_) in shared:
            yield one.tokens_per_round
            yield one.chain_acceptance


def _of_cost(cost: CostResult, number: int, shared: set[_Place]) -> Iterator[Estimate]:
    """The margin of one head against plain decoding, its interval that of acceptance alone."""
    for scenario in cost.scenarios:
        if (scenario.corpus, scenario.register_) not in shared:
            continue
        worth = scenario.worth[number]
        known = worth.break_even_margin is not None
        yield Estimate(
            measure="break_even_margin",
            corpus=scenario.corpus,
            register=scenario.register_,
            value=worth.break_even_margin,
            low=worth.margin_low if known else None,
            high=worth.margin_high if known else None,
            level=_LEVEL,
            positions=scenario.positions,
            sequences=scenario.sequences,
            reason=worth.reason or _MODEL,
        )
