"""A calibration as a Run remembers it, read back: `Calibration.summary()` with types.

A Run keeps it as plain JSON, and a run document may come from a stranger, so it is validated here
before anything is said or drawn from it. Leaves out the full estimates, which only a study has.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, ValidationError

from audit.calibration import Calibration, Family, RuleCheck, Trial
from audit.records import Record, Register, Run


class Figures(Record):
    """Pooled values of one yardstick in one register; None where nothing was measured."""

    disagreement: float | None = None
    harm: float | None = None
    near_tie_auc: float | None = None
    retention: float | None = None


class Yard(Record):
    """One yardstick: what a chart needs of it."""

    cut: str
    family: Family
    calibrated: bool = False
    registers: dict[Register, Figures]
    shift_loss: float | None = None
    shift_tax: float | None = None

    def at(self, register: Register) -> Figures:
        """Its figures in a register, empty where it has none."""
        return self.registers.get(register, Figures())


class Summary(Record):
    """What a Run remembers of its reference's calibration."""

    reference: str
    head: str
    traces: dict[str, str]
    yardsticks: tuple[Yard, ...]
    rules: tuple[RuleCheck, ...]
    spearman_loss: float | None = None
    spearman_loss_p: float | None = None
    spearman_tax: float | None = None
    spearman_tax_p: float | None = None
    spearman_exact: bool = True
    fitted_to: dict[str, str] = Field(default_factory=dict)
    created: str | None = None
    trials: tuple[Trial, ...] = ()

    def rule(self, name: str) -> RuleCheck | None:
        """The check of one rule."""
        return next((rule for rule in self.rules if rule.name == name), None)


def summary_of(source: Run | Calibration | dict[str, Any]) -> Summary | None:
    """The calibration of a Run or a study; None when there is none or a file spoiled it."""
    if isinstance(source, Calibration):
        return Summary.model_validate(source.summary())
    content = source.calibration if isinstance(source, Run) else source
    if content is None:
        return None
    try:
        return Summary.model_validate(content)
    except ValidationError:
        return None
