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
    from audit.ledger import Ledger
    from audit.policy import Policy
    from audit.records import Run, Waiver


@dataclass(frozen=True, slots=True)
class Gating:
    """A policy, the waivers beside it, and whether its outcome may block."""

    policy: Policy
    text: str
    """The policy as it was written."""
    waivers: tuple[Waiver, ...]
    exit_zero: bool

    def judge(self, run: Run, ledger: Ledger) -> Run:
        """The run with the gate's answer in every candidate, judged now.

        Waivers of the ledger count beside those of a file.
        """
        from audit.gating import judge_run

        heads = {candidate.head.sha256 for candidate in run.candidates}
        kept = [waiver for head in sorted(heads) for waiver in ledger.waivers_of(head)]
        return judge_run(run, self.policy, (*self.waivers, *kept), now=datetime.now(UTC))

    def record(self, judged: Run, ledger: Ledger) -> None:
        """Append the gate's answers on a run of the ledger, the policy's text first."""
        ledger.save_policy(self.text)
        for candidate in judged.candidates:
            if candidate.gate is not None:
                ledger.add_judgement(judged.run, candidate.head.sha256, candidate.gate)

    def exit_code(self, judged: Run) -> int:
        """0 passed, 1 failed, 3 undecided, from the very results in the run."""
        from audit.gating import EXIT_CODES, outcome_of

        return 0 if self.exit_zero else EXIT_CODES[outcome_of(judged)]

    def show(self, judged: Run, shared: Shared) -> None:
        """The limits and the outcome on the terminal."""
        from audit.report.limits import show_gates

        if shared.quiet < 2 and not shared.as_json:
            show_gates(judged, shared.out, quiet=bool(shared.quiet))

    def warn(self, shared: Shared) -> None:
        """Say on stderr which waivers can not be meant for this policy."""
        from audit.gating import unknown_limits

        for sentence in unknown_limits(self.waivers, self.policy) if shared.quiet < 2 else ():
            click.echo(f"note: {sentence}", err=True)


def load_gating(policy: Path | None, waivers: Path | None, exit_zero: bool) -> Gating | None:
    """The gate that the options describe; None without a policy.

    Raises:
        BadUsageError: options of a gate without a policy.
        BadPolicyError, NotFoundError: see `load_policy` and `load_waivers`.
    """
    from audit.gating import load_waivers
    from audit.policy import load_policy, read_text

    if policy is None:
        if waivers is not None or exit_zero:
            name = "--waivers" if waivers is not None else "--exit-zero"
            raise BadUsageError(f"{name} belongs to a gate", hint="name its policy with --gate")
        return None
    known = load_waivers(waivers) if waivers else ()
    return Gating(load_policy(policy), read_text(policy), known, exit_zero)
