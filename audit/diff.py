"""Two recorded candidates: what went in differently, and what came out differently.

A difference of outcomes means something only when both ran beside the same reference, on the same
traces, and were counted in the same way; anything else is refused, naming the hash that differs.
Reads runs and tables, no ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit.errors import BadUsageError, MismatchError
from audit.paired import Difference, paired_differences, reference_changes
from audit.provenance import sha256_json
from audit.records import Candidate, Run
from audit.stats import Resampling
from audit.table import Frame

_SHORT = 16


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: a run and the candidate meant."""

    run: Run
    candidate: Candidate

    @property
    def traces(self) -> dict[str, str]:
        """Corpus -> hash of its trace."""
        return {trace.info.corpus: trace.sha256 for trace in self.run.traces}


@dataclass(frozen=True, slots=True)
class InputDifference:
    """One input that is not the same; None where a side has none."""

    what: str
    a: str | None
    b: str | None


def input_differences(a: Side, b: Side) -> list[InputDifference]:
    """What went into the two audits differently, the weightiest first."""
    left, right = _inputs(a), _inputs(b)
    names = dict.fromkeys([*left, *right])
    return [
        InputDifference(name, left.get(name), right.get(name))
        for name in names
        if left.get(name) != right.get(name)
    ]


def comparable_corpora(a: Side, b: Side, wanted: Sequence[str] = ()) -> list[str]:
    """The corpora on which the two may be held against each other, in the order of `a`.

    Args:
        wanted: only these; all that both have when empty.

    Raises:
        MismatchError: the references, the counting or a trace differ.
        BadUsageError: a wanted corpus is not in both runs.
    """
    _check_same("the reference", a.run.reference.sha256, b.run.reference.sha256)
    versions = [str(side.run.provenance.measures_version) for side in (a, b)]
    _check_same("the version of the measures", *versions)
    common = [corpus for corpus in a.traces if corpus in b.traces]
    if unknown := [corpus for corpus in wanted if corpus not in common]:
        raise BadUsageError(
            f"corpus {unknown[0]} is not in both runs",
            hint=f"both have: {', '.join(common) or 'none'}",
        )
    chosen = [corpus for corpus in common if corpus in wanted or not wanted]
    if not chosen:
        raise MismatchError(
            "the two runs share no corpus",
            hint="audit both candidates on the same traces",
        )
    for corpus in chosen:
        _check_same(f"the trace of {corpus}", a.traces[corpus], b.traces[corpus])
    return chosen


def outcome_differences(
    a: Side, b: Side, tables: tuple[Frame, Frame], corpora: Sequence[str], how: Resampling
) -> tuple[list[Difference], list[str]]:
    """The paired differences b - a on these corpora, and notes on what limits them.

    Args:
        tables: the position tables of the two runs.

    Raises:
        MismatchError: the tables are not of the same positions.
    """
    left, right = (
        [
            table[(table["candidate"] == side.candidate.head.name) & (table["corpus"] == corpus)]
            for corpus in corpora
        ]
        for side, table in zip((a, b), tables, strict=True)
    )
    same = a.candidate.head.sha256 == b.candidate.head.sha256
    found = paired_differences(left, right, how, same_head=same)
    notes = []
    for corpus, *pair in zip(corpora, left, right, strict=True):
        if changes := reference_changes(*pair):
            notes.append(
                f"on {corpus} the reference itself proposed something else at {changes:,} "
                "positions: it ran on another device or version"
            )
    return found, notes


def _inputs(side: Side) -> dict[str, str]:
    """Everything that went in, by name."""
    run, head = side.run, side.candidate.head
    how = run.provenance
    calibration = run.calibration
    return {
        "reference": run.reference.sha256,
        "reference name": run.reference.name,
        "candidate": head.sha256,
        "candidate name": head.name,
        "candidate encoding": head.encoding,
        **{f"trace {corpus}": sha256 for corpus, sha256 in side.traces.items()},
        "measures version": str(how.measures_version),
        "calibration": "none" if calibration is None else sha256_json(calibration)[:_SHORT],
        **_named("setting", how.settings),
        **_named("version", how.versions),
        "device": how.device,
        "platform": how.platform,
    }


def _named(kind: str, values: Mapping[str, Any]) -> dict[str, str]:
    return {f"{kind} {name}": str(value) for name, value in sorted(values.items())}


def _check_same(what: str, a: str, b: str) -> None:
    if a != b:
        raise MismatchError(
            f"these runs can not be compared: {what} differs, {a[:_SHORT]} and {b[:_SHORT]}",
            hint="audit both candidates beside the same reference on the same traces; "
            "--corpus NAME compares on that corpus only",
        )
