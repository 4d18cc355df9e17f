"""The measures as data: name, meaning, unit, direction, and the sums each one is a ratio of.

Every rate is a ratio of sums over positions, so pooling, resampling and per-sequence means all come
from the same few columns of counts (`COUNTS`). Leaves out: arithmetic (`stats`, `estimates`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MEASURES_VERSION = 2
"""Raised whenever a number could change for the same input; part of every Run."""

COUNTS = (
    "positions",
    "disagreements",
    "ref_accepted",
    "cand_accepted",
    "in_vocabulary",
    "covered",
    "covered_disagreements",
    "covered_ref_accepted",
    "covered_cand_accepted",
    "flip_margin",
    "kl_nats",
)
"""Columns that are summed per sequence; see `table.sums_by_sequence`."""

Unit = Literal["share", "points", "ratio", "nats", "logits"]


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure: the ratio (plus - minus) / below of summed counts."""

    name: str
    title: str
    unit: Unit
    lower_is_better: bool | None
    """None for what describes rather than judges."""
    plus: str
    below: str
    minus: str | None
    formula: str
    caveat: str
    is_rate: bool = False
    """A share of positions: bounded by 0 and 1, so an exact binomial bound exists."""


_ALL = (
    Measure(
        "disagreement", "disagreement D", "share", True, "disagreements", "positions", None,
        "positions where ref and cand propose different tokens / positions",
        "A flip between ids that one head rates exactly equal is a tie, not a disagreement.",
        is_rate=True,
    ),
    Measure(
        "harm", "harm per disagreement H", "ratio", True,
        "ref_accepted", "disagreements", "cand_accepted",
        "(ref acceptances - cand acceptances) / disagreements",
        "Noise when there are few disagreements; can be negative.",
    ),
    Measure(
        "acceptance_ref", "acceptance of the reference", "share", False,
        "ref_accepted", "positions", None,
        "positions where the reference proposes the oracle / positions",
        "Greedy acceptance; sampling accepts otherwise.", is_rate=True,
    ),
    Measure(
        "acceptance_cand", "acceptance of the candidate", "share", False,
        "cand_accepted", "positions", None,
        "positions where the candidate proposes the oracle / positions",
        "Greedy acceptance; sampling accepts otherwise.", is_rate=True,
    ),
    Measure(
        "retention", "retention R", "points", False, "cand_accepted", "ref_accepted", None,
        "candidate's acceptance / reference's acceptance",
        "Above 1 when the candidate happens to be right more often.",
    ),
    Measure(
        "vocabulary_ceiling", "vocabulary ceiling", "share", False,
        "in_vocabulary", "positions", None,
        "positions whose oracle the candidate's vocabulary contains / positions",
        "No change of weights can lift acceptance above it.", is_rate=True,
    ),
    Measure(
        "disagreement_covered", "disagreement within the vocabulary", "share", True,
        "covered_disagreements", "covered", None,
        "disagreements / positions, where the candidate has a row for the reference's proposal",
        "What the weights, not the missing rows, changed.", is_rate=True,
    ),
    Measure(
        "acceptance_ref_covered", "reference's acceptance within the vocabulary", "share", False,
        "covered_ref_accepted", "covered", None,
        "reference's acceptances / positions, where the candidate has a row for its proposal",
        "What a trimmed head's weights could lose at most.", is_rate=True,
    ),
    Measure(
        "harm_covered", "harm within the vocabulary", "ratio", True,
        "covered_ref_accepted", "covered_disagreements", "covered_cand_accepted",
        "harm per disagreement where the candidate has a row for the reference's proposal",
        "Noise when there are few disagreements.",
    ),
    Measure(
        "flip_margin", "mean flip margin", "logits", None, "flip_margin", "disagreements", None,
        "mean of the reference's best minus second logit over the disagreements",
        "Small: near-ties flip, which is noise. In this head's logits, not comparable across "
        "models.",
    ),
    Measure(
        "kl_nats", "KL(ref || cand)", "nats", True, "kl_nats", "positions", None,
        "mean over positions of sum p_ref (log p_ref - log p_cand)",
        "Only for heads that cover the whole vocabulary; says nothing of greedy acceptance.",
    ),
)  # fmt: skip

CATALOGUE: dict[str, Measure] = {measure.name: measure for measure in _ALL}
"""Measures that are ratios of sums."""

OTHER_MEASURES = {
    "near_tie_auc": "probability that a random flip has a smaller reference margin than a random "
    "agreement: near 1 flips are near-ties, at 0.5 they fall anywhere",
}
"""Measures that are not; see `neartie`."""

SHIFT_MEASURES = {
    "shift_tax": "retention in distribution minus retention under domain shift",
    "shift_loss": "1 minus retention under domain shift",
}
"""Made of two retentions instead of one ratio."""

CHAIN_MEASURES = {
    "tokens_per_round": "1 + sum p_k: what one verify step yields with K recursive draft slots, "
    "the bonus token included; p_k is the share of chains whose slots 0..k are all accepted",
    "chain_acceptance": "sum p_k / K",
    "break_even_margin": "acceptance minus that at which the head is as fast as plain decoding, "
    "the same in every slot; of a model on stated assumptions, not of a measured speed",
}
"""From `audit chain` and `audit cost`, where they were run; all are better when higher."""

