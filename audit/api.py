"""The public Python API: what a pipeline calls. `audit.compare`, `audit.gate`, `audit.exit_code`.

Everything else may move between versions. Arguments that name files take str or Path; whatever is
wrong raises `audit.AuditError`, whose message, hint and place are those of the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path

from audit.gating import EXIT_CODES, judge_run, outcome_of
from audit.ledger import Ledger, open_ledger
from audit.policy import Policy, load_policy
from audit.records import Run, Waiver

StrPath = str | PathLike[str]
Progress = Callable[[str, int, int], None]


def compare(
    ref: StrPath,
    *cands: StrPath,
    traces: Sequence[StrPath] = (),
    trims: Sequence[StrPath] = (),
    head: str | None = None,
    kl: bool = False,
    device: str = "cpu",
    seed: int = 0,
    resamples: int = 4000,
    ledger: Ledger | StrPath | None = None,
    record: bool = True,
    progress: Progress | None = None,
) -> Run:
    """Run each candidate beside the reference on the same states, as `audit compare` does.

    Args:
        ref: safetensors file, sharded index, Hugging Face folder, or GGUF.
        cands: the same, or a LoRA adapter of `ref`, or a proposals file.
        traces: files or folders; else they are looked for as the command does.
        trims: ranks cards; the reference's own rows for their ids are candidates too.
        head: `lm`, `mtp`, `eagle3`, `medusa:0`, `exit:16`; else the one that all files hold.
        ledger: where the run is kept and calibrations are found; else AUDIT_LEDGER, else
            ./audit-ledger.
        record: keep the run.
        progress: called with what is being done, steps done and steps in all.

    Raises:
        AuditError: bad input of any kind; nothing is recorded then.
    """
    from audit.pair import PairOptions
    from audit.run import AuditRequest, CandidateRequest, audit_heads
    from audit.stats import Resampling

    kept = _ledger(ledger)
    if record:
        kept.check_writable()
    wanted = [CandidateRequest(Path(path)) for path in cands]
    wanted += [CandidateRequest(Path(path), is_trim=True) for path in trims]
    request = AuditRequest(
        ref=Path(ref),
        candidates=tuple(wanted),
        traces=tuple(Path(path) for path in traces),
        kl=kl,
        device=device,
        resampling=Resampling(resamples=resamples, seed=seed),
        pair=PairOptions(head=head),
        ledger=kept,
    )
    finished = audit_heads(request, progress)
    return kept.save_run(finished.run, finished.frames) if record else finished.run


def gate(
    run: Run,
    policy: Policy | StrPath,
    *,
    waivers: Sequence[Waiver] = (),
    now: datetime | None = None,
) -> Run:
    """The run with the gate's answer in `candidate.gate` of every candidate.

    The same function judges here, in `audit gate` and in `audit compare --gate`.

    Args:
        policy: a policy, or the TOML file that holds one.
        waivers: those for other heads do nothing, nor do expired ones.
        now: with its time zone; the present by default.

    Raises:
        AuditError: the policy can not be read, or the run holds no candidate.
    """
    known = policy if isinstance(policy, Policy) else load_policy(Path(policy))
    return judge_run(run, known, waivers, now=now or datetime.now(UTC))


def exit_code(judged: Run) -> int:
    """0 passed, 1 failed, 3 undecided: the worst candidate counts, an unjudged one has failed."""
    return EXIT_CODES[outcome_of(judged)]


def _ledger(given: Ledger | StrPath | None) -> Ledger:
    return (
        given if isinstance(given, Ledger) else open_ledger(None if given is None else str(given))
    )
