"""The evidence a verdict rests on: estimates held against thresholds that say where they come from.

Each piece is one estimate with its interval. A rule that failed its check on this reference's
yardsticks gives evidence without weight, shown all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from audit.calibration import PUBLISHED_HARM, Calibration, ladder_distance
from audit.records import Estimate, Evidence, VerdictKind
from audit.stats import positions_needed

PUBLISHED = "published rule (Qwen3.5-9B study)"
TAX_THRESHOLD = 0.06
"""Midway between the study's dearest fidelity cut (1.9 points) and its cheapest function cut
(10.2 points), as a fraction of one."""
ALWAYS_RIGHT = 0.99
"""A reference accepted this often is the verifier's own head: each disagreement costs one
acceptance by construction, whatever the cut, so the published harm and tax say nothing of it."""
HARMLESS_LOSS = 0.02
"""What fidelity cuts lost at most in the study: a disagreement rate that can not cost more than
this needs no harm estimate."""

LADDER = "ladder distance"
Estimates = Sequence[Estimate]


def find(
    estimates: Estimates,
    measure: str,
    register: str | None,
    corpus: str | None = None,
    token_class: str | None = None,
) -> Estimate | None:
    """The estimate of a measure for one register (pooled) or corpus; None when there is none.

    Over all positions, unless a token class is asked for.
    """
    wanted = (measure, corpus, register, token_class)
    for e in estimates:
        if (e.measure, e.corpus, e.register_, e.token_class) == wanted:
            return e
    return None


def pooled(estimates: Estimates, measure: str) -> list[Estimate]:
    """A measure's estimates over each register, over all positions."""
    return [
        e for e in estimates if e.measure == measure and e.corpus is None and e.token_class is None
    ]


@dataclass(frozen=True, slots=True)
class Rule:
    """A threshold, where it comes from, and whether it carries weight here."""

    threshold: float
    source: str
    weight: bool
    why_not: str = ""


def harm_rule(calibration: Calibration | None) -> Rule:
    """The harm threshold: from the yardsticks where it separates them, else the published one."""
    if calibration is None:
        return Rule(PUBLISHED_HARM, PUBLISHED, weight=True)
    own = calibration.rule("harm")
    if own and own.weight and own.threshold is not None:
        return Rule(own.threshold, "yardsticks", weight=True)
    published = calibration.rule("published harm")
    holds = published is not None and published.weight
    return Rule(PUBLISHED_HARM, PUBLISHED, holds, "it failed its check on the yardsticks")


def checked_rule(calibration: Calibration, name: str, fallback: float) -> Rule:
    """A rule that exists only with yardsticks; weightless where they do not bear it out."""
    found = calibration.rule(name)
    threshold = found.threshold if found else None
    weight = found is not None and found.weight and threshold is not None
    source = found.source if found else "yardsticks"
    return Rule(
        fallback if threshold is None else threshold,
        source,
        weight,
        "it failed its check on the yardsticks",
    )


def weigh(estimates: Estimates, trimmed: bool, calibration: Calibration | None) -> list[Evidence]:
    """What speaks about the weights: disagreement bound, harm, ladder distance, measured tax."""
    suffix = "_covered" if trimmed else ""
    evidence = [_bound(estimates, f"disagreement{suffix}")]
    register = _home_register(estimates)
    acceptance = find(estimates, "acceptance_ref", register)
    own_head = acceptance is not None and (acceptance.value or 0.0) >= ALWAYS_RIGHT
    harm = find(estimates, f"harm{suffix}", register)
    if harm is not None:
        evidence.append(_held_against("harm", harm, harm_rule(calibration), own_head))
    # A trim mixes missing rows with changed weights, so shift says nothing about the weights.
    tax = None if trimmed else find(estimates, "shift_tax", "domain_shift")
    if tax is not None and tax.value is not None:
        rule = Rule(TAX_THRESHOLD, PUBLISHED, weight=True)
        if calibration is not None:
            rule = checked_rule(calibration, "shift tax", TAX_THRESHOLD)
        evidence.append(_held_against("shift tax", tax, rule, own_head))
    if calibration is not None and not trimmed:
        evidence += _ladder_evidence(estimates, calibration)
    return evidence


