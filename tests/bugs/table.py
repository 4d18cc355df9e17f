"""Which check answers each reported fault: entry number -> what it is, our code, or the reason.

The numbers are those of the list of public reports, sections A to E and G. Each has tests in this
package whose names hold its number, `test_bug_07_...`.
"""

from __future__ import annotations

from dataclasses import dataclass

NUMBERS: dict[str, tuple[int, ...]] = {
    "A": (1, 2, 3, 4, 6, 7, 8, 10, 11, 13),
    "B": (14, 15),
    "C": (17, 18, 20, 21, 22, 23, 25, 27, 28, 30, 31, 32, 33, 35, 36),
    "D": (37, 38, 39, 40, 41, 43),
    "E": (45, 46, 48, 49, 50, 52, 54),
    "G": (64, 65, 66, 69, 70, 71),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One report."""

    title: str
    codes: tuple[str, ...] = ()
    """Codes of the findings or errors that answer it."""
    reason: str = ""
    """Where no file shows it: what answers it instead."""


ENTRIES: dict[int, Entry] = {
    1: Entry("map never saved", ("MAP_MISSING",)),
    2: Entry("offsets read as absolute ids, or the reverse", ("MAP_RANGE", "MAP_AMBIGUOUS")),
    3: Entry("d2t all zeros", ("MAP_ZERO",)),
    4: Entry(
        "accuracy measured inside the trimmed vocabulary",
        reason="a matter of the oracle, not of a file: acceptance is held against the verifier's "
        "token of the whole vocabulary, and the ceiling stands beside it",
    ),
    6: Entry(
        "collapse that was the vocabulary's",
        reason="needs text: the verdict's sentence names the ceiling and the worst corpus",
    ),
    7: Entry(
        "map made on another corpus",
        reason="needs text of both: one ceiling per map and corpus",
    ),
    8: Entry("extra stop ids lost", ("STOP_LOST", "SPECIAL_LOST")),
    10: Entry(
        "draft-space index used as a target id",
        reason="ids of rows never leave a head: every id that is kept or shown is the target's, "
        "and the row-subset control would fail",
    ),
    11: Entry("sizes differ by padding only", ("PADDING", "TOKENS_DIFFER", "VOCABULARY")),
    13: Entry(
        "trimmed configuration keeps old special ids", ("SPECIAL_ID_OUTSIDE", "SPECIAL_ID_CHANGED")
    ),
    14: Entry("zero pad rows win", ("PADDING", "PADDING_WINS")),
    15: Entry("constant negative pad rows", ("PADDING_WINS",)),
    17: Entry("FP8 head without its scale", ("SCALE_MISSING",)),
    18: Entry("scale dropped elsewhere", ("SCALE_SUSPECT",)),
    20: Entry("half-loaded NVFP4 scales", ("NON_FINITE",)),
    21: Entry("ignore list not honoured", ("DECLARED_VS_STORED",)),
    22: Entry(
        "quantized MTP head read as BF16", ("SCALE_MISSING", "SCALE_UNUSED", "SCALE_SUSPECT")
    ),
    23: Entry("per-row int4 zeroes half the input", ("BLOCK_COLLAPSE",)),
    25: Entry(
        "cut hard, acceptance unmoved",
        reason="a measurement: harm near 0 at a large D is a fidelity cut",
    ),
    27: Entry("claimed quantized, nothing was", ("NOT_COMPRESSED", "DECLARED_VS_STORED")),
    28: Entry("all-zero or partly dead head", ("DEAD_HEAD", "DEAD_ROWS")),
    30: Entry("tied embeddings", ("TIED", "TIED_BUT_DIFFERENT", "TIE_BROKEN")),
    31: Entry("head in another shard", ("OWN_HEAD",)),
    32: Entry("no head in the draft", ("DRAFT_HEAD_ABSENT",)),
    33: Entry(
        "trained draft head overwritten by the target's",
        reason="the engine's fault: the file's own head is audited, and its tensor, path and hash "
        "are in the record",
    ),
    35: Entry("draft scored by a head that is not served", ("REFERENCE_NOT_SERVED",)),
    36: Entry("random embeddings exported", ("EMBEDDING_OTHER", "UNTRAINED")),
    37: Entry("softcap wrong or left out", ("RULES_DIFFER", "SATURATED")),
    38: Entry("logit scale left out", ("RULES_DIFFER", "KEY_NOT_UNDERSTOOD", "SUPPRESSED_TOKENS")),
    39: Entry("states from before the norm", ("STATES_NOT_FOR_THIS_HEAD",)),
    40: Entry("RMSNorm +1 convention", ("ANTI_CORRELATED", "NORM_GAIN")),
    41: Entry(
        "auxiliary layers off by one",
        reason="shown by the trace, whose states are numbered: a head that reads others is refused",
    ),
    43: Entry(
        "loss at later draft steps only",
        reason="needs the chain of drafts; heads of later positions are audited one by one",
    ),
    45: Entry("exact ties", ("TIES",)),
    46: Entry("overflow to infinity", ("NON_FINITE",)),
    48: Entry("16-bit stored reference", ("LOGITS_16_BIT",)),
    49: Entry("reference worse than its cut", ("REFERENCE_BEATEN",)),
    50: Entry(
        "mean of per-request ratios",
        reason="arithmetic of the report: pooled first, macro mean beside it",
    ),
    52: Entry(
        "bonus-token convention",
        reason="a matter of names: no measure here is a length, rates are per position",
    ),
    54: Entry(
        "position rates of another draft length",
        reason="needs chains of two lengths; a single file has no draft length",
    ),
    64: Entry("shard shorter than its header", ("FILE_CUT",)),
    65: Entry(
        "header edges, trailing bytes, gaps, overlaps",
        reason="errors of the reader, which name the file and the bytes and have no code",
    ),
    66: Entry("GGUF bounds", ("FILE_CUT",)),
    69: Entry("MTP silently missing", ("MTP_DECLARED_ABSENT", "MTP_PRESENT_UNDECLARED")),
    70: Entry("draft's stored types", ("DRAFT_TYPES", "LOW_BIT_DRAFT")),
    71: Entry("NaN blocks in quantized rows", ("NON_FINITE",)),
}

NO_TEST: dict[int, str] = {
    54: "nothing in a file or a trace has a draft length; where chains are measured, theirs is "
    "beside each number",
}
"""Entries that no test here can show, and why."""
