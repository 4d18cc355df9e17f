"""How numbers and identities are put into words; every output uses these and nothing else.

Plain text only: whoever shows it escapes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from decimal import Decimal

from pydantic import ValidationError

from audit.calibration import RuleCheck, Trial
from audit.catalogue import CATALOGUE
from audit.prediction import Prediction
from audit.records import Candidate, Estimate, HeadRecord, LimitResult, TraceRecord
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
    "tokens_per_round": "tokens per round",
    "chain_acceptance": "chain acceptance",
    "break_even_margin": "break-even margin",
}
_POINTS = ("shift_tax", "shift_loss", "break_even_margin")
_SHARES = ("chain_acceptance",)
_LINE_BREAK = "↵"
_MOST_DIGITS = 8
_HUGE = 1e7
"""From here on, digits before the point tell less than the order of magnitude."""


def clean(text: str) -> str:
    """One line with every control or direction-changing character made visible.

    File names and token text come from strangers; a terminal must not obey them. A line break is
    what people write in a reason, so it has a sign of its own.
    """
    line = text.replace("\r\n", "\n")
    return "".join(c if c.isprintable() and not _turns(c) else _visible(c) for c in line)


def measure_title(name: str) -> str:
    """A measure's name for people; of one that only a policy knows, its own name."""
    if name in CATALOGUE:
        return CATALOGUE[name].title
    return OTHER_TITLES.get(name) or clean(name.replace("_", " "))


def number(measure: str, value: float | None, more: int = 0) -> str:
    """A value in its measure's unit: per cent, points, nats or a plain ratio; a dash for none.

    With `more` decimals than usual.
    """
    if value is None:
        return "–"
    if measure not in CATALOGUE and measure not in OTHER_TITLES and value.is_integer():
        return f"{value:,.0f}" if abs(value) < _HUGE else _fixed(value, 0)
    factor, digits, suffix = _unit(measure)
    return f"{_fixed(value, digits + more, factor)}{suffix}"


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


def _unit(measure: str) -> tuple[int, int, str]:
    """Factor, decimals and suffix that a measure is shown with."""
    if measure in _POINTS:
        return 100, 1, " pt"
    unit = "share" if measure in _SHARES else "ratio"
    unit = CATALOGUE[measure].unit if measure in CATALOGUE else unit
    if unit in ("share", "points"):
        return 100, 2 if unit == "share" else 1, " %"
    return 1, 4 if unit == "nats" else 2, ""


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
    measure, bound, ends = result.measure, result.threshold, (result.low, result.high)
    values = [value for value in (result.value, *ends) if value is not None]
    known = measure in CATALOGUE or measure in OTHER_TITLES
    more = digits_apart(measure, bound, values) if known and bound is not None else 0
    estimate = number(measure, result.value, more)
    if measure == "compressed" and result.value is not None:
        estimate = size(int(result.value))
    whole = None not in ends
    outcome = f"{result.outcome}, waived" if result.waiver else result.outcome
    outcome += ", predicted" if result.predicted else ""
    return [
        clean(result.limit),
        measure_title(measure),
        scope(result) if result.corpus or result.register_ or result.token_class else "–",
        estimate,
        " to ".join(number(measure, end, more) for end in ends) if whole else "–",
        clean(result.bound),
        outcome,
    ]


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


def trace_amount(trace: TraceRecord) -> str:
    """1 position in 1 sequence, and how many of them count where not all do."""
    amount = f"{count(trace.positions, 'position')} in {count(trace.sequences, 'sequence')}"
    return amount if trace.counted is None else f"{amount}, {trace.counted:,} of them counted"


def trace_line(trace: TraceRecord) -> list[str]:
    """Identity of a trace in columns: corpus, register, size, model, hash."""
    info, amount = trace.info, trace_amount(trace)
    register = REGISTER_WORDS[info.register_]
    return [clean(info.corpus), register, amount, clean(info.model), clean(trace.sha256[:12])]


def rule_check(rule: RuleCheck) -> str:
    """How a rule fared on the yardsticks, in one sentence."""
    tried = rule.right + rule.wrong + rule.undecided
    holds = "holds here" if rule.weight else "carries no weight here"
    return (
        f"{clean(rule.name)} ({clean(rule.source)}) {holds}: right on {rule.right} of {tried} "
        f"yardsticks left out in turn, wrong on {rule.wrong}, silent on {rule.undecided} "
        f"(p {rule.p:.3f})"
    )


def trials_told(tried: Sequence[Trial]) -> str:
    """How the verdict itself fared on cuts of known family, in one sentence."""
    right = sum(one.verdict == one.family for one in tried)
    silent = sum(one.verdict == "undecided" for one in tried)
    wrong = [one for one in tried if one.verdict not in (one.family, "undecided")]
    named = f" ({', '.join(clean(one.cut) for one in wrong)})" if wrong else ""
    return (
        f"the verdict on this reference, tried the same way: right on {right} of {len(tried)} "
        f"cuts, wrong on {len(wrong)}{named}, undecided on {silent}"
    )


def ranking_check(what: str, rho: float | None, p: float | None, exact: bool = True) -> str:
    """Whether disagreement ranks the loss or the tax of the yardsticks, in one sentence."""
    kind = "exact p" if exact else "p (orderings drawn)"
    told = "no ranking" if rho is None or p is None else f"Spearman {rho:.2f}, {kind} {p:.4g}"
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
        own = found.without
        twin = f"; {', '.join(own)} of the yardsticks is this head and left out" if own else ""
        beside = f"; measured {number(measure, seen[0].value)}" if seen else ""
        out.append(
            f"{title} predicted from text in distribution: {number(measure, found.value)} "
            f"({number(measure, found.low)} to {number(measure, found.high)}{level}){rank}{beside}"
            f"{twin}"
        )
    return out


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


def _visible(char: str) -> str:
    return _LINE_BREAK if char == "\n" else f"\\u{ord(char):04x}"


def _turns(char: str) -> bool:
    """Characters that reorder the text around them."""
    return "\u202a" <= char <= "\u202e" or "\u2066" <= char <= "\u2069" or char in "\u200e\u200f"
