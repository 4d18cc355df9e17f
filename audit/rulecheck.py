"""Does a rule hold on this reference? Every rule tried on yardsticks of known family.

Each yardstick is left out in turn and judged by a threshold from the others. How often that goes
right by luck is counted, not assumed: the family labels are dealt out anew in every possible way.
Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from audit.calibration import Calibration, RuleCheck, Yardstick, ladder_distance, shift_ladder
from audit.records import Estimate
from audit.stats import Floats

PUBLISHED_HARM = 0.21
"""Midway between the study's fidelity cuts (0.14) and its most harmless function cut (0.28)."""
_WEIGHT_P = 0.05
"""A rule carries weight when labels dealt at random do as well in fewer than 5 % of deals."""
_ALL_DEALS_UP_TO = 20_000
_DRAWN = 10_000

Labels = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Rule:
    """A number held against a threshold: above it, a function cut."""

    name: str
    source: str
    one_sided: bool = False
    """Below the threshold it says nothing, instead of `fidelity`."""
    fixed: float | None = None
    """A threshold that is given, not taken from the yardsticks."""


_HARM = _Rule("harm", "yardsticks")
_PUBLISHED = _Rule("published harm", "published rule", fixed=PUBLISHED_HARM)
_LADDER = _Rule("ladder distance", "noise ladder", one_sided=True)
_TAX = _Rule("shift tax", "yardsticks")


def check_rules(yardsticks: Sequence[Yardstick]) -> tuple[RuleCheck, ...]:
    """Every rule, tried on each yardstick left out in turn.

    Harm and tax should tell function cuts from fidelity cuts. Distance from the noise ladder should
    rise above that of noise and of fidelity cuts only for function cuts; those whose damage does
    not hide stay on the ladder, so below its threshold the rule is silent. Noise is tried too, each
    rung against the ladder of the others.
    """
    cuts = [y for y in yardsticks if y.family != "noise"]
    harm = [y.value("harm", "in_distribution") for y in cuts]
    tax = [y.value("shift_tax", "domain_shift") for y in cuts]
    distance = [_distance(y, yardsticks) for y in yardsticks]
    function = [y.family == "function" for y in cuts]
    return (
        _check(_PUBLISHED, harm, function),
        _check(_HARM, harm, function),
        _check(_LADDER, distance, [y.family == "function" for y in yardsticks]),
        _check(_TAX, tax, function),
    )


def leave_out(calibration: Calibration, left: Sequence[Yardstick]) -> Calibration:
    """The calibration with thresholds that do not know these yardsticks.

    Whether a rule carries weight is a matter of all of them and stays: it was found with each left
    out, and with one fewer of three the labels can hardly be dealt in enough ways to tell.
    """
    kept = tuple(y for y in calibration.yardsticks if not any(y is one for one in left))
    if len(kept) == len(calibration.yardsticks):
        return calibration
    weights = {rule.name: rule.weight for rule in calibration.rules}
    rules = tuple(
        rule.model_copy(update={"weight": weights.get(rule.name, rule.weight)})
        for rule in check_rules(kept)
    )
    return calibration.model_copy(update={"yardsticks": kept, "rules": rules})


def _distance(held: Yardstick, yardsticks: Sequence[Yardstick]) -> float | None:
    """How far beyond the noise ladder; a rung is held against the ladder of the others."""
    return ladder_distance(
        held.value("disagreement", "in_distribution"),
        held.value("disagreement", "domain_shift"),
        shift_ladder([y for y in yardsticks if y is not held]),
    )


def _check(rule: _Rule, scores: Sequence[float | None], function: Sequence[bool]) -> RuleCheck:
    known = [i for i, score in enumerate(scores) if score is not None]
    values = np.array([scores[i] for i in known], dtype=np.float64)
    labels = np.array([function[i] for i in known], dtype=np.bool_)
    right, wrong = (int(count[0]) for count in _leave_one_out(rule, values, labels[None]))
    p = _dealt_as_well(rule, values, labels, right - wrong)
    limit = _thresholds(rule, values, labels[None])[0] if len(known) else np.nan
    return RuleCheck(
        name=rule.name,
        right=right,
        wrong=wrong,
        undecided=len(scores) - right - wrong,
        p=p,
        weight=p <= _WEIGHT_P,
        threshold=float(limit) if np.isfinite(limit) else None,
        source=rule.source,
    )


