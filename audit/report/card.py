"""A Run as a section of a model card, one per candidate, bound to the head by its hash.

Markdown for people and a YAML block for machines, in the names of the Hub's `model-index`. The
figures are those of the run, rounded to six digits; who wants all digits reads the run document.
"""

from __future__ import annotations

from audit.records import Estimate, Run
from audit.report import wording
from audit.report.content import Judged, Report
from audit.report.escape import markdown, markdown_table, yaml_number, yaml_text
from audit.report.tables import at_corpus, pooled

_MEASURES = ("retention", "disagreement", "vocabulary_ceiling")
_REGISTERS = ("in_distribution", "same_register", "domain_shift")


def render_card(report: Report) -> str:
    """Sections to be pasted into the model card of each candidate."""
    return "\n".join(_section(candidate, report) for candidate in report.candidates)


def _section(candidate: Judged, report: Report) -> str:
    head, run = candidate.record.head, report.run
    parts = [
        "## What compression cost this draft head",
        f"Verdict: {markdown(candidate.verdict)}",
        f"Gate: {markdown(candidate.outcome_sentence)}",
        *(f"Prediction: {markdown(sentence)}" for sentence in candidate.predictions),
        markdown_table(candidate.worst.header, candidate.worst.rows, candidate.worst.numbers),
        "Retention R is the share of the reference's greedy acceptance that this head keeps; "
        "disagreement D is the share of positions where the two propose different tokens. "
        "Intervals resample whole sequences.",
        f"These figures hold for the head with sha256 `{_hash(head.sha256)}` beside the "
        f"reference with sha256 `{_hash(run.reference.sha256)}`, "
        + (f"run `{_hash(run.run)}`." if run.run else "in a run that was not recorded."),
        f"```yaml\n{_index(candidate, run)}```",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _index(candidate: Judged, run: Run) -> str:
    """The block that the Hub's front matter takes: every text quoted, every number a number.

    `model-index` is in the Hub's own form; what binds and sums it up stands under a key of ours.
    """
    head = candidate.record.head
    lines = [
        "head-audit:",
        f"  head_sha256: {yaml_text(_hash(head.sha256))}",
        f"  reference_sha256: {yaml_text(_hash(run.reference.sha256))}",
        f"  run: {yaml_text(_hash(run.run))}",
        f"  verdict: {yaml_text(candidate.kind)}",
        f"  gate: {yaml_text(candidate.outcome) if candidate.outcome else 'null'}",
        "  retention:",
        *_pooled(candidate),
        "model-index:",
        f"- name: {yaml_text(candidate.name)}",
        "  results:",
    ]
    for trace in run.traces:
        lines += [
            "  - task:",
            '      type: "text-generation"',
            '      name: "speculative drafting"',
            "    dataset:",
            f"      name: {yaml_text(wording.clean(trace.info.corpus))}",
            f"      type: {yaml_text(trace.info.register_)}",
            f"      revision: {yaml_text(_hash(trace.sha256))}",
            *_metrics(candidate, trace.info.corpus),
        ]
    return "\n".join(lines) + "\n"


def _metrics(candidate: Judged, corpus: str) -> list[str]:
    found = [at_corpus(candidate.record.estimates, name, corpus) for name in _MEASURES]
    lines = [line for e in found if e and e.value is not None for line in _metric(e)]
    return ["    metrics:", *lines] if lines else ["    metrics: []"]


def _metric(estimate: Estimate) -> list[str]:
    return [
        f"    - type: {yaml_text(estimate.measure)}",
        f"      name: {yaml_text(wording.measure_title(estimate.measure))}",
        f"      value: {yaml_number(estimate.value)}",
        f"      args: {_bounds(estimate)}",
    ]


def _pooled(candidate: Judged) -> list[str]:
    """Retention pooled per register, the figure that a limit is most often held against."""
    found = ((r, pooled(candidate.record.estimates, "retention", r)) for r in _REGISTERS)
    lines = [
        f"    {register}: {{value: {yaml_number(e.value)}, {_bounds(e)[1:]}"
        for register, e in found
        if e
    ]
    return lines or ["    {}"]


def _bounds(estimate: Estimate) -> str:
    return f"{{low: {yaml_number(estimate.low)}, high: {yaml_number(estimate.high)}}}"


def _hash(text: str) -> str:
    """A hash as hex digits, so that nothing else gets into code."""
    return "".join(char for char in text if char in "0123456789abcdef")
