"""Before anything is measured: are these two heads what they claim to be?

Loaders refuse what can not be read. What can be read and still is suspicious becomes a finding
with a stable code; `error` findings stop the audit.
"""

from __future__ import annotations

import re

import torch

from audit.errors import UnreadableError
from audit.heads.against import check_rows
from audit.heads.head import Head
from audit.heads.lost import lost_tokens
from audit.heads.scan import HeadScan, looks_untrained
from audit.heads.tokens import TokenKinds
from audit.heads.told import Found, findings
from audit.records import Finding, Severity
from audit.words import count, some

_SHOWN = 5
_NO_GAIN = 0.1
"""Mean gain of a norm as applied: those in use lie far above it."""
_CODED = re.compile(r"([A-Z][A-Z_]{3,}): (.+)", re.DOTALL)
_WARNINGS = frozenset({"KEY_NOT_UNDERSTOOD", "TIE_BROKEN", "MAP_ZERO"})
"""Codes of a loader's notes that are more than a note."""


def check_alone(head: Head, scan: HeadScan, kinds: TokenKinds) -> list[Finding]:
    """Findings about one head by itself.

    Raises:
        UnreadableError: DEAD_HEAD when every row is zero, NON_FINITE when a row is not a number.
    """
    check_alive(head, scan)
    found = [*lost_tokens(head, kinds), *_own_rows(head, scan), *_gain(head)]
    return [*findings(found, head.record.name), *notes_of(head, "head")]


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
        *check_rows(ref, ref_scan, cand, cand_scan),
        *lost_tokens(cand, kinds),
        *_padding(ref, cand),
        *_rules(ref, cand),
    ]
    return [*findings(found, subject), *notes_of(cand, subject)]


def notes_of(head: Head, subject: str) -> list[Finding]:
    """What the loader had to decide, as notes."""
    code = {True: "TIED", False: "OWN_HEAD", None: "HEAD"}[head.record.tied]
    tensors = head.record.tensors
    more = f" and {len(tensors) - 2} more" if len(tensors) > 2 else ""
    where = f"read {', '.join(tensors[:2])}{more} ({head.record.encoding})"
    first = Finding(code=code, severity="note", subject=subject, sentence=where)
    notes = [_of_note(note, subject) for note in head.record.notes]
    return [first, *findings(_unread(head), subject), *notes]


def _of_note(note: str, subject: str) -> Finding:
    """A loader's note; one that starts with a code and a colon is told under that code."""
    coded = _CODED.fullmatch(note)
    code, sentence = coded.groups() if coded else ("NOTE", note)
    severity: Severity = "warning" if code in _WARNINGS else "note"
    return Finding(code=code, severity=severity, subject=subject, sentence=sentence)


def not_compressed(subject: str) -> Finding:
    """The candidate's weights decode to the reference's: nobody compressed anything."""
    return Finding(
        code="NOT_COMPRESSED",
        severity="warning",
        subject=subject,
        sentence="every weight equals the reference's: nothing was compressed",
    )


def _unread(head: Head) -> Found:
    if head.unread:
        yield (
            "UNREAD_TENSORS",
            "warning",
            f"{count(len(head.unread), 'tensor')} that seem to be this head's took no part: "
            f"{some(head.unread)}; an engine that uses them runs another head than this one",
        )


def _own_rows(head: Head, scan: HeadScan) -> Found:
    """What rows show by themselves."""
    dead = head.ids[scan.dead_rows].tolist()
    if head.valid is not None:
        dead = [i for i in dead if i < head.valid]
    if dead:
        told = f"{count(len(dead), 'row')} of zeros (ids {some(dead, _SHOWN)})"
        yield "DEAD_ROWS", "warning", f"{told}: these tokens win only where all logits are negative"
    if looks_untrained(scan):
        yield (
            "UNTRAINED",
            "note",
            "its rows are what random numbers would be: all of one length but for chance, and "
            "without a common direction; was it saved before it was trained?",
        )


def _gain(head: Head) -> Found:
    """The final norm's mean gain as applied: near 0, a (1 + w) norm was read as w."""
    if head.norm is None:
        return
    mean = float(head.norm.gain.mean())
    low = abs(mean) < _NO_GAIN
    more = ": is it a (1 + w) norm whose configuration does not say so?" if low else ""
    severity: Severity = "warning" if low else "note"
    yield "NORM_GAIN", severity, f"the final norm's mean gain is {mean:.2f} as applied{more}"


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
