"""One audit from files to a Run. Read this first.

A file becomes a `Head`, traces are found, both heads run on the same states (`measure`), the
position tables become estimates, estimates become a verdict, and all of it becomes a `Run`. The
order is fixed: preflight, anchor, controls, measure, verdict; most real failures end in the first
two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from audit.anchor import check_anchor, settle_anchors
from audit.calibration import Calibration
from audit.comparable import check_belonging
from audit.controls import run_controls
from audit.errors import BadUsageError, NotFoundError
from audit.files import open_container
from audit.heads import Head, trim_reference
from audit.heads.preflight import check_alive, not_compressed, notes_of
from audit.heads.proposals import is_proposals
from audit.heads.scan import scan_rows
from audit.heads.tokens import Tokens, read_tokens
from audit.measure import AnyHead, Measured, measure_trace, valid_ids, with_own_names
from audit.notes import other_heads, other_tokenizers, pad_wins, saturated_ties, wide_ties
from audit.outcome import judge_candidate, provenance_of
from audit.pair import HeadChoice, choose_head, load_cand, load_ref
from audit.preflight import Beside, of_file
from audit.proposed import audit_proposals
from audit.records import Control, Finding, Run
from audit.request import AuditRequest, CandidateRequest, Finished
from audit.traces import Trace, find_traces, read_traces
from audit.traces.bundled import bundled_traces, whole_model

__all__ = ["AuditRequest", "CandidateRequest", "Finished", "audit_heads"]

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, steps done, steps in all)."""


def audit_heads(request: AuditRequest, progress: Progress | None = None) -> Finished:
    """Audit one or more candidates against one reference.

    Raises:
        AuditError: bad input of any kind, before anything is written.
    """
    report = progress or (lambda what, done, total: None)
    if is_proposals(open_container(request.ref)):
        return audit_proposals(request)
    files = [wanted.path for wanted in request.candidates if not wanted.is_trim]
    choice = choose_head(request.ref, files, request.pair.head)
    ref = load_ref(request.ref, choice, request.ref_options, request.pair.block)
    cands = _load_candidates(request, choice, ref)
    traces = read_traces(_find_traces(request, choice, report), check=False)
    tokens = _tokens(request)
    findings = other_heads(choice) + check_belonging(ref, traces, force=request.force)
    findings += _preflight(request, ref, cands, tokens, report)
    findings += other_tokenizers(traces, tokens)
    measured, controls = _measure(request, ref, cands, traces, tokens, report)
    calibration, notes = _calibration(request, ref, traces)
    findings += notes
    candidates = []
    for i, cand in enumerate(cands):
        frames = [m.frames[i] for m in measured]
        same = all(m.same_weights[i] for m in measured)
        made, doubts = judge_candidate(request, cand, frames, same, controls, calibration)
        candidates.append(made)
        findings += doubts
        if same:
            findings.append(not_compressed(cand.record.name))
    run = Run(
        run="",
        reference=ref.record,
        candidates=tuple(candidates),
        traces=tuple(trace.record() for trace in traces),
        preflight=tuple(
            findings
            + wide_ties(cands, measured)
            + saturated_ties(traces, measured)
            + pad_wins(traces, measured)
        ),
        controls=tuple(controls),
        calibration=calibration.summary() if calibration else None,
        provenance=provenance_of(request),
    )
    return Finished(run, [frame for m in measured for frame in m.frames])


def _load_candidates(request: AuditRequest, choice: HeadChoice, ref: Head) -> list[AnyHead]:
    """Load every candidate under a name of its own."""
    cands: list[AnyHead] = []
    for wanted in request.candidates:
        if wanted.is_trim:
            cands.append(trim_reference(ref, wanted.path))
        else:
            block = request.pair.block
            cands.append(load_cand(wanted.path, choice, wanted.options, block, ref))
    if not cands:
        raise BadUsageError("no candidate was given", hint="audit compare REF CAND, or --trim FILE")
    return with_own_names(cands)


def _find_traces(request: AuditRequest, choice: HeadChoice, report: Progress) -> list[Path]:
    """Named or found traces; for a whole model without any, those of the bundled corpora."""
    try:
        return find_traces(request.traces, request.ref)
    except NotFoundError:
        model = None if request.traces else whole_model(request.ref)
        if model is None:
            raise
        return bundled_traces(model, report, layers=choice.name.states)


def _tokens(request: AuditRequest) -> Tokens:
    """What is known of the ids: beside the reference, else beside the verifier of a draft."""
    own, verifier = read_tokens(open_container(request.ref)), request.pair.block.verifier
    return own if own.pieces is not None or verifier is None else read_tokens(verifier)


def _preflight(
    request: AuditRequest,
    ref: Head,
    cands: Sequence[AnyHead],
    tokens: Tokens,
    report: Progress,
) -> list[Finding]:
    place = open_container(request.ref)
    verifier = request.pair.block.verifier
    findings = of_file(place, ref, "reference", verifier) + notes_of(ref, "reference")
    report("preflight", 0, 1 + len(cands))
    ref_scan = scan_rows(ref.rows)
    check_alive(ref, ref_scan)
    pair = Beside(place, ref, ref_scan, tokens, read_tokens(place))
    for done, (wanted, cand) in enumerate(zip(request.candidates, cands, strict=True), start=1):
        report("preflight", done, 1 + len(cands))
        if isinstance(cand, Head):
            own = None if wanted.is_trim else open_container(wanted.path)
            findings += pair.findings(own, cand, scan_rows(cand.rows))
    report("preflight", 1 + len(cands), 1 + len(cands))
    return findings


def _measure(
    request: AuditRequest,
    ref: Head,
    cands: Sequence[AnyHead],
    traces: Sequence[Trace],
    tokens: Tokens,
    report: Progress,
) -> tuple[list[Measured], list[Control]]:
    measured: list[Measured] = []
    anchors: list[Control] = []
    for trace in traces:
        corpus = trace.info.corpus

        def tick(done: int, total: int, what: str = f"compare on {corpus}") -> None:
            report(what, done, total)

        known = tokens if tokens.of_trace(trace.info.tokenizer_sha256) else None
        result = measure_trace(
            ref, cands, trace, kl=request.kl, tokens=known, device=request.device, progress=tick
        )
        valid = valid_ids(ref, trace)
        anchors.append(check_anchor(ref, trace, result, valid, request.anchor_min))
        measured.append(result)
    valid = min(valid_ids(ref, trace) for trace in traces)
    anchors = settle_anchors(ref, anchors, measured, valid)
    report("controls", 0, 1)
    controls = run_controls(
        ref, traces, measured, valid, device=request.device, seed=request.resampling.seed
    )
    report("controls", 1, 1)
    return measured, anchors + controls


def _calibration(
    request: AuditRequest, ref: Head, traces: Sequence[Trace]
) -> tuple[Calibration | None, list[Finding]]:
    """The reference's calibration, if it was made on these very traces; a note if on others."""
    wanted = {trace.info.corpus: trace.sha256 or "" for trace in traces}
    ledger = request.ledger
    found = ledger.load_calibration(ref.record.sha256, wanted) if ledger else None
    if found is None:
        return None, []
    other = [t.info.corpus for t in traces if found.traces.get(t.info.corpus) != t.sha256]
    if not other:
        return found, []
    sentence = (
        f"the calibration of this reference was made on other traces than {', '.join(other)}, "
        "so it is not used: disagreement on different text can not be held against it"
    )
    note = Finding(
        code="CALIBRATION_OTHER_TRACES", severity="note", subject="reference", sentence=sentence
    )
    return None, [note]
