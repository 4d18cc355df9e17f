"""What `audit inspect` found, in lines of plain text; the preflight's findings are shown apart."""

from __future__ import annotations

from audit.records import Inspection
from audit.report.wording import clean
from audit.words import count, some

_NAMES_SHOWN = 12


def inspection_lines(found: Inspection) -> list[str]:
    """One fact per line, its name in front."""
    tokenizer = "unknown" if found.valid_ids is None else f"{found.valid_ids:,} ids"
    facts = [
        ("files", f"{len(found.files)} with {count(found.tensors_in_file, 'tensor')}"),
        ("heads", ", ".join(found.heads)),
        ("norm", "found" if found.norm_found else "not in this file"),
        ("tokenizer", tokenizer),
        ("rows", f"median norm {found.row_norm_median:.4g}, {found.dead_rows} of them zero; "
                 f"{found.dead_columns} zero columns"),
        *[("names", line) for line in _dialects(found)],
        *[
            ("absent", f"{one.head}: looked for {some(one.looked_for, _NAMES_SHOWN)}")
            for one in found.absent
        ],
        *([("coverage", coverage_words(found.coverage))] if found.coverage else []),
    ]  # fmt: skip
    return [f"{name:<9}  {clean(text)}" for name, text in facts]


def coverage_words(coverage: dict[str, tuple[int, int]]) -> str:
    """Token classes that lack rows, the poorest first, and how many classes are whole."""
    lost = {name: pair for name, pair in coverage.items() if pair[0] < pair[1]}
    order = sorted(lost, key=lambda name: (lost[name][0] / lost[name][1], name))
    told = ", ".join(f"{name} {lost[name][0]:,} of {lost[name][1]:,}" for name in order)
    whole = f"{len(coverage) - len(lost)} of {len(coverage)} classes whole"
    return f"{told}; {whole}" if told else whole


def _dialects(found: Inspection) -> list[str]:
    """Each dialect with the parts that are spelled in it."""
    parts: dict[str, list[str]] = {}
    for one in found.dialects:
        parts.setdefault(one.dialect, []).append(one.role)
    return [f"{', '.join(roles)} as {dialect} spells them" for dialect, roles in parts.items()]