def _leave_one_out(
    rule: _Rule, values: Floats, labels: Labels
) -> tuple[NDArray[np.int_], NDArray[np.int_]]:
    """How many are judged rightly and wrongly, for each dealing of the labels [deals, n]."""
    right = np.zeros(len(labels), dtype=np.int_)
    wrong = np.zeros(len(labels), dtype=np.int_)
    for i, value in enumerate(values):
        limit = _thresholds(rule, np.delete(values, i), np.delete(labels, i, axis=1))
        above = value > limit
        told = np.isfinite(limit) & (above | (not rule.one_sided))
        right += told & (above == labels[:, i])
        wrong += told & (above != labels[:, i])
    return right, wrong


def _thresholds(rule: _Rule, values: Floats, labels: Labels) -> Floats:
    """Midway between the highest of the others and the lowest function cut [deals]; NaN where
    there is no such gap. A one-sided rule looks only at function cuts above all others."""
    if rule.fixed is not None:
        return np.full(len(labels), rule.fixed)
    if not len(values):
        return np.full(len(labels), np.nan)
    others = np.where(labels, -np.inf, values).max(axis=1)
    wanted = labels & (values > others[:, None]) if rule.one_sided else labels
    lowest = np.where(wanted, values, np.inf).min(axis=1)
    gap = np.isfinite(others) & np.isfinite(lowest) & (others < lowest)
    return np.where(gap, (np.where(gap, others, 0.0) + np.where(gap, lowest, 0.0)) / 2, np.nan)


def _dealt_as_well(rule: _Rule, values: Floats, labels: Labels, observed: int) -> float:
    """Share of all ways to deal the labels, as many of each as there are, that do as well.

    Perfectly apart 3 and 5 cuts: 1 of 56 dealings.
    """
    n, k = len(labels), int(labels.sum())
    if not 0 < k < n:
        return 1.0
    if comb(n, k) <= _ALL_DEALS_UP_TO:
        chosen = np.array(list(combinations(range(n), k)), dtype=np.intp)
    else:
        rng = np.random.default_rng(0)
        chosen = rng.permuted(np.tile(np.arange(n), (_DRAWN, 1)), axis=1)[:, :k]
    dealt = np.zeros((len(chosen), n), dtype=np.bool_)
    np.put_along_axis(dealt, chosen, True, axis=1)
    right, wrong = _leave_one_out(rule, values, dealt)
    hits = int((right - wrong >= observed).sum())
    return hits / len(dealt) if comb(n, k) <= _ALL_DEALS_UP_TO else (hits + 1) / (len(dealt) + 1)


def leave_twins_out(
    calibration: Calibration, head_sha256: str, estimates: Sequence[Estimate]
) -> tuple[Calibration, list[str]]:
    """The calibration without the yardsticks that are this very candidate, and their names.

    A candidate held against itself would be foretold exactly. A twin has the candidate's hash, or,
    where a file can not hold what was cut in memory, its counts on every corpus.
    """
    own = _fingerprint(estimates).items()
    twins = [
        yardstick
        for yardstick in calibration.yardsticks
        if yardstick.head_sha256 == head_sha256
        or (len(own) > 0 and own <= _fingerprint(yardstick.estimates).items())
    ]
    return leave_out(calibration, twins), [twin.cut for twin in twins]


def _fingerprint(estimates: Sequence[Estimate]) -> dict[str, tuple[float | None, ...]]:
    """Per corpus with any disagreement: its rate and the candidate's acceptance."""
    by_corpus: dict[str, dict[str, float | None]] = {}
    for e in estimates:
        if e.corpus and not e.token_class and e.measure in ("disagreement", "acceptance_cand"):
            by_corpus.setdefault(e.corpus, {})[e.measure] = e.value
    return {
        corpus: (found.get("disagreement"), found.get("acceptance_cand"))
        for corpus, found in by_corpus.items()
        if found.get("disagreement")
    }
