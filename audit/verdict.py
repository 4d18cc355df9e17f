"""Estimates become a verdict: what kind of cut is this, and why.

The verdict is a function of the evidence alone. Each piece is one estimate with its interval held
against a threshold that says where it comes from; pieces that contradict each other give
`undecided`, never a majority. Until this reference has yardsticks of its own, the thresholds are
those of the published study, by name: it is known not to hold on every head, and the sentence says
which rule was used.
"""

from __future__ import annotations

from collections.abc import Sequence

from audit.records import Estimate, Evidence, Verdict, VerdictKind
from audit.stats import positions_needed

PUBLISHED = "published rule (Qwen3.5-9B study)"
HARM_THRESHOLD = 0.21
"""Midway between the study's fidelity cuts (0.14) and its most harmless function cut (0.28)."""
TAX_THRESHOLD = 0.06
"""Midway between the study's dearest fidelity cut (1.9 points) and its cheapest function cut
(10.2 points), as a fraction of one."""
ALWAYS_RIGHT = 0.99
"""A reference accepted this often is the verifier's own head: each disagreement costs one
acceptance by construction, whatever the cut, so the published harm and tax say nothing of it."""
HARMLESS_LOSS = 0.02
"""What fidelity cuts lost at most in the study: a disagreement rate that can not cost more than
this needs no harm estimate."""

Estimates = Sequence[Estimate]


def judge(
    estimates: Estimates,
    *,
    same_weights: bool,
    trimmed: bool,
    failed_controls: Sequence[str] = (),
) -> Verdict:
    """The verdict on one candidate.

    Args:
        estimates: all estimates of the candidate.
        same_weights: every weight decodes to the reference's float, on the same states.
        trimmed: the candidate's vocabulary lacks ids that the reference has.
        failed_controls: sentences of controls that did not give their known answer; an audit
            that fails its own checks decides nothing.
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
    weights = _weights_evidence(estimates, trimmed)
    if trimmed:
        return _judge_trimmed(estimates, weights)
    return _conclude(estimates, weights, prefix="")


def find(
    estimates: Estimates, measure: str, register: str | None, corpus: str | None = None
) -> Estimate | None:
    """The estimate of a measure for one register (pooled) or corpus; None when there is none."""
    for estimate in estimates:
        if (estimate.measure, estimate.corpus, estimate.register_) == (measure, corpus, register):
            return estimate
    return None


def _weights_evidence(estimates: Estimates, trimmed: bool) -> list[Evidence]:
    """What speaks about the weights: the disagreement bound, harm, and the measured tax."""
    suffix = "_covered" if trimmed else ""
    evidence = [_bound(estimates, f"disagreement{suffix}")]
    register = _home_register(estimates)
    acceptance = find(estimates, "acceptance_ref", register)
    applies = acceptance is not None and (acceptance.value or 0.0) < ALWAYS_RIGHT
    harm = find(estimates, f"harm{suffix}", register)
    if harm is not None:
        evidence.append(_held_against("harm", harm, HARM_THRESHOLD, applies))
    # A trim's tax mixes missing rows with changed weights, so it does not speak about the weights.
    tax = None if trimmed else find(estimates, "shift_tax", "domain_shift")
    if tax is not None and tax.value is not None:
        evidence.append(_held_against("shift tax", tax, TAX_THRESHOLD, applies))
    return evidence


def _home_register(estimates: Estimates) -> str:
    """The register the harm rule is stated for, or the nearest that was measured."""
    present = [e.register_ for e in estimates if e.corpus is None and e.measure == "disagreement"]
    order = ("in_distribution", "same_register", "domain_shift")
    return next(register for register in order if register in present)


def _bound(estimates: Estimates, measure: str) -> Evidence:
    """The most that retention can fall, from the disagreement rate alone, in the worst register."""
    worst: tuple[float, Estimate] | None = None
    for estimate in (e for e in estimates if e.measure == measure and e.corpus is None):
        acceptance = find(estimates, "acceptance_ref", estimate.register_)
        if estimate.high is None or acceptance is None or not acceptance.value:
            worst = None
            break
        loss = estimate.high / acceptance.value
        if worst is None or loss > worst[0]:
            worst = (loss, estimate)
    if worst is None:
        return _evidence("disagreement bound", None, HARMLESS_LOSS, "undecided", "no bound: "
                         "too few sequences, or the reference accepts nothing")  # fmt: skip
    loss, estimate = worst
    small = loss <= HARMLESS_LOSS
    sentence = (
        f"it disagrees at {_percent(estimate.value)} of positions (at most "
        f"{_percent(estimate.high)}), so retention can not fall by more than {100 * loss:.1f} "
        f"points there, whatever each disagreement costs"
    )
    kind: VerdictKind = "fidelity" if small else "undecided"
    scale = loss / estimate.high if estimate.high else 1.0
    as_loss = {
        "value": None if estimate.value is None else estimate.value * scale,
        "low": None if estimate.low is None else estimate.low * scale,
        "high": loss,
    }
    largest_loss = estimate.model_copy(update=as_loss)
    return _evidence("disagreement bound", largest_loss, HARMLESS_LOSS, kind, sentence)


def _held_against(name: str, estimate: Estimate, threshold: float, applies: bool) -> Evidence:
    """One estimate's interval against a threshold: below is fidelity, above is function."""
    shown = f"{name} {_signed(estimate, name)}"
    if not applies:
        sentence = (
            f"{shown}: no evidence of its kind, since the reference is the verifier's own head "
            "and each disagreement costs one acceptance by construction"
        )
        return _evidence(name, estimate, threshold, "undecided", sentence, weight=False)
    against = _points(threshold) if name == "shift tax" else f"{threshold:.2f}"
    if estimate.value is None or estimate.low is None or estimate.high is None:
        sentence = f"{name}: {estimate.reason or 'not measured'}"
        return _evidence(name, estimate, threshold, "undecided", sentence)
    if estimate.high < threshold:
        return _evidence(name, estimate, threshold, "fidelity", f"{shown} lies below {against}")
    if estimate.low > threshold:
        return _evidence(name, estimate, threshold, "function", f"{shown} lies above {against}")
    needed = positions_needed(
        estimate.value, estimate.low, estimate.high, threshold, estimate.positions
    )
    more = f"; about {needed:,} positions would decide it" if needed else ""
    sentence = f"{shown} straddles {against}{more}"
    return _evidence(name, estimate, threshold, "undecided", sentence)