FINDING_CODES = (
    "ALIGNMENT_UNCHECKED",
    "BLOCK_COLLAPSE", "BYTE_LOST", "CALIBRATION_OTHER_TRACES", "CANDIDATE_AT_CHANCE",
    "CLASS_COVERAGE", "CLASS_LOST", "DEAD_ROWS", "DEAD_TENSOR", "DECLARED_VS_STORED",
    "DRAFT_HEAD_ABSENT", "DRAFT_TYPES", "EMBEDDING_OTHER", "FLAT_COLUMNS", "FORCED_MISMATCH",
    "HC_MIXER", "HEAD", "KEY_NOT_UNDERSTOOD", "LAYERS_UNKNOWN", "LOW_BIT_DRAFT", "MAP_ZERO",
    "MTP_DECLARED_ABSENT", "MTP_PRESENT_UNDECLARED", "NORM_GAIN", "NOTE", "NOT_COMPRESSED",
    "ODD_ROWS", "OTHER_HEADS", "OTHER_MODEL", "OWN_HEAD", "PADDING", "PADDING_WINS",
    "PRUNED_COLUMNS", "REFERENCE_BEATEN", "REFERENCE_NOT_SERVED", "REPEATED_TEXT", "RULES_DIFFER",
    "SAME_TEXT", "SATURATED", "SCALE_SUSPECT", "SCALE_UNUSED", "SPECIAL_ID_CHANGED",
    "SPECIAL_ID_OUTSIDE", "SPECIAL_LOST", "STOP_LOST", "STORED_TWICE", "SUPPRESSED_TOKENS", "TIED",
    "TIED_BUT_DIFFERENT", "TIES", "TIE_BROKEN", "TOKENIZER_DIFFERS", "TOKENIZER_UNKNOWN",
    "UNREAD_TENSORS", "UNTRAINED", "VERIFIER_DISAGREES", "VERIFIER_OTHER",
)  # fmt: skip
"""What a finding in a run may be called; errors, which end an audit, have codes of their own."""

CONTROLS = ("anchor", "self", "row subset", "shuffled rows", "shifted oracle")
"""Checks of an audit on itself, in the order they run."""

COMPOSED = {**OTHER_MEASURES, **SHIFT_MEASURES, **CHAIN_MEASURES}
"""All measures that CATALOGUE does not define, with their meanings."""

_UNBOUNDED = float("inf")
_RANGES = {
    "harm": (-1.0, 1.0),
    "harm_covered": (-1.0, 1.0),
    "shift_tax": (-_UNBOUNDED, _UNBOUNDED),
    "shift_loss": (-_UNBOUNDED, 1.0),
    "near_tie_auc": (0.0, 1.0),
    "tokens_per_round": (1.0, _UNBOUNDED),
    "chain_acceptance": (0.0, 1.0),
    "break_even_margin": (-1.0, 1.0),
}
"""What is neither a rate nor merely not negative. A flip costs one acceptance at most; retention,
and with it tax and loss, has no end on the better side."""


def possible_range(measure: str) -> tuple[float, float]:
    """The smallest and the largest value that a measure can have."""
    if measure in _RANGES:
        return _RANGES[measure]
    return 0.0, 1.0 if CATALOGUE[measure].is_rate else _UNBOUNDED


def better_when_lower(measure: str) -> bool | None:
    """Which way is better; None for what describes rather than judges."""
    if measure in SHIFT_MEASURES:
        return True
    if measure in CHAIN_MEASURES:
        return False
    return CATALOGUE[measure].lower_is_better if measure in CATALOGUE else None


TOKEN_CLASSES = {
    "stop": "ends a text: the stop ids that the configuration names",
    "special": "control tokens, unused ids, and markers written <|...|>",
    "byte": "a lone byte, or part of a character",
    "digit": "digits, perhaps with punctuation, no letters",
    "whitespace": "white space only",
    "punctuation": "punctuation and ASCII symbols",
    "symbol": "symbols beyond ASCII, such as arrows and emoji",
    "code": "a guess: Latin letters beside marks of code, camelCase, or several such marks",
    "latin": "mostly Latin letters",
    "cyrillic": "mostly Cyrillic letters",
    "greek": "mostly Greek letters",
    "han": "mostly Chinese characters",
    "kana": "mostly Japanese syllables",
    "hangul": "mostly Korean syllables",
    "hebrew": "mostly Hebrew letters",
    "arabic": "mostly Arabic letters",
    "devanagari": "mostly Devanagari letters",
    "thai": "mostly Thai letters",
    "other": "other scripts, and what is none of these",
}
"""Every position is of the class of its oracle; None where no tokenizer is known."""

CLASS_MEASURES = (
    "disagreement",
    "acceptance_ref",
    "acceptance_cand",
    "retention",
    "vocabulary_ceiling",
)
"""Measures that are also estimated per token class; not all, or a Run would grow tenfold."""
