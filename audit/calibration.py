"""What known cuts of this very reference teach: the yardsticks, the checked rules, predictions.

No threshold is a constant of nature. Each rule is tried on the yardsticks with each one left out
in turn, and carries weight only where it is right beyond chance. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any, Literal

import numpy as np
from pydantic import Field

from audit.records import Estimate, Record, VerdictKind
from audit.stats import Floats

Family = Literal["fidelity", "function", "noise"]
PUBLISHED_HARM = 0.21
"""Midway between the study's fidelity cuts (0.14) and its most harmless function cut (0.28)."""
NOISE_LIKE: tuple[Family, ...] = ("fidelity", "noise")
_WEIGHT_P = 0.05
"""A rule carries weight when guessing would be right as often in fewer than 5 % of studies."""


class Yardstick(Record):
    """One cut of the reference of known family, audited on the calibration's traces."""

    cut: str
    family: Family
    calibrated: bool = False
    """Fitted to text in distribution, where it then looks better than it is."""
    stored_bytes: int | None
    estimates: tuple[Estimate, ...]

    def value(self, measure: str, register: str) -> float | None:
        """The pooled estimate of a register; None when there is none."""
        for e in self.estimates:
            if (e.measure, e.register_, e.corpus, e.token_class) == (measure, register, None, None):
                return e.value
        return None


class RuleCheck(Record):
    """How one rule fared on the yardsticks, each left out in turn."""

    name: str
    right: int
    wrong: int
    undecided: int
    p: float
    """Probability that guessing is right this often."""
    weight: bool
    threshold: float | None
    """From all yardsticks; None when they do not separate the families."""
    source: str


class Trial(Record):
    """The verdict on one yardstick of known family, from the others."""

    cut: str
    family: Family
    verdict: VerdictKind
    sentence: str


class Calibration(Record):
    """A reference's yardsticks and what follows from them."""

    reference: str
    """Hash of the reference head."""
    head: str
    created: str | None = None
    """UTC, ISO 8601; None where it was not kept."""
    traces: dict[str, str]
    """Corpus -> hash of its trace."""
    fitted_to: dict[str, str] = Field(default_factory=dict)
    """The same of what calibrated cuts were fitted to. Where that is measured text, they look
    better in distribution than on other text of the kind."""
    yardsticks: tuple[Yardstick, ...]
    rules: tuple[RuleCheck, ...]
    trials: tuple[Trial, ...] = ()
    """The verdict itself, tried on each cut left out in turn."""
    spearman_loss: float | None
    spearman_loss_p: float | None
    spearman_tax: float | None
    spearman_tax_p: float | None

    def summary(self) -> dict[str, Any]:
        """What a Run remembers of it: rules and figures, without every estimate."""
        figures = ("disagreement", "harm", "near_tie_auc", "retention")
        content = self.model_dump(mode="json", exclude={"yardsticks"})
        content["yardsticks"] = [
            {
                "cut": yardstick.cut,
                "family": yardstick.family,
                "registers": {
                    register: {name: yardstick.value(name, register) for name in figures}
                    for register in ("in_distribution", "same_register", "domain_shift")
                },
                "shift_loss": yardstick.value("shift_loss", "domain_shift"),
                "shift_tax": yardstick.value("shift_tax", "domain_shift"),
            }
            for yardstick in self.yardsticks
        ]
        return content

    def ladder(self) -> Ladder:
        """The noise ladder of disagreement under shift."""
        return shift_ladder(self.yardsticks)

    def rule(self, name: str) -> RuleCheck | None:
        """The check of one rule."""
        return next((rule for rule in self.rules if rule.name == name), None)


@dataclass(frozen=True, slots=True)
class Ladder:
    """The noise ladder: what a cut without structure does at each disagreement."""

    disagreement: Floats
    response: Floats

    def at(self, disagreement: float) -> float | None:
        """Response by linear interpolation; None outside the rungs. Zero noise changes nothing,
        so the ladder starts at (0, 0) when the response is itself a disagreement."""
        if not len(self.disagreement) or not (
            self.disagreement[0] <= disagreement <= self.disagreement[-1]
        ):
            return None
        return float(np.interp(disagreement, self.disagreement, self.response))


Score = Callable[[Yardstick], float | None]