def _judge_trimmed(estimates: Estimates, weights: list[Evidence]) -> Verdict:
    ceiling = _worst_ceiling(estimates)
    bound = weights[0]
    covered = [e for e in estimates if e.measure == "disagreement_covered" and e.corpus is None]
    if covered and all(estimate.value == 0 for estimate in covered):
        sentence = (
            f"vocabulary cut: the rows it keeps answer exactly as the reference's do; {ceiling}"
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
        if e.measure == "vocabulary_ceiling" and e.corpus and e.value is not None
    ]
    worst = min(ceilings, key=lambda e: e.value if e.value is not None else 1.0)
    return f"acceptance ceiling from vocabulary: {_percent(worst.value)} on {worst.corpus}"


def _conclude(estimates: Estimates, evidence: list[Evidence], prefix: str) -> Verdict:
    """All decided evidence must agree; a disagreement bound that is small settles it alone."""
    if evidence[0].points_to == "fidelity":
        return _verdict("fidelity", "fidelity cut", prefix + evidence[0].sentence, evidence)
    weighty = [piece for piece in evidence[1:] if piece.weight]
    if not weighty:
        why = f"the published rule does not apply to this reference; {_measured(estimates)}"
        return _verdict("undecided", "undecided", prefix + why, evidence)
    decided = [piece for piece in weighty if piece.points_to != "undecided"]
    kinds = {piece.points_to for piece in decided}
    why = "; ".join(piece.sentence for piece in (decided or weighty)) + f" ({PUBLISHED})"
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
            parts.append(f"{_points(1 - retention.value)} {where}")
    return f"measured: it loses {', '.join(parts)}" if parts else "nothing was measured"


def _verdict(kind: VerdictKind, word: str, why: str, evidence: list[Evidence]) -> Verdict:
    return Verdict(kind=kind, sentence=f"{word}: {why}", evidence=tuple(evidence))


def _evidence(
    name: str,
    estimate: Estimate | None,
    threshold: float,
    points_to: VerdictKind,
    sentence: str,
    weight: bool = True,
) -> Evidence:
    return Evidence(
        name=name,
        corpus=estimate.corpus if estimate else None,
        value=estimate.value if estimate else None,
        low=estimate.low if estimate else None,
        high=estimate.high if estimate else None,
        threshold=threshold,
        source=PUBLISHED,
        points_to=points_to,
        weight=weight,
        sentence=sentence,
    )


def _signed(estimate: Estimate, name: str) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "unknown"
    show = _points if name == "shift tax" else "{:.2f}".format
    return f"{show(estimate.value)} ({show(estimate.low)} to {show(estimate.high)})"


def _percent(value: float | None) -> str:
    return "an unknown share" if value is None else f"{100 * value:.2f} %"


def _points(value: float) -> str:
    return f"{100 * value:.1f} points"
