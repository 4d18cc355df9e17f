"""How numbers and identities are put into words; every output uses these and nothing else.

Plain text only: whoever shows it escapes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from audit.catalogue import CATALOGUE
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
_MOST_DIGITS = 8


def clean(text: str) -> str:
    """One line with every control or direction-changing character made visible.

    File names and token text come from strangers; a terminal must not obey them.
    """
    return "".join(c if c.isprintable() and not _turns(c) else f"\\u{ord(c):04x}" for c in text)


def measure_title(name: str) -> str:
    """A measure's name for people."""
    return CATALOGUE[name].title if name in CATALOGUE else OTHER_TITLES[name]


def number(measure: str, value: float | None, more: int = 0) -> str:
    """A value in its measure's unit: per cent, points, nats or a plain ratio; a dash for none.

    With `more` decimals than usual.
    """
    if value is None:
        return "–"
    factor, digits, suffix = _unit(measure)
    return f"{_fixed(factor * value, digits + more)}{suffix}"


def exact_number(measure: str, value: float) -> str:
    """A threshold: with as many decimals as it was given."""
    factor, digits, _ = _unit(measure)
    scaled = factor * value
    enough = [n for n in range(_MOST_DIGITS) if abs(round(scaled, digits + n) - scaled) < 1e-9]
    return number(measure, value, enough[0] if enough else _MOST_DIGITS)


def digits_apart(measure: str, bound: float, values: Sequence[float]) -> int:
    """How many more decimals show every value that is not the bound as another number."""
    others = [value for value in values if value != bound]
    for more in range(_MOST_DIGITS):
        if all(number(measure, v, more) != number(measure, bound, more) for v in others):
            return more
    return _MOST_DIGITS


def _unit(measure: str) -> tuple[float, int, str]:
    """Factor, decimals and suffix that a measure is shown with."""
    if measure in _POINTS:
        return 100.0, 1, " pt"
    unit = CATALOGUE[measure].unit if measure in CATALOGUE else "ratio"
    if unit in ("share", "points"):
        return 100.0, 2 if unit == "share" else 1, " %"
    return 1.0, 4 if unit == "nats" else 2, ""


def interval(estimate: Estimate) -> str:
    """The interval, or why there is none."""
    if estimate.low is None or estimate.high is None:
        return estimate.reason or "no interval"
    low, high = number(estimate.measure, estimate.low), number(estimate.measure, estimate.high)
    return f"{low} to {high}"


def scope(estimate: Estimate) -> str:
    """The corpus, or the register it is pooled over."""
    if estimate.corpus:
        return clean(estimate.corpus)
    return REGISTER_WORDS[estimate.register_] if estimate.register_ else "all"


