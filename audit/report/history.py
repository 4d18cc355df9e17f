"""What the ledger holds, as rows of text: lists of runs, reviews, judgements, waivers, damage.

Rows only; `terminal.rows` prints them, and `--csv` writes the list of runs.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from audit.ledger import CandidateRow, Judgement, RunRow, Verification, in_force
from audit.records import Review, Waiver
from audit.report import wording
from audit.report.escape import spreadsheet_cell
from audit.report.wording import clean
from audit.words import count

Rows = list[list[str]]
RUNS = (
    "run", "made", "reference", "candidate", "verdict", "gate", "worst retention", "on", "size",
    "review",
)  # fmt: skip
RUNS_NARROW = ("run", "candidate", "verdict", "gate", "worst retention", "review")
REVIEWS = ("reviewed", "candidate", "decision", "by", "gate then", "waivers", "reason")
JUDGEMENTS = ("judged", "candidate", "gate", "policy", "sentence")
WAIVERS = ("waiver", "head", "limit", "by", "until", "state", "reason")
PROBLEMS = ("what", "where", "damage", "state")
_ONE = {"policies": "policy"}
_SHORT = 10
"""Beginning of a run's id where there is little room; commands take it as well."""
CSV = (
    "run", "created", "reference", "reference_sha256", "corpora", "positions", "missing",
    "candidate", "head_sha256", "encoding", "bits_per_weight", "stored_bytes", "verdict", "gate",
    "policy", "worst_retention", "worst_low", "worst_high", "worst_corpus", "decision", "reviewer",
    "reviews",
)  # fmt: skip


def run_rows(runs: Sequence[RunRow], header: Sequence[str] = RUNS) -> Rows:
    """One row per candidate; what its run says stands in the first one only.

    Args:
        header: the columns wanted, of RUNS.
    """
    out: Rows = []
    for run in runs:
        name = clean(run.run if header == RUNS else run.run[:_SHORT])
        name += " (files missing)" if run.missing else ""
        head = [name, clean(run.created), clean(run.reference_name)]
        lines = [_candidate(candidate) for candidate in run.candidates] or [["–"] * 7]
        for i, line in enumerate(lines):
            cells = dict(zip(RUNS, [*(head if i == 0 else ["", "", ""]), *line], strict=True))
            out.append([cells[column] for column in header])
    return out


def run_csv(runs: Sequence[RunRow]) -> str:
    """The list as CSV, one line per candidate, with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV)
    for run in runs:
        shared = [
            run.run, run.created, run.reference_name, run.reference_sha256, " ".join(run.corpora),
            run.positions, run.missing,
        ]  # fmt: skip
        for one in run.candidates:
            own = [
                one.name, one.head_sha256, one.encoding, one.bits_per_weight, one.stored_bytes,
                one.verdict, one.gate, one.policy, one.worst_retention, one.worst_low,
                one.worst_high, one.worst_corpus, one.decision, one.reviewer, one.reviews,
            ]  # fmt: skip
            writer.writerow([spreadsheet_cell(value) for value in (*shared, *own)])
    return text.getvalue()


def review_rows(reviews: Sequence[Review], names: dict[str, str]) -> Rows:
    """Reviews, the first one first; `names` tells the candidates' names by hash."""
    return [
        [
            clean(one.created), _name(one.head_sha256, names), one.decision,
            clean(one.reviewer) + ("" if one.authenticated else " (unauthenticated)"),
            one.gate or "not judged", " ".join(waiver[:12] for waiver in one.waivers) or "–",
            clean(one.reason),
        ]
        for one in reviews
    ]  # fmt: skip


def recorded(review: Review, name: str) -> str:
    """What was just decided on the head of this name, in one sentence."""
    vouched = "" if review.authenticated else " (unauthenticated)"
    return (
        f"{review.decision} by {clean(review.reviewer)}{vouched} recorded for {clean(name)} of run "
        f"{review.run}, gate {review.gate or 'not judged'} · review {review.id[:12]}"
    )


def judgement_rows(judgements: Sequence[Judgement], names: dict[str, str]) -> Rows:
    """The gate's answers, the first one first."""
    return [
        [
            clean(one.gate.judged), _name(one.head_sha256, names), one.gate.outcome,
            f"{clean(one.gate.policy.name)} {clean(one.gate.policy.sha256[:12])}",
            clean(one.gate.sentence),
        ]
        for one in judgements
    ]  # fmt: skip


def waiver_rows(waivers: Sequence[Waiver], today: str) -> Rows:
    """Waivers, the first one first."""
    return [
        [
            one.id[:12], clean(one.head_sha256[:12]), clean(one.limit), clean(one.who),
            clean(one.expires), "holds" if in_force(one, today) else "expired", clean(one.reason),
        ]
        for one in waivers
    ]  # fmt: skip


def problem_rows(found: Verification) -> Rows:
    """What is damaged, and what became of it."""
    words = {(True, True): "mended", (True, False): "--repair mends it"}
    return [
        [
            one.kind, clean(one.where), clean(one.sentence),
            words.get((one.repairable, one.repaired), "restore it from a copy"),
        ]
        for one in found.problems
    ]  # fmt: skip


def verified(found: Verification) -> str:
    """What was checked and with what result, in one sentence."""
    what = counted(found.counts) or "nothing to check"
    mended = sum(problem.repaired for problem in found.problems)
    left = len(found.problems) - mended
    if not found.problems:
        return f"{what}: all as it was written"
    return f"{what}: {count(mended, 'damage')} mended, {left} left"


def counted(counts: Mapping[str, int]) -> str:
    """Counts in words, without what there is none of."""
    nouns = {name: _ONE.get(name, name.removesuffix("s")) for name in counts}
    return ", ".join(
        f"{number:,} {nouns[name] if number == 1 else name}"
        for name, number in counts.items()
        if number
    )


def _candidate(row: CandidateRow) -> list[str]:
    return [
        clean(row.name), row.verdict, row.gate or "not judged",
        wording.number("retention", row.worst_retention), clean(row.worst_corpus or "–"),
        wording.size(row.stored_bytes),
        f"{row.decision} by {clean(row.reviewer or '')}" if row.decision else "–",
    ]  # fmt: skip


def _name(sha256: str, names: dict[str, str]) -> str:
    return clean(names.get(sha256, sha256[:12]))
