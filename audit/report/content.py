"""What a report says of a Run: every sentence, number and table, made once for all formats.

Plain text that is safe to show: names from files are cleaned here, and whoever writes a format
only escapes for it. Nothing is computed beyond choosing, ordering and putting into words. Leaves
out charts (`report.charts`), which need libraries of their own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from audit.records import Candidate, Control, Finding, GateResult, Outcome, Review, Run, VerdictKind
from audit.report import decided, tables, wording
from audit.report.calibrated import Summary, summary_of
from audit.report.decided import LimitLine
from audit.report.flips import flips_table
from audit.report.tables import Table
from audit.report.token_text import TokenText
from audit.report.wording import clean
from audit.table import Frame
from audit.words import count

_ORDER: tuple[Outcome, ...] = ("fail", "undecided", "pass")
_OUTCOME_WORDS: dict[Outcome, tuple[str, str]] = {
    "fail": ("fails", "fail"),
    "undecided": ("is undecided", "are undecided"),
    "pass": ("passes", "pass"),
}
NOT_JUDGED = "measured, not judged: no policy was held against it"


@dataclass(frozen=True, slots=True)
class Line:
    """One sentence with the word that classes it: passed, FAILED, note, warning, error."""

    word: str
    loud: bool
    """Whether it asks for attention."""
    sentence: str


@dataclass(frozen=True, slots=True)
class Tile:
    """A headline figure: what it is, its value, and what stands beside it in small."""

    label: str
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class Judged:
    """What is said of one candidate."""

    record: Candidate
    name: str
    digest: str
    """The first digits of the head's hash."""
    kind: VerdictKind
    verdict: str
    """The verdict's sentence."""
    outcome: Outcome | None
    """The gate's outcome; None when no policy was held against it."""
    outcome_sentence: str
    """The outcome's word, a colon, and which limits decided it."""
    changes: tuple[str, ...]
    """What changed in the policy since the one that it names as its previous one."""
    tiles: tuple[Tile, ...]
    limits: tuple[LimitLine, ...]
    evidence: Table
    estimates: Table
    classes: Table
    worst: Table
    predictions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What is said of a run, in the order of a page."""

    run: Run
    id: str
    """The run's id, or that it was not recorded."""
    created: str
    outcome: Outcome | None
    """The worst of the candidates' outcomes; None when none was judged."""
    headline: str
    """The outcome's word, a colon, and what it rests on."""
    heads: Table
    traces: Table
    candidates: tuple[Judged, ...]
    ranking: Table | None
    """All candidates, the best first; None for a single one."""
    findings: tuple[Line, ...]
    findings_summary: str
    controls: tuple[Line, ...]
    controls_summary: str
    calibration: Summary | None
    rules: tuple[str, ...]
    flips: Table | None
    reviews: Table | None
    provenance: tuple[tuple[str, str], ...]


def report_of(
    run: Run,
    *,
    flips: Frame | None = None,
    limit: int = 20,
    text: TokenText | None = None,
    reviews: Sequence[Review] = (),
) -> Report:
    """Everything that is said of a run.

    Args:
        flips: the table of positions, to list the `limit` costliest flips; None leaves them out.
        text: what a token id says, where a tokenizer is at hand.
        reviews: decisions on this run, the oldest first.
    """
    calibration = summary_of(run)
    outcomes = [c.gate.outcome if c.gate else None for c in run.candidates]
    findings, summary = findings_told(run.preflight)
    return Report(
        run=run,
        id=clean(run.run) or "not recorded",
        created=clean(run.provenance.created),
        outcome=worst_outcome(outcomes),
        headline=_headline(run, outcomes),
        heads=tables.head_table(run),
        traces=tables.trace_table(run),
        candidates=tuple(_judged(run, candidate) for candidate in run.candidates),
        ranking=tables.ranking_table(run) if len(run.candidates) > 1 else None,
        findings=findings,
        findings_summary=summary,
        controls=tuple(_control(control) for control in run.controls),
        controls_summary=f"{sum(c.passed for c in run.controls)} of {len(run.controls)} passed",
        calibration=calibration,
        rules=_rules(calibration),
        flips=None if flips is None else flips_table(flips, limit, text),
        reviews=decided.review_table(run, reviews) if reviews else None,
        provenance=_provenance(run),
    )


def _headline(run: Run, outcomes: Sequence[Outcome | None]) -> str:
    """The gate's answer for the whole run in a few words."""
    worst = worst_outcome(outcomes)
    if worst is None:
        return NOT_JUDGED
    missing = outcomes.count(None)
    parts = [
        f"{n} of {count(len(run.candidates), 'candidate')} {_OUTCOME_WORDS[word][n > 1]}"
        for word in _ORDER
        if (n := outcomes.count(word))
    ]
    told = ", ".join(parts + [f"{missing} not judged"] * bool(missing))
    return f"{worst}: {told}"


