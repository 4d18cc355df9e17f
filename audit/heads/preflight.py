"""Before anything is measured: are these two heads what they claim to be?

Loaders refuse what can not be read. What can be read and still is suspicious becomes a finding
with a stable code; `error` findings stop the audit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from audit.errors import UnreadableError
from audit.heads.head import Head
from audit.heads.scan import HeadScan
from audit.heads.tokens import TokenKinds
from audit.records import Finding, Severity
from audit.words import count, some

_NORM_RATIO = (0.5, 2.0)
"""A cut moves row norms by per cents; outside this a scale was dropped or applied twice."""
_SHOWN = 5


def check_alone(head: Head, scan: HeadScan, kinds: TokenKinds) -> list[Finding]:
    """Findings about one head by itself.

    Raises:
        UnreadableError: DEAD_HEAD when every row is zero, NON_FINITE when a row is not a number.
    """
    check_alive(head, scan)
    return [*_findings(_lost_tokens(head, kinds), head.record.name), *notes_of(head, "head")]


def check_alive(head: Head, scan: HeadScan) -> None:
    """Refuse a head whose rows are all zero, or that holds NaN or infinity."""
    bad = (~torch.isfinite(scan.norms)).nonzero().squeeze(1)
    if len(bad):
        raise UnreadableError(
            f"{count(len(bad), 'row')} of {head.record.name} with NaN or infinity, "
            f"ids {int(head.ids[bad[0]])} to {int(head.ids[bad[-1]])}",
            hint="the file or its scales are damaged: export the head again",
            where=head.record.path,
            code="NON_FINITE",
        )
    if bool(scan.dead_rows.all()):
        raise UnreadableError(
            f"every row of {head.record.name} is zero",
            hint="the file was written without its weights: export the head again",
            where=head.record.path,
            code="DEAD_HEAD",
        )
    if head.rows.count > 1 and bool(scan.flat_columns.all()) and head.bias is None:
        raise UnreadableError(
            f"every row of {head.record.name} is the same, so it can not tell tokens apart",
            hint="the file was written without its weights: export the head again",
            where=head.record.path,
            code="DEAD_HEAD",
        )


def check_pair(
    ref: Head, ref_scan: HeadScan, cand: Head, cand_scan: HeadScan, kinds: TokenKinds
) -> list[Finding]:
    """Findings about one candidate beside its reference.

    Raises:
        UnreadableError: see `check_alive`.
    """
    check_alive(cand, cand_scan)
    subject = cand.record.name
    found = [
        *_scale(ref, ref_scan, cand, cand_scan),
        *_dead_rows(ref, ref_scan, cand, cand_scan),
        *_dead_columns(ref_scan, cand_scan),
        *_lost_tokens(cand, kinds),
        *_padding(ref, cand),
        *_rules(ref, cand),
    ]
    return [*_findings(found, subject), *notes_of(cand, subject)]


def notes_of(head: Head, subject: str) -> list[Finding]:
    """What the loader had to decide, as notes."""
    code = {True: "TIED", False: "OWN_HEAD", None: "HEAD"}[head.record.tied]
    tensors = head.record.tensors
    more = f" and {len(tensors) - 2} more" if len(tensors) > 2 else ""
    where = f"read {', '.join(tensors[:2])}{more} ({head.record.encoding})"
    first = Finding(code=code, severity="note", subject=subject, sentence=where)
    notes = [
        Finding(code="NOTE", severity="note", subject=subject, sentence=note)
        for note in head.record.notes
    ]
    return [first, *_findings(_unread(head), subject), *notes]


def not_compressed(subject: str) -> Finding:
    """The candidate's weights decode to the reference's: nobody compressed anything."""
    return Finding(
        code="NOT_COMPRESSED",
        severity="warning",
        subject=subject,
        sentence="every weight equals the reference's: nothing was compressed",
    )


Found = Iterator[tuple[str, Severity, str]]


def _unread(head: Head) -> Found:
    if head.unread:
        yield (
            "UNREAD_TENSORS",
            "warning",
            f"{count(len(head.unread), 'tensor')} that seem to be this head's took no part: "
            f"{some(head.unread)}; an engine that uses them runs another head than this one",
        )


def _findings(found: Iterable[tuple[str, Severity, str]], subject: str) -> list[Finding]:
    return [Finding(code=c, severity=s, subject=subject, sentence=t) for c, s, t in found]


def _scale(ref: Head, ref_scan: HeadScan, cand: Head, cand_scan: HeadScan) -> Found:
    if cand.adapt is not ref.adapt:
        return  # rows of factors or of fewer channels are not comparable
    slot, shared = _shared_rows(ref, cand)
    before, after = ref_scan.norms[slot], cand_scan.norms[shared]
    alive = (before > 0) & (after > 0)
    if not bool(alive.any()):
        return
    ratio = float((after[alive] / before[alive]).median())
    if not _NORM_RATIO[0] < ratio < _NORM_RATIO[1]:
        yield (
            "SCALE_SUSPECT",
            "warning",
            f"row norms are {ratio:.3g} times the reference's in the median: a scale was dropped "
            "or applied twice; greedy tokens do not change, probabilities do",
        )


def _dead_rows(ref: Head, ref_scan: HeadScan, cand: Head, cand_scan: HeadScan) -> Found:
    slot, shared = _shared_rows(ref, cand)
    new = cand_scan.dead_rows[shared] & ~ref_scan.dead_rows[slot]
    if bool(new.any()):
        ids = cand.ids[shared][new]
        listed = ", ".join(str(int(i)) for i in ids[:_SHOWN])
        more = ", …" if len(ids) > _SHOWN else ""
        yield (
            "DEAD_ROWS",
            "warning",
            f"{count(len(ids), 'row')} of zeros where the reference has none (ids {listed}{more}): "
            "these tokens win only where all other logits are negative",
        )


def _dead_columns(ref_scan: HeadScan, cand_scan: HeadScan) -> Found:
    if len(ref_scan.dead_columns) != len(cand_scan.dead_columns):
        return
    new = cand_scan.dead_columns & ~ref_scan.dead_columns
    count, columns = int(new.sum()), len(new)
    if not count:
        return
    for name, part in (("first", new[: columns // 2]), ("second", new[columns // 2 :])):
        if bool(part.all()):
            yield (
                "BLOCK_COLLAPSE",
                "warning",
                f"the whole {name} half of the {columns} columns is zero in every row, in the "
                "reference it is not: the quantizer's scale was too coarse for it",
            )
            return
    yield "PRUNED_COLUMNS", "note", f"{count} of {columns} columns are zero in every row"


def _lost_tokens(cand: Head, kinds: TokenKinds) -> Found:
    if cand.is_full:
        return
    kept = set(cand.ids.tolist())
    known = cand.vocabulary if cand.valid is None else cand.valid
    for code, severity, what, ids in (
        ("STOP_LOST", "warning", "stop", kinds.stop),
        ("SPECIAL_LOST", "note", "special", kinds.special),
        ("BYTE_LOST", "note", "byte", kinds.byte),
    ):
        lost = sorted(i for i in ids if i not in kept and i < known)
        if lost:
            some = ", ".join(map(str, lost[:_SHOWN])) + (", …" if len(lost) > _SHOWN else "")
            level: Severity = "warning" if severity == "warning" else "note"
            yield code, level, f"{len(lost)} of {len(ids)} {what} tokens have no row (ids {some})"


def _rules(ref: Head, cand: Head) -> Found:
    if cand.post != ref.post:
        yield (
            "RULES_DIFFER",
            "warning",
            f"its logits go through scale {cand.post.scale:g} and softcap {cand.post.softcap}, "
            f"the reference's through {ref.post.scale:g} and {ref.post.softcap}: greedy tokens do "
            "not change, probabilities do",
        )


def _padding(ref: Head, cand: Head) -> Found:
    if ref.valid is None:
        yield "TOKENIZER_UNKNOWN", "note", "no tokenizer size is known: no row is taken as padding"
        return
    pads = sum(int((head.ids >= ref.valid).sum()) for head in (ref, cand))
    if pads:
        yield "PADDING", "note", f"{count(pads, 'padding row')} beyond id {ref.valid - 1} masked"


def _shared_rows(ref: Head, cand: Head) -> tuple[torch.Tensor, torch.Tensor]:
    """Row numbers in ref and in cand of the ids both have."""
    slot = torch.searchsorted(ref.ids, cand.ids).clamp_(max=len(ref.ids) - 1)
    shared = (ref.ids[slot] == cand.ids).nonzero().squeeze(1)
    return slot[shared], shared
