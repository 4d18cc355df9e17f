"""Position tables become what a Run says of a candidate: the end of every kind of audit."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from audit.calibration import Calibration
from audit.catalogue import MEASURES_VERSION
from audit.estimates import Facts, estimate_all
from audit.evidence import find
from audit.heads import Head
from audit.measure import AnyHead
from audit.notes import kl_missing
from audit.prediction import foretell
from audit.provenance import now_utc, versions
from audit.records import Candidate, Control, Provenance
from audit.request import AuditRequest
from audit.table import Frame
from audit.verdict import judge


def judge_candidate(
    request: AuditRequest,
    cand: AnyHead,
    frames: Sequence[Frame],
    same: bool,
    controls: Sequence[Control],
    calibration: Calibration | None,
    *,
    ref_margins: bool = True,
) -> Candidate:
    """One candidate's estimates, verdict and prediction from its position tables.

    Args:
        same: its weights decode to the reference's.
        ref_margins: the reference's margins are known; not where it gave only proposals.
    """
    is_head = isinstance(cand, Head)
    trimmed = isinstance(cand, Head) and not cand.is_full
    facts = Facts(
        same_weights=same,
        trimmed=trimmed,
        vocabulary_known=is_head,
        has_kl=is_head and request.kl and not trimmed,
        has_margins=ref_margins,
        kl_missing=kl_missing(request.kl, is_head, trimmed),
    )
    estimates = estimate_all(frames, facts, request.resampling)
    failed = [control.sentence for control in controls if not control.passed]
    verdict = judge(
        estimates,
        same_weights=same,
        trimmed=trimmed,
        failed_controls=failed,
        calibration=calibration,
    )
    prediction = None
    if calibration is not None and not trimmed:
        inside = find(estimates, "disagreement", "in_distribution")
        foretold = foretell(calibration, inside.value if inside else None, verdict.kind)
        prediction = {name: one.model_dump(mode="json") for name, one in foretold.items()}
    return Candidate(
        head=cand.record, estimates=tuple(estimates), verdict=verdict, prediction=prediction
    )


def provenance_of(request: AuditRequest) -> Provenance:
    """With what, when and with which settings this audit runs."""
    how = request.resampling
    return Provenance(
        created=now_utc(),
        versions=versions(),
        measures_version=MEASURES_VERSION,
        platform=f"{platform.system()} {platform.machine()}",
        device=request.device,
        settings={
            "kl": request.kl,
            "anchor_min": request.anchor_min,
            "level": how.level,
            "resamples": how.resamples,
            "seed": how.seed,
        },
    )
