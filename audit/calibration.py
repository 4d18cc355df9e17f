"""What known cuts of this very reference teach: yardsticks, the noise ladder, checked rules.

No threshold is a constant of nature. Leaves out how rules are checked (`rulecheck`) and what is
foretold (`prediction`). Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field

from audit.records import Estimate, Record, VerdictKind
from audit.stats import Floats

Family = Literal["fidelity", "function", "noise"]
NOISE_LIKE: tuple[Family, ...] = ("fidelity", "noise")


class Yardstick(Record):
    """One cut of the reference of known family, audited on the calibration's traces."""

    cut: str
    family: Family
    head_sha256: str | None = None
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
    """Share of the ways to deal the families' labels over these yardsticks that do as well."""
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
    spearman_exact: bool = True
    """Every ordering was counted for p; with many yardsticks they are drawn."""

    def covers(self, traces: Mapping[str, str]) -> bool:
        """True when it was made on all of these traces, by corpus and hash."""
        return all(self.traces.get(corpus) == sha256 for corpus, sha256 in traces.items())

    def summary(self) -> dict[str, Any]:
        """What a Run remembers of it: rules and figures, without every estimate."""
        figures = ("disagreement", "harm", "near_tie_auc", "retention")
        content = self.model_dump(mode="json", exclude={"yardsticks"})
        content["yardsticks"] = [
            {
                "cut": yardstick.cut,
                "family": yardstick.family,
                "calibrated": yardstick.calibrated,
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