def _ladder_evidence(estimates: Estimates, calibration: Calibration) -> list[Evidence]:
    """Disagreement under shift beyond the noise ladder's at equal disagreement in distribution.

    The interval is that of the shifted disagreement; the rungs' own error is in the threshold,
    which is taken from cuts held against the same rungs.
    """
    inside = find(estimates, "disagreement", "in_distribution")
    shifted = find(estimates, "disagreement", "domain_shift")
    if inside is None or inside.value is None or shifted is None:
        return []
    ladder = calibration.ladder()
    value, low, high = (
        ladder_distance(inside.value, bound, ladder)
        for bound in (shifted.value, shifted.low, shifted.high)
    )
    if value is None:
        return []
    distance = shifted.model_copy(update={"value": value, "low": low, "high": high})
    rule = checked_rule(calibration, LADDER, 0.0)
    return [_held_against(LADDER, distance, rule, own_head=False)]


_HARMLESS = Rule(HARMLESS_LOSS, PUBLISHED, weight=True)


def _home_register(estimates: Estimates) -> str:
    """The register the harm rule is stated for, or the nearest that was measured."""
    present = [estimate.register_ for estimate in pooled(estimates, "disagreement")]
    order = ("in_distribution", "same_register", "domain_shift")
    return next(register for register in order if register in present)


def _bound(estimates: Estimates, measure: str) -> Evidence:
    """The most that retention can fall, from the disagreement rate alone, in the worst register."""
    worst: tuple[float, Estimate] | None = None
    accepted = measure.replace("disagreement", "acceptance_ref")
    for estimate in pooled(estimates, measure):
        acceptance = find(estimates, accepted, estimate.register_)
        if estimate.high is None or acceptance is None or not acceptance.low:
            worst = None
            break
        loss = estimate.high / acceptance.low
        if worst is None or loss > worst[0]:
            worst = (loss, estimate)
    if worst is None:
        none = "no bound: too few sequences, or the reference accepts nothing"
        return _evidence("disagreement bound", None, _HARMLESS, "undecided", none)
    loss, estimate = worst
    small = loss <= HARMLESS_LOSS
    sentence = (
        f"it disagrees at {percent(estimate.value)} of positions (at most "
        f"{percent(estimate.high)}), so retention can not fall by more than {100 * loss:.1f} "
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
    return _evidence("disagreement bound", largest_loss, _HARMLESS, kind, sentence)


def _held_against(name: str, estimate: Estimate, rule: Rule, own_head: bool) -> Evidence:
    """One estimate's interval against a threshold: below is fidelity, above is function."""
    shown = f"{name} {_signed(estimate, name)}"
    against = points(rule.threshold) if name == "shift tax" else f"{rule.threshold:.2f}"
    points_to: VerdictKind = "undecided"
    weight = rule.weight
    if own_head and rule.source == PUBLISHED:
        weight = False
        sentence = (
            f"{shown}: no evidence of its kind, since the reference is the verifier's own head "
            "and each disagreement costs one acceptance by construction"
        )
    elif not rule.weight:
        sentence = f"{shown}: the rule carries no weight here, {rule.why_not}"
    elif estimate.value is None or estimate.low is None or estimate.high is None:
        sentence = f"{name}: {estimate.reason or 'not measured'}"
    elif estimate.high < rule.threshold and name == LADDER:
        # A function cut made without data lies there too, so this does not make it a fidelity cut.
        sentence = f"{shown} lies below {against}: no damage hidden from text in distribution"
    elif estimate.high < rule.threshold:
        points_to, sentence = "fidelity", f"{shown} lies below {against}"
    elif estimate.low > rule.threshold:
        points_to, sentence = "function", f"{shown} lies above {against}"
    else:
        needed = positions_needed(
            estimate.value, estimate.low, estimate.high, rule.threshold, estimate.positions
        )
        more = f"; about {needed:,} positions would decide it" if needed else ""
        sentence = f"{shown} straddles {against}{more}"
    return _evidence(name, estimate, rule, points_to, sentence, weight)


def _evidence(
    name: str,
    estimate: Estimate | None,
    rule: Rule,
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
        threshold=rule.threshold,
        source=rule.source,
        points_to=points_to,
        weight=weight,
        sentence=sentence,
    )


def _signed(estimate: Estimate, name: str) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "unknown"
    show = points if name == "shift tax" else "{:.2f}".format
    return f"{show(estimate.value)} ({show(estimate.low)} to {show(estimate.high)})"


def percent(value: float | None) -> str:
    return "an unknown share" if value is None else f"{100 * value:.2f} %"


def points(value: float) -> str:
    return f"{100 * value:.1f} points"
