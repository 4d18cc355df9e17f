"""`audit gate`: a recorded run held against a policy."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from audit.cli.frame import Shared, shared_options
from audit.cli.gating import Gating, load_gating
from audit.errors import BadPolicyError, BadUsageError

if TYPE_CHECKING:
    from audit.records import Run

_FILE = click.Path(path_type=Path)

_EPILOG = """\b
Exit codes: 0 passed, 1 failed, 2 bad input or a limit that can not fail, 3 undecided.

\b
Examples:
  audit gate latest --policy policy.toml
  audit gate run.json --policy policy.toml --waivers waivers.toml --json
  audit gate --policy policy.toml --selftest
"""


@click.command(epilog=_EPILOG)
@click.argument("run", required=False)
@click.option("--policy", type=_FILE, required=True, help="TOML; see: audit policy init.")
@click.option("--waivers", type=_FILE, help="TOML file of waivers.")
@click.option("--selftest", is_flag=True, help="First prove that each limit can fail.")
@click.option("--exit-zero", is_flag=True, help="Report without blocking: exit 0 whatever comes.")
@click.option("--no-record", is_flag=True, help="Do not write the answer into the ledger.")
@shared_options
def gate(
    shared: Shared,
    run: str | None,
    policy: Path,
    waivers: Path | None,
    selftest: bool,
    exit_zero: bool,
    no_record: bool,
) -> int:
    """Judge RUN under a policy: a full id, a unique beginning of one, `latest`, or a run.json.

    The answer on a run of the ledger is kept there with the policy's text. Waivers of the ledger
    count beside those of --waivers.
    """
    from audit.report.source import document_path, read_document

    if run is None and not selftest:
        raise BadUsageError("RUN is missing", hint="audit gate latest --policy policy.toml")
    gating = load_gating(policy, waivers, exit_zero)
    assert gating is not None
    gating.warn(shared)
    tried = _prove(gating) if selftest else None
    ledger = shared.open_ledger()
    path = None if run is None else document_path(run)
    judged = None
    if run is not None:
        judged = gating.judge(read_document(path) if path else ledger.load_run(run), ledger)
        if path is None and not no_record:
            gating.record(judged, ledger)
    if shared.as_json:
        shared.print_json(_document(gating, judged, tried))
    if tried is not None and shared.quiet == 0 and not shared.as_json:
        total = sum(tried.values())
        click.echo(f"self-test: {len(tried)} limits gave the right outcome on {total} made-up runs")
    if judged is None:
        return 0
    gating.show(judged, shared)
    return gating.exit_code(judged)


def _prove(gating: Gating) -> dict[str, int]:
    """Limit -> made-up runs that it judged rightly.

    Raises:
        BadPolicyError: a limit that can not fail, or that nothing can pass.
    """
    from audit.gating import selftest

    found = selftest(gating.policy, datetime.now(UTC))
    broken = [one for one in found if one.wrong]
    if broken:
        names = ", ".join(repr(one.limit) for one in broken)
        raise BadPolicyError(
            f"the self-test found {len(broken)} limits that do not work: {names}; "
            f"{broken[0].limit!r} on {broken[0].wrong[0]}",
            hint="mend the policy: each limit must be able to pass and to fail",
        )
    return {one.limit: one.tried for one in found}


def _document(gating: Gating, judged: Run | None, tried: dict[str, int] | None) -> object:
    from audit.gating import outcome_of
    from audit.records import CandidateGate, GateAnswer

    done = GateAnswer(
        run=judged.run if judged else None,
        outcome=outcome_of(judged) if judged else None,
        policy=gating.policy.record,
        candidates=tuple(
            CandidateGate(name=c.head.name, head_sha256=c.head.sha256, gate=c.gate)
            for c in (judged.candidates if judged else ())
            if c.gate is not None
        ),
        selftest=tried,
    )
    return done.model_dump(by_alias=True, mode="json")
