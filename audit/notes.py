"""What a measurement itself brought to light, as findings beside the preflight's."""

from __future__ import annotations

from collections.abc import Sequence

from audit.heads.tokens import Tokens
from audit.measure import AnyHead, Measured
from audit.pair import HeadChoice
from audit.records import Finding
from audit.traces import Trace

_TIES_SHOWN = 0.01
"""Share of positions from which on ties are worth a warning."""


def other_heads(choice: HeadChoice) -> list[Finding]:
    """A note on the heads that were not audited, so that nobody takes one for another."""
    if not choice.others:
        return []
    sentence = (
        f"the files also hold {', '.join(choice.others)}; the LM head is audited, "
        f"another with --head {choice.others[0]}"
    )
    return [Finding(code="OTHER_HEADS", severity="note", subject="reference", sentence=sentence)]


def other_tokenizers(traces: Sequence[Trace], tokens: Tokens) -> list[Finding]:
    """Traces whose words are not those beside the reference: their tokens get no classes."""
    other = [t.info.corpus for t in traces if not tokens.of_trace(t.info.tokenizer_sha256)]
    if not other:
        return []
    sentence = (
        f"its tokenizer.json is not the one of the trace of {', '.join(other)}: "
        "no token classes there"
    )
    return [
        Finding(code="TOKENIZER_DIFFERS", severity="note", subject="reference", sentence=sentence)
    ]


def wide_ties(cands: Sequence[AnyHead], measured: Sequence[Measured]) -> list[Finding]:
    """Candidates that often rate several ids exactly equal."""
    found = []
    for i, cand in enumerate(cands):
        tied = sum(int(m.frames[i]["cand_tied"].sum()) for m in measured)
        count = sum(len(m.rows) for m in measured)
        if tied > _TIES_SHOWN * count:
            sentence = f"its best logit is shared by several ids at {tied} of {count} positions"
            found.append(
                Finding(
                    code="TIES", severity="warning", subject=cand.record.name, sentence=sentence
                )
            )
    return found


def saturated_ties(traces: Sequence[Trace], measured: Sequence[Measured]) -> list[Finding]:
    """Positions where the reference's cap rounds its two best logits to one."""
    found = []
    for trace, m in zip(traces, measured, strict=True):
        ties = int(m.ref.saturated.sum())
        if ties:
            sentence = (
                f"the cap makes the two best logits equal at {ties} of {len(m.rows)} positions; "
                "proposals are decided before it"
            )
            found.append(
                Finding(
                    code="SATURATED", severity="note", subject=trace.info.corpus, sentence=sentence
                )
            )
    return found


def pad_wins(traces: Sequence[Trace], measured: Sequence[Measured]) -> list[Finding]:
    """Positions where a padding row of the reference would have won, had it not been masked."""
    found = []
    for trace, m in zip(traces, measured, strict=True):
        wins = int(m.ref.pad_would_win.sum())
        if wins:
            found.append(
                Finding(
                    code="PADDING_WINS",
                    severity="warning",
                    subject=trace.info.corpus,
                    sentence=f"padding rows are masked; they would have won at {wins} of "
                    f"{len(m.rows)} positions",
                )
            )
    return found


def kl_missing(wanted: bool, is_head: bool, trimmed: bool) -> str | None:
    """Why KL was asked for and can not be given."""
    if not wanted:
        return None
    if not is_head:
        return "proposals alone have no probabilities"
    return "infinite: the candidate has no row for some ids" if trimmed else None
