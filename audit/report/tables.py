"""The tables of a report as plain rows: chosen, ordered and put into words once for all formats.

Cells are safe to show; whoever writes a format escapes them for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from audit.catalogue import CATALOGUE, CHAIN_MEASURES, COMPOSED
from audit.records import Candidate, Estimate, Run
from audit.report import wording
from audit.report.wording import clean

SHOWN = (
    "disagreement",
    "harm",
    "acceptance_ref",
    "acceptance_cand",
    "retention",
    "vocabulary_ceiling",
    "disagreement_covered",
    "flip_margin",
    "near_tie_auc",
    "kl_nats",
    "shift_loss",
    "shift_tax",
    *CHAIN_MEASURES,
)
"""Measures in the order of a report; others stay in the run document."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a header, as text."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[int, ...] = ()
    """Columns that are set flush right."""


_OF_CLASSES = ("vocabulary_ceiling", "retention", "disagreement")


def head_table(run: Run) -> Table:
    """The reference and all candidates: what was compared."""
    header = ("", "name", "stored as", "shape", "per weight", "size", "sha256")
    rows = [("reference", *wording.head_line(run.reference))]
    rows += [("candidate", *wording.head_line(candidate.head)) for candidate in run.candidates]
    return Table(header, tuple(rows))


def trace_table(run: Run) -> Table:
    """The traces: on what text."""
    header = ("", "corpus", "register", "amount", "verifier", "sha256")
    return Table(header, tuple(("trace", *wording.trace_line(trace)) for trace in run.traces))


def estimate_table(candidate: Candidate) -> Table:
    """By measure; a register's pooled row only where it pools several corpora."""
    found = [e for e in candidate.estimates if e.token_class is None and e.measure in SHOWN]
    corpora: dict[str | None, set[str]] = {}
    for estimate in found:
        if estimate.corpus:
            corpora.setdefault(estimate.register_, set()).add(estimate.corpus)

    def shown(estimate: Estimate) -> bool:
        alone = estimate.corpus is None and len(corpora.get(estimate.register_, ())) == 1
        full = estimate.measure == "vocabulary_ceiling" and estimate.value in (1.0, None)
        return not alone and not full

    kept = sorted(filter(shown, found), key=lambda e: SHOWN.index(e.measure))
    return _estimates(kept, candidate)


def class_table(candidate: Candidate) -> Table:
    """What each class of tokens lost, per register; whole ceilings are left out.

    The run document has these per corpus too, and the acceptances they are made of.
    """
    kept = [
        e
        for e in candidate.estimates
        if e.token_class is not None
        and e.corpus is None
        and e.measure in _OF_CLASSES
        and not (e.measure == "vocabulary_ceiling" and e.value in (1.0, None))
    ]
    return _estimates(sorted(kept, key=lambda e: (e.measure, e.token_class or "")), candidate)


def _estimates(estimates: Sequence[Estimate], candidate: Candidate) -> Table:
    level = candidate.estimates[0].level if candidate.estimates else 0.95
    header = ("measure", "on", "estimate", wording.interval_title(level), "macro")
    rows = tuple(
        (
            wording.measure_title(e.measure),
            wording.scope(e),
            wording.number(e.measure, e.value),
            wording.interval(e),
            wording.number(e.measure, e.macro),
        )
        for e in estimates
    )
    return Table(header, rows, numbers=(2, 4))


def worst_table(candidate: Candidate) -> Table:
    """Retention per corpus, the lowest first, with the disagreement there."""
    kept = [e for e in candidate.estimates if _is_corpus(e, "retention") and e.value is not None]
    rows = []
    for estimate in sorted(kept, key=lambda e: e.value if e.value is not None else 0.0):
        register = wording.REGISTER_WORDS.get(estimate.register_ or "", "–")
        there = at_corpus(candidate.estimates, "disagreement", estimate.corpus)
        rows.append(
            (
                wording.scope(estimate),
                register,
                wording.number("retention", estimate.value),
                wording.interval(estimate),
                wording.number("disagreement", there.value if there else None),
            )
        )
    header = ("corpus", "register", "retention R", "interval", "disagreement D")
    return Table(header, tuple(rows), numbers=(2, 4))


def evidence_table(candidate: Candidate) -> Table:
    """What the verdict rests on; evidence without weight is shown all the same."""
    rows = tuple(
        (
            clean(piece.name),
            clean(piece.sentence),
            piece.points_to,
            "yes" if piece.weight else "none",
            clean(piece.source),
        )
        for piece in candidate.verdict.evidence
    )
    return Table(("evidence", "what it says", "points to", "weight", "threshold from"), rows)


def ranking_table(run: Run) -> Table:
    """All candidates in one table, the best retention on its worst corpus first."""
    ranked = []
    for candidate in run.candidates:
        worst = worst_retention(candidate.estimates)
        there = at_corpus(candidate.estimates, "disagreement", worst.corpus if worst else None)
        row = (
            clean(candidate.head.name),
            candidate.verdict.kind,
            wording.number("retention", worst.value if worst else None),
            wording.scope(worst) if worst else "–",
            wording.number("disagreement", there.value if there else None),
            wording.size(candidate.head.stored_bytes),
        )
        ranked.append((-(worst.value if worst and worst.value is not None else 0.0), row))
    header = ("ranked", "verdict", "worst retention", "on", "disagreement there", "size")
    return Table(header, tuple(row for _, row in sorted(ranked, key=lambda pair: pair[0])))


def glossary() -> Table:
    """What each shown measure means, from the catalogue."""
    rows = []
    for name in SHOWN:
        if name in CATALOGUE:
            rows.append((CATALOGUE[name].title, CATALOGUE[name].formula, CATALOGUE[name].caveat))
        else:
            rows.append((wording.measure_title(name), COMPOSED[name], ""))
    return Table(("measure", "meaning", "to be kept in mind"), tuple(rows))


def worst_retention(estimates: Sequence[Estimate]) -> Estimate | None:
    """The corpus on which the candidate keeps least; None when no retention is known."""
    known = [
        (estimate.value, estimate)
        for estimate in estimates
        if _is_corpus(estimate, "retention") and estimate.value is not None
    ]
    return min(known, key=lambda pair: pair[0])[1] if known else None


def pooled(estimates: Sequence[Estimate], measure: str, register: str) -> Estimate | None:
    """The estimate pooled over a register, over all token classes; None when there is none."""
    wanted = (measure, register, None, None)
    for e in estimates:
        if (e.measure, e.register_, e.corpus, e.token_class) == wanted:
            return e
    return None


def at_corpus(estimates: Sequence[Estimate], measure: str, corpus: str | None) -> Estimate | None:
    """The estimate on one corpus, over all token classes; None when there is none."""
    return next((e for e in estimates if _is_corpus(e, measure) and e.corpus == corpus), None)


def _is_corpus(estimate: Estimate, measure: str) -> bool:
    """Whether this is the measure on a single corpus, over all token classes."""
    return estimate.measure == measure and bool(estimate.corpus) and estimate.token_class is None