def worst_outcome(outcomes: Sequence[Outcome | None]) -> Outcome | None:
    """What several candidates come to: the worst. None when nobody judged; where only some were
    judged, the others have failed."""
    if not any(outcomes):
        return None
    return "fail" if None in outcomes else next(word for word in _ORDER if word in outcomes)


def _judged(run: Run, candidate: Candidate) -> Judged:
    gate = candidate.gate
    return Judged(
        record=candidate,
        name=clean(candidate.head.name),
        digest=clean(candidate.head.sha256[:12]),
        kind=candidate.verdict.kind,
        verdict=clean(candidate.verdict.sentence),
        outcome=gate.outcome if gate else None,
        outcome_sentence=_outcome_sentence(gate) if gate else NOT_JUDGED,
        changes=tuple(clean(sentence) for sentence in gate.changes) if gate else (),
        tiles=_tiles(run, candidate),
        limits=decided.limit_lines(candidate),
        evidence=tables.evidence_table(candidate),
        estimates=tables.estimate_table(candidate),
        classes=tables.class_table(candidate),
        worst=tables.worst_table(candidate),
        predictions=tuple(wording.predictions(candidate)),
    )


def _outcome_sentence(gate: GateResult) -> str:
    word = f"{gate.outcome}: "
    return word + clean(gate.sentence).removeprefix(word)


def _tiles(run: Run, candidate: Candidate) -> tuple[Tile, ...]:
    """At most four figures that a reader looks for first."""
    out = []
    worst = tables.worst_retention(candidate.estimates)
    if worst:
        where = f"on {wording.scope(worst)}, its worst corpus · {wording.interval(worst)}"
        out.append(Tile("retention R", wording.number("retention", worst.value), where))
    for measure, register in (("disagreement", "in_distribution"), ("shift_loss", "domain_shift")):
        found = tables.pooled(candidate.estimates, measure, register)
        if found and found.value is not None:
            where = f"{wording.REGISTER_WORDS[register]} · {wording.interval(found)}"
            value = wording.number(measure, found.value)
            out.append(Tile(wording.measure_title(measure), value, where))
    stored, whole = candidate.head.stored_bytes, run.reference.stored_bytes
    if stored is not None:
        share = f"{100 * stored / whole:.0f} % of the reference's" if whole else "as stored"
        out.append(Tile("size", wording.size(stored), share))
    return tuple(out)


def findings_told(findings: Sequence[Finding]) -> tuple[tuple[Line, ...], str]:
    """Preflight findings, what asks for attention first, and how many of each there are."""
    ordered = sorted(findings, key=lambda finding: finding.severity == "note")
    lines = tuple(
        Line(f.severity, f.severity != "note", clean(f"{f.code}  {f.subject}: {f.sentence}"))
        for f in ordered
    )
    notes = sum(not line.loud for line in lines)
    loud = count(len(lines) - notes, "warning")
    return lines, f"{loud}, {count(notes, 'note')}"


def _control(control: Control) -> Line:
    word = "passed" if control.passed else "FAILED"
    told = f"{control.name} on {control.corpus}: {control.sentence} ({control.expected})"
    return Line(word, not control.passed, clean(told))


def _rules(calibration: Summary | None) -> tuple[str, ...]:
    if calibration is None:
        return ()
    rules = tuple(map(wording.rule_check, calibration.rules))
    return (*rules, wording.trials_told(calibration.trials)) if calibration.trials else rules


def _provenance(run: Run) -> tuple[tuple[str, str], ...]:
    """What someone needs to make the numbers again or to prove that they are these."""
    how = run.provenance
    settings = how.model_dump(mode="json")["settings"]
    pairs = [
        ("run", run.run or "not recorded"),
        ("positions", run.positions_sha256 or "not recorded"),
        ("made", how.created),
        ("platform", f"{how.platform}, {how.device}"),
        ("versions", ", ".join(f"{name} {number}" for name, number in how.versions.items())),
        ("measures", f"version {how.measures_version}"),
        ("settings", ", ".join(f"{name} {json.dumps(value)}" for name, value in settings.items())),
        ("reference", f"{run.reference.sha256} {run.reference.path}"),
    ]
    pairs += [("candidate", f"{c.head.sha256} {c.head.path}") for c in run.candidates]
    pairs += [("trace", f"{trace.sha256} {trace.path}") for trace in run.traces]
    policies = {c.gate.policy.sha256: c.gate.policy.name for c in run.candidates if c.gate}
    pairs += [("policy", f"{digest} {name}") for digest, name in policies.items()]
    return tuple((label, clean(text)) for label, text in pairs)
