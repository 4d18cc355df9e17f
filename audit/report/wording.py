"""How numbers and identities are put into words; every output uses these and nothing else.

Plain text only: whoever shows it escapes it.
"""

from __future__ import annotations

import contextlib
from decimal import Decimal

from pydantic import ValidationError

from audit.calibration import RuleCheck
from audit.catalogue import CATALOGUE
from audit.prediction import Prediction
from audit.records import Candidate, Estimate, HeadRecord, LimitResult, TraceRecord

REGISTER_WORDS = {
    "in_distribution": "in distribution",
    "same_register": "same register",
    "domain_shift": "domain shift",
}
OTHER_TITLES = {
    "shift_tax": "shift tax",
    "shift_loss": "shift loss",
    "near_tie_auc": "near-tie AUC",
}
_POINTS = ("shift_tax", "shift_loss")
_HUGE = 1e7
"""From here on, digits before the point tell less than the order of magnitude."""


def clean(text: str) -> str:
    """One line with every control or direction-changing character made visible.

    File names and token text come from strangers; a terminal must not obey them.
    """
    return "".join(c if c.isprintable() and not _turns(c) else f"\\u{ord(c):04x}" for c in text)


def measure_title(name: str) -> str:
    """A measure's name for people; of one that only a policy knows, its own name."""
    if name in CATALOGUE:
        return CATALOGUE[name].title
    return OTHER_TITLES.get(name) or clean(name.replace("_", " "))


def number(measure: str, value: float | None) -> str:
    """A value in its measure's unit: per cent, points, nats or a plain ratio; a dash for none."""
    if value is None:
        return "–"
    if measure in _POINTS:
        return f"{_fixed(value, 1, 100)} pt"
    if measure not in CATALOGUE and measure not in OTHER_TITLES and value.is_integer():
        return f"{value:,.0f}" if abs(value) < _HUGE else _fixed(value, 0)
    unit = CATALOGUE[measure].unit if measure in CATALOGUE else "ratio"
    if unit == "share":
        return f"{_fixed(value, 2, 100)} %"
    if unit == "points":
        return f"{_fixed(value, 1, 100)} %"
    return _fixed(value, 4 if unit == "nats" else 2)


def interval(estimate: Estimate | LimitResult) -> str:
    """The interval, or why there is none."""
    if estimate.low is None or estimate.high is None:
        reason = estimate.reason if isinstance(estimate, Estimate) else None
        return clean(reason or "no interval")
    low, high = number(estimate.measure, estimate.low), number(estimate.measure, estimate.high)
    return f"{low} to {high}"


def interval_title(level: float) -> str:
    """What stands over a column of intervals."""
    return f"{100 * level:g} % interval" if 0 <= level <= 1 else "interval"


def scope(estimate: Estimate | LimitResult) -> str:
    """The corpus, or the register it is pooled over; of which tokens, where not of all."""
    place = REGISTER_WORDS[estimate.register_] if estimate.register_ else "all"
    if estimate.corpus:
        place = clean(estimate.corpus)
    return f"{place}, {clean(estimate.token_class)}" if estimate.token_class else place


def limit_cells(result: LimitResult) -> list[str]:
    """One limit of a gate in columns: name, measure, place, estimate, interval, bound, outcome."""
    known = result.low is not None and result.high is not None
    outcome = f"{result.outcome}, waived" if result.waiver else result.outcome
    outcome += ", predicted" if result.predicted else ""
    return [
        clean(result.limit),
        measure_title(result.measure),
        scope(result) if result.corpus or result.register_ or result.token_class else "–",
        number(result.measure, result.value),
        interval(result) if known else "–",
        clean(result.bound),
        outcome,
    ]


def count(number: int, noun: str) -> str:
    """1 warning, 2 warnings."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(bytes_: int | None) -> str:
    """Bytes in MiB."""
    return "–" if bytes_ is None else f"{bytes_ / 2**20:,.1f} MiB"


def head_line(head: HeadRecord) -> list[str]:
    """Identity of a head in columns: name, encoding, shape, bits, size, hash."""
    name, encoding, digest = clean(head.name), clean(head.encoding), clean(head.sha256[:12])
    if head.rows is None or head.columns is None:
        return [name, encoding, "–", "–", "–", digest]
    shape = f"{head.rows:,} × {head.columns:,}"
    if head.rows != head.vocabulary:
        shape += f" of {head.vocabulary:,} ids"
    bits = "–" if head.bits_per_weight is None else f"{_fixed(head.bits_per_weight, 2)} bits"
    return [name, encoding, shape, bits, size(head.stored_bytes), digest]


def trace_line(trace: TraceRecord) -> list[str]:
    """Identity of a trace in columns: corpus, register, size, model, hash."""
    info = trace.info
    amount = f"{trace.positions:,} positions in {trace.sequences:,} sequences"
    register = REGISTER_WORDS[info.register_]
    return [clean(info.corpus), register, amount, clean(info.model), clean(trace.sha256[:12])]


def rule_check(rule: RuleCheck) -> str:
    """How a rule fared on the yardsticks, in one sentence."""
    tried = rule.right + rule.wrong + rule.undecided
    holds = "holds here" if rule.weight else "carries no weight here"
    return (
        f"{clean(rule.name)} ({clean(rule.source)}) {holds}: right on {rule.right} of {tried} cuts "
        f"left out in turn, wrong on {rule.wrong}, silent on {rule.undecided} "
        f"(p {rule.p:.3f})"
    )


def ranking_check(what: str, rho: float | None, p: float | None) -> str:
    """Whether disagreement ranks the loss or the tax of the yardsticks, in one sentence."""
    told = "no ranking" if rho is None or p is None else f"Spearman {rho:.2f}, exact p {p:.4g}"
    return f"D in distribution against the shift {what}: {told}"


def predictions(candidate: Candidate) -> list[str]:
    """Predicted loss and tax beside the measured ones, one sentence each; none without a study."""
    out = []
    for measure, found in predictions_of(candidate).items():
        title = measure_title(measure)
        if found.value is None:
            out.append(f"{title}: no prediction, {clean(found.reason or 'no reason is given')}")
            continue
        rank = f", {clean(found.rank)}" if found.rank else ""
        level = "" if found.level is None else f" at {_fixed(found.level, 0, 100)} %"
        seen = [
            e for e in candidate.estimates
            if (e.measure, e.corpus, e.token_class) == (measure, None, None)
            and e.value is not None
        ]  # fmt: skip
        beside = f"; measured {number(measure, seen[0].value)}" if seen else ""
        out.append(
            f"{title} predicted from text in distribution: {number(measure, found.value)} "
            f"({number(measure, found.low)} to {number(measure, found.high)}{level}){rank}{beside}"
        )
    return out


def predictions_of(candidate: Candidate) -> dict[str, Prediction]:
    """The candidate's predictions by measure; those that a strange file spoiled are left out."""
    out = {}
    for measure, found in (candidate.prediction or {}).items():
        with contextlib.suppress(ValidationError):
            out[measure] = Prediction.model_validate(found)
    return out


def _fixed(value: float, digits: int, scale: int = 1) -> str:
    """With so many decimals, and never as minus nothing or as infinity."""
    if abs(value) >= _HUGE:
        return f"{Decimal(value) * scale:.2e}"
    return f"{round(value * scale, digits) + 0.0:.{digits}f}"


def _turns(char: str) -> bool:
    """Characters that reorder the text around them."""
    return "\u202a" <= char <= "\u202e" or "\u2066" <= char <= "\u2069" or char in "\u200e\u200f"
