"""What `audit chain` does, from files to a document, without its words. Read this for the order.

Heads are loaded as for `audit compare`; anchors are drawn on each trace; every head drafts from
the same anchors, and the verifier checks what it drafted. Slot 0 needs the trace alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from audit.chains.anchors import draw_anchors
from audit.chains.drafting import Anchors, draft_chains
from audit.chains.figures import Counted, chain_figures, slot_harm
from audit.chains.records import ChainHead, ChainResult
from audit.chains.recursion import Recursion, recursion_for
from audit.chains.verifying import Checker, accepted_slots, check_model
from audit.errors import BadUsageError, NotFoundError
from audit.files import open_container
from audit.heads import Head, HeadOptions
from audit.heads.tokens import read_tokens
from audit.measure import refuse_twins, valid_ids, with_own_names
from audit.pair import PairOptions, choose_head, load_cand, load_ref
from audit.records import Stage
from audit.stats import Resampling
from audit.traces import Trace, find_traces, read_traces
from audit.traces.bundled import whole_model
from audit.traces.repeats import units

if TYPE_CHECKING:
    from audit.traces.verifier import Verifier

Progress = Callable[[str, int, int], None]
ANCHORS = 100
MOST_SLOTS = 64


@dataclass(frozen=True, slots=True)
class ChainRequest:
    """Everything a user can ask of `audit chain`."""

    ref: Path
    candidates: tuple[Path, ...] = ()
    slots: int = 4
    p_min: float = 0.0
    traces: tuple[Path, ...] = ()
    anchors: int = ANCHORS
    """Per trace; 0 for every position."""
    chain_stage: Stage | None = None
    device: str = "cpu"
    """Where the verifier, the block and the products run."""
    ref_options: HeadOptions = field(default_factory=HeadOptions)
    pair: PairOptions = field(default_factory=PairOptions)
    resampling: Resampling = field(default_factory=Resampling)


def check_slots(slots: int, p_min: float) -> None:
    """Raise BadUsageError for numbers that no chain can have."""
    if not 1 <= slots <= MOST_SLOTS:
        raise BadUsageError(f"--slots {slots}: a chain has 1 to {MOST_SLOTS} slots")
    if not 0.0 <= p_min <= 1.0:
        raise BadUsageError(f"--p-min {p_min:g} is no probability", hint="from 0 to 1")


def run_chain(request: ChainRequest, progress: Progress | None = None) -> ChainResult:
    """Draft and check chains of every head on every trace.

    Raises:
        AuditError: bad input of any kind.
    """
    report = progress or (lambda what, done, total: None)
    check_slots(request.slots, request.p_min)
    heads = load_heads(request)
    refuse_twins(heads[1:])
    recursions = [_recursion(request, head) for head in heads]
    traces = read_traces(find_traces(request.traces, request.ref))
    verifier = _verifier(request, report) if request.slots > 1 else None
    if verifier:
        recursions = [_recursion(request, head, verifier) for head in heads]
    counted: list[list[Counted]] = [[] for _ in heads]
    checkers, notes = [], list[str]()
    for trace in traces:
        checker = Checker(verifier, trace)
        checkers.append(checker)
        anchors, crowded = _anchors(request, heads[0], trace, verifier)
        if crowded:
            notes.append(f"{trace.info.corpus}: {crowded:,} positions have no room for a chain")
        for into, head, recursion in zip(counted, heads, recursions, strict=True):
            into.append(_count(request, head, recursion, checker, anchors, report))
    check_model(checkers)
    checked = sum(checker.checked for checker in checkers)
    return ChainResult(
        slots=request.slots,
        p_min=request.p_min,
        anchors=request.anchors,
        seed=request.resampling.seed,
        heads=_described(heads, recursions, counted, request.resampling),
        traces=tuple(trace.record() for trace in traces),
        verifier=verifier.identity.name if verifier else None,
        verifier_agreement=sum(c.agreed for c in checkers) / checked if checked else None,
        findings=tuple(found for checker in checkers for found in checker.findings()),
        notes=tuple(notes),
        assumptions=assumptions(request.slots, request.p_min),
    )


def assumptions(slots: int, p_min: float) -> tuple[str, ...]:
    """What chain figures rest on, in sentences."""
    said = [
        "greedy: a slot is accepted where it drafts the verifier's own greedy token",
        "anchors are positions of the text, each as likely as another; a serving engine begins "
        "its rounds where the last one ended",
        "acceptance stops at an end-of-sequence token, and no chain begins behind one",
        f"figures of K = {slots} are not those of another K",
    ]
    if p_min:
        said.append(
            f"drafting stops before the first slot whose probability is below {p_min:g}, over all "
            "rows of the head; what is not drafted counts as not accepted"
        )
    return tuple(said)


def load_heads(request: ChainRequest) -> list[Head]:
    """The reference and all candidates, under names of their own."""
    choice = choose_head(request.ref, request.candidates, request.pair.head)
    ref = load_ref(request.ref, choice, request.ref_options, request.pair.block)
    cands = []
    for path in request.candidates:
        cand = load_cand(path, choice, HeadOptions(), request.pair.block, ref)
        if not isinstance(cand, Head):
            raise BadUsageError(
                f"{path.name} holds proposals of one slot, and no head that could draft more",
                hint="give the head itself",
                where=path,
            )
        cands.append(cand)
    return [ref, *with_own_names(cands)]


def context_of(verifier: Verifier | None) -> int | None:
    """Longest text that the verifier was made for, where it says so."""
    config = verifier.model.config.get_text_config() if verifier else None
    longest = getattr(config, "max_position_embeddings", None)
    return longest if isinstance(longest, int) else None


def _verifier(request: ChainRequest, report: Progress) -> Verifier:
    """The model that checks slots beyond the first."""
    given = request.pair.block.verifier
    path = given.path if given else whole_model(request.ref)
    if path is None:
        raise NotFoundError(
            f"{request.slots} slots need the verifier's model: only it can say what follows a "
            "drafted token, a trace knows the first slot alone",
            hint="--verifier MODEL, or --slots 1",
            where=request.ref,
        )
    from audit.traces.verifier import load_verifier

    report("loading the verifier", 0, 1)
    return load_verifier(path, device=request.device)


def _recursion(request: ChainRequest, head: Head, verifier: Verifier | None = None) -> Recursion:
    model = verifier.model if verifier else None
    return recursion_for(head, model, request.chain_stage).to(request.device)


def _ends(request: ChainRequest, verifier: Verifier | None) -> list[int]:
    if verifier is None:
        return sorted(read_tokens(open_container(request.ref)).kinds.stop)
    from audit.traces.generate import end_tokens

    return end_tokens(verifier)


def _anchors(
    request: ChainRequest, ref: Head, trace: Trace, verifier: Verifier | None
) -> tuple[Anchors, int]:
    return draw_anchors(
        trace,
        ref.lookahead,
        request.slots,
        request.anchors,
        request.resampling.seed,
        ends=_ends(request, verifier),
        context=context_of(verifier),
    )


def _count(
    request: ChainRequest,
    head: Head,
    recursion: Recursion,
    checker: Checker,
    anchors: Anchors,
    report: Progress,
) -> Counted:
    """One head's chains on one trace."""
    trace = checker.trace
    what = f"{head.record.name} on {trace.info.corpus}"
    drafts = draft_chains(
        head, recursion, trace, anchors, slots=request.slots, valid=valid_ids(head, trace),
        p_min=request.p_min, tick=lambda done: report(f"draft {what}", done, len(anchors)),
    )  # fmt: skip
    greedy = checker.greedy(
        anchors, drafts.tokens, lambda done: report(f"verify {what}", done, len(anchors))
    )
    accepted = accepted_slots(drafts, greedy, _ends(request, checker.verifier))
    return Counted(
        corpus=trace.info.corpus,
        register=trace.info.register_,
        sequence=units(trace)[anchors.targets].numpy(),
        tokens=drafts.tokens.numpy(),
        drafted=drafts.drafted.numpy(),
        accepted=accepted.numpy(),
    )


def _described(
    heads: Sequence[Head],
    recursions: Sequence[Recursion],
    counted: Sequence[Sequence[Counted]],
    how: Resampling,
) -> tuple[ChainHead, ...]:
    return tuple(
        ChainHead(
            head=head.record,
            recursion=recursion.said,
            figures=chain_figures(mine, how),
            harm=slot_harm(counted[0], mine, how) if number else (),
        )
        for number, (head, recursion, mine) in enumerate(
            zip(heads, recursions, counted, strict=True)
        )
    )