def count(number: int, noun: str) -> str:
    """1 warning, 2 warnings."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(bytes_: int | None) -> str:
    """Bytes in MiB."""
    return "–" if bytes_ is None else f"{bytes_ / 2**20:,.1f} MiB"


def head_line(head: HeadRecord) -> list[str]:
    """Identity of a head in columns: name, encoding, shape, bits, size, hash."""
    if head.rows is None or head.columns is None:
        return [clean(head.name), head.encoding, "–", "–", "–", head.sha256[:12]]
    shape = f"{head.rows:,} × {head.columns:,}"
    if head.rows != head.vocabulary:
        shape += f" of {head.vocabulary:,} ids"
    bits = "–" if head.bits_per_weight is None else f"{head.bits_per_weight:.2f} bits"
    return [clean(head.name), head.encoding, shape, bits, size(head.stored_bytes), head.sha256[:12]]


def trace_line(trace: TraceRecord) -> list[str]:
    """Identity of a trace in columns: corpus, register, size, model, hash."""
    info = trace.info
    amount = f"{trace.positions:,} positions in {trace.sequences:,} sequences"
    register = REGISTER_WORDS[info.register_]
    return [clean(info.corpus), register, amount, clean(info.model), trace.sha256[:12]]


def rule_check(rule: Mapping[str, Any]) -> str:
    """How a rule fared on the yardsticks, in one sentence."""
    tried = rule["right"] + rule["wrong"] + rule["undecided"]
    holds = "holds here" if rule["weight"] else "carries no weight here"
    return (
        f"{rule['name']} ({rule['source']}) {holds}: right on {rule['right']} of {tried} cuts "
        f"left out in turn, wrong on {rule['wrong']}, silent on {rule['undecided']} "
        f"(p {rule['p']:.3f})"
    )


def trials(tried: Sequence[Mapping[str, Any]]) -> str:
    """How the verdict itself fared on cuts of known family, in one sentence."""
    right = sum(one["verdict"] == one["family"] for one in tried)
    silent = sum(one["verdict"] == "undecided" for one in tried)
    wrong = [one for one in tried if one["verdict"] not in (one["family"], "undecided")]
    named = f" ({', '.join(clean(one['cut']) for one in wrong)})" if wrong else ""
    return (
        f"the verdict on this reference, tried the same way: right on {right} of {len(tried)} "
        f"cuts, wrong on {len(wrong)}{named}, undecided on {silent}"
    )


def predictions(candidate: Candidate) -> list[str]:
    """Predicted loss and tax beside the measured ones, one sentence each; none without a study."""
    out = []
    for measure, found in (candidate.prediction or {}).items():
        title = measure_title(measure)
        if found["value"] is None:
            out.append(f"{title}: no prediction, {found['reason']}")
            continue
        rank = f", {found['rank']}" if found["rank"] else ""
        seen = [
            e for e in candidate.estimates
            if (e.measure, e.corpus, e.token_class) == (measure, None, None)
            and e.value is not None
        ]  # fmt: skip
        beside = f"; measured {number(measure, seen[0].value)}" if seen else ""
        out.append(
            f"{title} predicted from text in distribution: {number(measure, found['value'])} "
            f"({number(measure, found['low'])} to {number(measure, found['high'])} at "
            f"{100 * found['level']:.0f} %){rank}{beside}"
        )
    return out


def limit_cells(result: LimitResult) -> list[str]:
    """One limit of a gate in columns: name, measure, place, estimate, interval, bound, outcome."""
    if result.corpus:
        place = clean(result.corpus)
    else:
        place = REGISTER_WORDS[result.register_] if result.register_ else "–"
    if result.token_class:
        place += f", {result.token_class}"
    title = result.measure.replace("_", " ")
    estimate = "–" if result.value is None else f"{result.value:,.1f}".removesuffix(".0")
    if result.measure == "compressed" and result.value is not None:
        estimate = size(int(result.value))
    interval = "–"
    if result.measure in CATALOGUE or result.measure in OTHER_TITLES:
        title = measure_title(result.measure)
        values = [v for v in (result.value, result.low, result.high) if v is not None]
        bound = result.threshold
        more = 0 if bound is None else digits_apart(result.measure, bound, values)
        estimate = number(result.measure, result.value, more)
        if result.low is not None and result.high is not None:
            ends = (number(result.measure, end, more) for end in (result.low, result.high))
            interval = " to ".join(ends)
    outcome = f"{result.outcome}, waived" if result.waiver else result.outcome
    outcome += ", predicted" if result.predicted else ""
    return [
        clean(result.limit),
        clean(title),
        place,
        estimate,
        interval,
        clean(result.bound),
        outcome,
    ]


def ceilings_by_class(estimates: Sequence[Estimate]) -> list[str]:
    """What a trimmed vocabulary can still say, per register: classes below 100 %, worst first."""
    out = []
    for register, words in REGISTER_WORDS.items():
        known = [
            (e.value, e.token_class)
            for e in estimates
            if (e.measure, e.corpus, e.register_) == ("vocabulary_ceiling", None, register)
            and e.token_class is not None
            and e.value is not None
        ]
        lost = sorted(pair for pair in known if pair[0] < 1.0)
        if lost:
            told = ", ".join(f"{name} {number('vocabulary_ceiling', v)}" for v, name in lost)
            full = len(known) - len(lost)
            rest = f"; {full} of {len(known)} classes whole" if full else ""
            out.append(f"vocabulary ceiling {words}: {told}{rest}")
    return out


def _fixed(value: float, digits: int) -> str:
    """With so many decimals, and never as minus nothing."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def _turns(char: str) -> bool:
    """Characters that reorder the text around them."""
    return "\u202a" <= char <= "\u202e" or "\u2066" <= char <= "\u2069" or char in "\u200e\u200f"
