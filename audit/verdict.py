"""Estimates become a verdict: what kind of cut is this, and why.

The verdict is a function of the evidence alone. Each piece is one estimate with its interval held
against a threshold that says where it comes from; pieces that contradict each other give
`undecided`, never a majority. Where this reference has yardsticks of its own, thresholds are
theirs, and a rule that failed its check on them carries no weight. Without yardsticks they are
those of the published study, by name: it is known not to hold on every head.
"""

from __future__ import annotations

from collections.abc import Sequence

from audit.calibration import Calibration
from audit.evidence import PUBLISHED, Estimates, find, percent, points, pooled, weigh
from audit.records import Evidence, Verdict, VerdictKind


def judge(
    estimates: Estimates,
    *,
    same_weights: bool,
    trimmed: bool,
    failed_controls: Sequence[str] = (),
    doubts: Sequence[str] = (),
    calibration: Calibration | None = None,
) -> Verdict:
    """The verdict on one candidate.

    Args:
        estimates: all estimates of the candidate.
        same_weights: every weight decodes to the reference's float, on the same states.
        trimmed: the candidate's vocabulary lacks ids that the reference has.
        failed_controls: sentences of controls that did not give their known answer; an audit
            that fails its own checks decides nothing.
        doubts: signs that one of the two heads is broken, which no kind of cut explains.
        calibration: this reference's yardsticks, audited on the same traces.
    """
    if failed_controls:
        why = "; ".join(failed_controls)
        sentence = f"undecided: the audit failed its own controls, believe no number here: {why}"
        return Verdict(kind="undecided", sentence=sentence, evidence=())
    if same_weights:
        return Verdict(
            kind="identical",
            sentence="identical: every weight decodes to the same number as the reference's, "
            "so nothing was compressed and nothing can differ",
            evidence=(),
        )
    weights = weigh(estimates, trimmed, calibration)
    if doubts:
        return _verdict("undecided", "undecided", "; ".join(doubts), weights)
    if trimmed:
        return _judge_trimmed(estimates, weights)
    return _conclude(estimates, weights, prefix="")


def _judge_trimmed(estimates: Estimates, weights: list[Evidence]) -> Verdict:
    ceiling = _worst_ceiling(estimates)
    bound = weights[0]
    covered = pooled(estimates, "disagreement_covered")
    if covered and all(estimate.value == 0 for estimate in covered):
        sentence = (
            "vocabulary cut: within its vocabulary it answers exactly as the reference on these "
            f"positions; {ceiling}"
        )
        return Verdict(kind="vocabulary", sentence=sentence, evidence=tuple(weights))
    if bound.points_to == "fidelity":
        sentence = f"vocabulary cut: {ceiling}; within its vocabulary {bound.sentence}"
        return Verdict(kind="vocabulary", sentence=sentence, evidence=tuple(weights))
    return _conclude(estimates, weights, prefix=f"{ceiling}; within its vocabulary: ")


def _worst_ceiling(estimates: Estimates) -> str:
    ceilings = [
        e
        for e in estimates
        if (e.measure, e.token_class) == ("vocabulary_ceiling", None)
        and e.corpus
        and e.value is not None
    ]
    worst = min(ceilings, key=lambda e: e.value if e.value is not None else 1.0)
    return f"acceptance ceiling from vocabulary: {percent(worst.value)} on {worst.corpus}"


def _conclude(estimates: Estimates, evidence: list[Evidence], prefix: str) -> Verdict:
    """All decided evidence must agree; a disagreement bound that is small settles it alone."""
    if evidence[0].points_to == "fidelity":
        return _verdict("fidelity", "fidelity cut", prefix + evidence[0].sentence, evidence)
    weighty = [piece for piece in evidence[1:] if piece.weight]
    if not weighty:
        published = {piece.source for piece in evidence[1:]} <= {PUBLISHED}
        rule = "the published rule does not apply to" if published else "no rule holds on"
        why = f"{rule} this reference; {_measured(estimates)}"
        return _verdict("undecided", "undecided", prefix + why, evidence)
    decided = [piece for piece in weighty if piece.points_to != "undecided"]
    kinds = {piece.points_to for piece in decided}
    told = decided or weighty
    sources = ", ".join(dict.fromkeys(piece.source for piece in told))
    why = "; ".join(piece.sentence for piece in told) + f" ({sources})"
    if kinds == {"fidelity"}:
        return _verdict("fidelity", "fidelity cut", prefix + why, evidence)
    if kinds == {"function"}:
        return _verdict("function", "function cut", prefix + why, evidence)
    conflict = "the evidence conflicts: " if kinds else ""
    return _verdict("undecided", "undecided", prefix + conflict + why, evidence)


def _measured(estimates: Estimates) -> str:
    """What was measured, register by register, where no rule can name the cut."""
    words = {
        "in_distribution": "in distribution",
        "same_register": "on the same register",
        "domain_shift": "under domain shift",
    }
    parts = []
    for register, where in words.items():
        retention = find(estimates, "retention", register)
        if retention is not None and retention.value is not None:
            parts.append(f"{points(1 - retention.value)} {where}")
    return f"measured: it loses {', '.join(parts)}" if parts else "nothing was measured"


def _verdict(kind: VerdictKind, word: str, why: str, evidence: list[Evidence]) -> Verdict:
    return Verdict(kind=kind, sentence=f"{word}: {why}", evidence=tuple(evidence))
