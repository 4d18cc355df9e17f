"""A calibration on a terminal: the table of the study, and which rules hold."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from audit.calibration import Calibration, Yardstick, ladder_distance
from audit.report.terminal import rows
from audit.report.wording import number, rule_check, trials

_HEADER = (
    "cut", "family", "R in", "R same", "R shift", "loss", "tax", "D in", "H in", "AUC in",
    "D shift", "H shift", "beyond noise",
)  # fmt: skip


def show_study(calibration: Calibration, console: Console) -> None:
    """Print the retention and tax table, Spearman with its exact p, and the rules' checks."""
    ladder = calibration.ladder()
    lines = []
    for yardstick in calibration.yardsticks:
        distance = ladder_distance(
            yardstick.value("disagreement", "in_distribution"),
            yardstick.value("disagreement", "domain_shift"),
            ladder,
        )
        beyond = "–" if distance is None or yardstick.family == "noise" else f"{distance:+.3f}"
        lines.append([yardstick.cut, yardstick.family, *_cells(yardstick), beyond])
    rows(console, _HEADER, lines)
    console.print()
    for what, rho, p in (
        ("loss", calibration.spearman_loss, calibration.spearman_loss_p),
        ("tax", calibration.spearman_tax, calibration.spearman_tax_p),
    ):
        told = "no ranking" if rho is None or p is None else f"Spearman {rho:.2f}, exact p {p:.4g}"
        console.print(Text(f"D in distribution against the shift {what}: {told}"))
    for rule in calibration.rules:
        console.print(Text(rule_check(rule.model_dump())), soft_wrap=True)
    tried = trials([trial.model_dump() for trial in calibration.trials])
    console.print(Text(tried), soft_wrap=True)


def _cells(yardstick: Yardstick) -> list[str]:
    wanted = (
        ("retention", "in_distribution"), ("retention", "same_register"),
        ("retention", "domain_shift"), ("shift_loss", "domain_shift"),
        ("shift_tax", "domain_shift"), ("disagreement", "in_distribution"),
        ("harm", "in_distribution"), ("near_tie_auc", "in_distribution"),
        ("disagreement", "domain_shift"), ("harm", "domain_shift"),
    )  # fmt: skip
    return [number(measure, yardstick.value(measure, register)) for measure, register in wanted]
