"""How numbers and identities are put into words; every output uses these and nothing else.

Plain text only: whoever shows it escapes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from audit.catalogue import CATALOGUE
from audit.records import Candidate, Estimate, HeadRecord, TraceRecord
from audit.words import count

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


def clean(text: str) -> str:
    """One line with every control or direction-changing character made visible.

    File names and token text come from strangers; a terminal must not obey them.
    """
    return "".join(c if c.isprintable() and not _turns(c) else f"\\u{ord(c):04x}" for c in text)


def measure_title(name: str) -> str:
    """A measure's name for people."""
    return CATALOGUE[name].title if name in CATALOGUE else OTHER_TITLES[name]


def number(measure: str, value: float | None) -> str:
    """A value in its measure's unit: per cent, points, nats or a plain ratio; a dash for none."""
    if value is None:
        return "–"
    if measure in _POINTS:
        return f"{_fixed(100 * value, 1)} pt"
    unit = CATALOGUE[measure].unit if measure in CATALOGUE else "ratio"
    if unit == "share":
        return f"{_fixed(100 * value, 2)} %"
    if unit == "points":
        return f"{_fixed(100 * value, 1)} %"
    return _fixed(value, 4 if unit == "nats" else 2)


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
    amount = f"{count(trace.positions, 'position')} in {count(trace.sequences, 'sequence')}"
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
            if e.measure == measure and e.corpus is None and e.value is not None
        ]  # fmt: skip
        own = found.get("without")
        twin = f"; {', '.join(own)} of the yardsticks is this head and left out" if own else ""
        beside = f"; measured {number(measure, seen[0].value)}" if seen else ""
        out.append(
            f"{title} predicted from text in distribution: {number(measure, found['value'])} "
            f"({number(measure, found['low'])} to {number(measure, found['high'])} at "
            f"{100 * found['level']:.0f} %){rank}{beside}{twin}"
        )
    return out


def _fixed(value: float, digits: int) -> str:
    """With so many decimals, and never as minus nothing."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def _turns(char: str) -> bool:
    """Characters that reorder the text around them."""
    return "\u202a" <= char <= "\u202e" or "\u2066" <= char <= "\u2069" or char in "\u200e\u200f"