def shift_ladder(yardsticks: Sequence[Yardstick]) -> Ladder:
    """Disagreement under shift at each disagreement in distribution, from (0, 0) on."""
    rungs = sorted(
        (x, y)
        for yardstick in yardsticks
        if yardstick.family == "noise"
        and (x := yardstick.value("disagreement", "in_distribution")) is not None
        and (y := yardstick.value("disagreement", "domain_shift")) is not None
    )
    points = np.array([(0.0, 0.0), *rungs])
    return Ladder(points[:, 0], points[:, 1])


def ladder_distance(inside: float | None, shifted: float | None, ladder: Ladder) -> float | None:
    """Disagreement under shift beyond what noise does at equal disagreement in distribution."""
    expected = None if inside is None else ladder.at(inside)
    return None if shifted is None or expected is None else shifted - expected


def check_rules(yardsticks: Sequence[Yardstick]) -> tuple[RuleCheck, ...]:
    """Every rule, tried on each yardstick left out in turn.

    Harm and tax should tell function cuts from fidelity cuts. Distance from the noise ladder should
    tell calibrated cuts from all others: a cut made without data is as damaging as it looks, and
    lies on the ladder whatever its kind.
    """
    cuts = [y for y in yardsticks if y.family != "noise"]
    ladder = shift_ladder(yardsticks)

    def harm(yardstick: Yardstick) -> float | None:
        return yardstick.value("harm", "in_distribution")

    def distance(yardstick: Yardstick) -> float | None:
        return ladder_distance(
            yardstick.value("disagreement", "in_distribution"),
            yardstick.value("disagreement", "domain_shift"),
            ladder,
        )

    def tax(yardstick: Yardstick) -> float | None:
        return yardstick.value("shift_tax", "domain_shift")

    published = _tally(
        "published harm", cuts, harm, _is_function, lambda others: PUBLISHED_HARM, "published rule"
    )
    return (
        published,
        _tally(
            "harm",
            cuts,
            harm,
            _is_function,
            lambda others: separating(others, harm, _is_function),
            "yardsticks",
        ),
        _tally(
            "ladder distance",
            cuts,
            distance,
            _is_calibrated,
            lambda others: separating(others, distance, _is_calibrated),
            "noise ladder",
        ),
        _tally(
            "shift tax",
            cuts,
            tax,
            _is_function,
            lambda others: separating(others, tax, _is_function),
            "yardsticks",
        ),
    )


def separating(
    yardsticks: Sequence[Yardstick], score: Score, target: Callable[[Yardstick], bool]
) -> float | None:
    """Midway between the highest score of the others and the lowest of the target's; None where
    they overlap or either side is empty."""
    known = [(target(y), value) for y in yardsticks if (value := score(y)) is not None]
    low = [value for wanted, value in known if not wanted]
    high = [value for wanted, value in known if wanted]
    if not low or not high or max(low) >= min(high):
        return None
    return (max(low) + min(high)) / 2


def _is_function(yardstick: Yardstick) -> bool:
    return yardstick.family == "function"


def _is_calibrated(yardstick: Yardstick) -> bool:
    return yardstick.calibrated


def _tally(
    name: str,
    cuts: Sequence[Yardstick],
    score: Score,
    target: Callable[[Yardstick], bool],
    threshold: Callable[[Sequence[Yardstick]], float | None],
    source: str,
) -> RuleCheck:
    right = wrong = undecided = 0
    for i, cut in enumerate(cuts):
        limit, value = threshold([*cuts[:i], *cuts[i + 1 :]]), score(cut)
        if limit is None or value is None:
            undecided += 1
        elif (value > limit) == target(cut):
            right += 1
        else:
            wrong += 1
    p = _guessing(right, len(cuts))
    return RuleCheck(
        name=name,
        right=right,
        wrong=wrong,
        undecided=undecided,
        p=p,
        weight=p <= _WEIGHT_P,
        threshold=threshold(cuts),
        source=source,
    )


def _guessing(right: int, n: int) -> float:
    """P(at least `right` of n by coin flips). 7 of 7: 1/128; 7 of 8: 9/256."""
    return float(sum(comb(n, k) for k in range(right, n + 1)) / 2**n) if n else 1.0
