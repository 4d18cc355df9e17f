"""What `audit compare --gate` and `audit gate` share: a policy at work on a run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from audit.cli.frame import Shared
from audit.errors import BadUsageError

if TYPE_CHECKING:
    from audit.policy import Policy
    from audit.records import Run, Waiver


@dataclass(frozen=True, slots=True)
class Gating:
    """A policy, the waivers beside it, and whether its outcome may block."""

    policy: Policy
    waivers: tuple[Waiver, ...]
    exit_zero: bool

    def judge(self, run: Run) -> Run:
        """The run with the gate's answer in every candidate, judged now."""
        from audit.gate import judge_run

        return judge_run(run, self.policy, self.waivers, now=datetime.now(UTC))

    def exit_code(self, judged: Run) -> int:
        """0 passed, 1 failed, 3 undecided, from the very results in the run."""
        from audit.gate import EXIT_CODES, outcome_of

        return 0 if self.exit_zero else EXIT_CODES[outcome_of(judged)]

    def show(self, judged: Run, shared: Shared) -> None:
        """The limits and the outcome on the terminal."""
        from audit.report.limits import show_gates

        if shared.quiet < 2 and not shared.as_json:
            show_gates(judged, shared.out, quiet=bool(shared.quiet))

    def warn(self, shared: Shared) -> None:
        """Say on stderr which waivers can not be meant for this policy."""
        from audit.gate import unknown_limits

        for sentence in unknown_limits(self.waivers, self.policy) if shared.quiet < 2 else ():
            click.echo(f"note: {sentence}", err=True)


def load_gating(policy: Path | None, waivers: Path | None, exit_zero: bool) -> Gating | None:
    """The gate that the options describe; None without a policy.

    Raises:
        BadUsageError: options of a gate without a policy.
        BadPolicyError, NotFoundError: see `load_policy` and `load_waivers`.
    """
    from audit.gate import load_waivers
    from audit.policy import load_policy

    if policy is None:
        if waivers is not None or exit_zero:
            name = "--waivers" if waivers is not None else "--exit-zero"
            raise BadUsageError(f"{name} belongs to a gate", hint="name its policy with --gate")
        return None
    return Gating(load_policy(policy), load_waivers(waivers) if waivers else (), exit_zero)
