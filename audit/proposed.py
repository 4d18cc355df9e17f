"""An audit in which the reference, too, ran elsewhere: proposals against proposals.

Without weights there is nothing to multiply, no margin and no rank. What remains is counted: who
proposed what, and what the verifier wanted. Every file must be of the one trace.
"""

from __future__ import annotations

import numpy as np
import torch

from audit.anchor import beyond_chance
from audit.controls import shifted_control
from audit.errors import BadUsageError, MismatchError
from audit.files import open_container
from audit.heads import Proposals
from audit.heads.proposals import check_trace, is_proposals, read_proposals
from audit.measure import proposal_columns, trace_columns, with_own_names
from audit.outcome import judge_candidate, provenance_of
from audit.records import Candidate, Control, Finding, Run
from audit.request import AuditRequest, Finished
from audit.table import Frame, position_frame
from audit.traces import Trace, find_traces, lookahead_rows, read_trace


def audit_proposals(request: AuditRequest) -> Finished:
    """Audit proposals files against a proposals file.

    Raises:
        BadUsageError: a candidate is a head, or several traces were found.
        MismatchError: a file is of another trace, or the reference is near chance.
    """
    trace = _the_trace(request)
    rows, targets = lookahead_rows(trace, 1)
    oracle = trace.oracle[targets]
    ref, *found = _read_all(request, trace)
    cands = with_own_names(found)
    anchor = _anchor(ref, trace, ref.proposal[rows], oracle)
    controls = [anchor]
    if len(oracle) > 1:
        controls.append(shifted_control(trace.info.corpus, ref.proposal[rows], oracle))
    candidates: list[Candidate] = []
    findings: list[Finding] = []
    frames: list[Frame] = []
    for cand in cands:
        frame = _frame(trace, rows, targets, ref, cand)
        made, doubts = judge_candidate(
            request, cand, [frame], False, controls, None, ref_margins=False
        )
        candidates.append(made)
        findings += doubts
        frames.append(frame)
    run = Run(
        run="",
        reference=ref.record,
        candidates=tuple(candidates),
        traces=(trace.record(),),
        preflight=tuple(findings),
        controls=tuple(controls),
        provenance=provenance_of(request),
    )
    return Finished(run, frames)


def _the_trace(request: AuditRequest) -> Trace:
    paths = find_traces(request.traces, request.ref)
    if len(paths) == 1:
        return read_trace(paths[0])
    raise BadUsageError(
        f"proposals are of one trace, {len(paths)} were found",
        hint="name the trace they were made on with --trace",
        where=request.ref,
    )


def _read_all(request: AuditRequest, trace: Trace) -> list[Proposals]:
    """The reference and the candidates."""
    highest = int(torch.maximum(trace.token.max(), trace.oracle.max())) + 1
    vocabulary = trace.info.vocabulary or request.ref_options.vocabulary or highest
    found: list[Proposals] = []
    for path in (request.ref, *(wanted.path for wanted in request.candidates)):
        container = open_container(path)
        if not is_proposals(container):
            raise BadUsageError(
                "the reference is a proposals file, so this candidate must be one too",
                hint="give the reference's weights to audit a head against it",
                where=path,
            )
        read = read_proposals(container, vocabulary)
        check_trace(read, trace.sha256 or "", trace.positions)
        found.append(read)
    if len(found) == 1:
        raise BadUsageError("no candidate was given", hint="audit compare REF CAND")
    return found


def _anchor(ref: Proposals, trace: Trace, proposal: torch.Tensor, oracle: torch.Tensor) -> Control:
    share = float((proposal == oracle).float().mean())
    anchor = beyond_chance(trace.info.corpus, proposal, oracle, share)
    if anchor.passed:
        return anchor
    raise MismatchError(
        f"{ref.record.name} proposes {100 * share:.1f} % of the oracle tokens, which chance "
        f"gives too ({anchor.expected})",
        hint="are its rows those of this trace, and not shifted by one?",
        where=ref.record.path,
        code="STATES_NOT_FOR_THIS_HEAD",
    )


def _frame(
    trace: Trace, rows: torch.Tensor, targets: torch.Tensor, ref: Proposals, cand: Proposals
) -> Frame:
    proposal = ref.proposal[rows]
    columns = trace_columns(trace, rows, targets) | {
        "candidate": cand.record.name,
        "ref": proposal.numpy(),
        "ref_margin": None,
        "ref_tied": np.zeros(len(rows), bool),
        "ref_rank": None,
    }
    return position_frame(columns | proposal_columns(cand.proposal[rows], proposal))
