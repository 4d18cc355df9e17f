"""Does row t predict token t + 1? Asked of the text itself, at every alignment near the right one.

The head's logit of the next token is held against its logit of the token one or two places off, at
the same row, so that no product with the whole vocabulary is needed: in the difference of two
log-probabilities of one row everything else cancels. At the right alignment the next token is
likelier than its neighbours on any text that the model knows a little of. Here all texts together
are asked; each by itself in `strays`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from scipy import special
from torch import Tensor

from audit.errors import MismatchError
from audit.heads import Head

SHIFTS = (-2, -1, 1, 2)
FAR = (-9, -5, 5, 9)
"""Tokens that are no neighbours: what a text of unknown words still shows."""
_SURE = 3.0
"""Standard errors, in both directions."""
_SAMPLE = 4096
_EACH = 256
"""Rows of the sample, and at least so many of every text."""
_ROWS = 512


@dataclass(frozen=True, slots=True)
class Alignment:
    """How much better the next token fits than its neighbours, in standard errors by shift."""

    z: Mapping[int, float]
    positions: int
    gains: Mapping[int, Tensor] = field(default_factory=dict, repr=False)
    """float64 [n] by shift, of SHIFTS and FAR: NaN where no token of the text is there."""
    text: Tensor | None = field(default=None, repr=False)
    """int64 [n], the sequence of each of these rows, in order."""

    @property
    def shown(self) -> bool:
        """True when both neighbours fit clearly worse."""
        return min(self.z[-1], self.z[1]) >= _SURE

    @property
    def shift(self) -> int | None:
        """The shift that fits clearly better than none; None when there is no such."""
        worst = min(self.z, key=lambda shift: self.z[shift])
        return worst if self.z[worst] <= -_SURE else None


def text_logits(
    head: Head, states: Callable[[Tensor], Tensor], token: Tensor, sequence: Tensor
) -> Alignment:
    """The evidence, on 4,096 rows spread evenly over the texts, and on 256 of each at least.

    Args:
        head: the verifier's, with a row for every token.
        states: gives the states that enter the head, float32 [n, d], for row numbers [n].
        token, sequence: int64 [N], the text.
    """
    rows = _spread(sequence)
    gains: dict[int, list[Tensor]] = {shift: [] for shift in (*SHIFTS, *FAR)}
    for part in rows.split(_ROWS):
        inputs = head.project_in(states(part))
        own = _logits(head, inputs, token[part + 1])
        for shift, parts in gains.items():
            other = (part + 1 + shift).clamp(0, len(token) - 1)
            there = (other == part + 1 + shift) & (sequence[other] == sequence[part])
            gain = own - _logits(head, inputs, token[other])
            parts.append(torch.where(there, gain, torch.nan))
    whole = {shift: torch.cat(parts) for shift, parts in gains.items()}
    z = {shift: standard_errors(whole[shift]) for shift in SHIFTS}
    return Alignment(z, len(rows), whole, sequence[rows])


def _spread(sequence: Tensor) -> Tensor:
    """Rows with a next token, of long texts as many as their share, spread evenly."""
    lengths = torch.unique_consecutive(sequence, return_counts=True)[1] - 1
    most = max(_EACH, _SAMPLE // len(lengths))
    length = (lengths + 1).repeat_interleave(lengths + 1)
    starts = (lengths + 1).cumsum(0) - (lengths + 1)
    place = torch.arange(len(sequence)) - starts.repeat_interleave(lengths + 1)
    able = (length - 1).clamp(min=1)
    next_one = (place * most) // able != ((place - 1) * most) // able
    return torch.nonzero((place < length - 1) & ((length - 1 <= most) | next_one)).flatten()


def require_alignment(found: Alignment, where: Path, *, force: bool) -> None:
    """Refuse states that belong to other rows, or to none.

    Raises:
        MismatchError: ALIGNMENT with the shift that fits better, which `force` does not silence;
            ALIGNMENT_UNSHOWN where no alignment stands out.
    """
    if found.shift is not None:
        how = f"by {-found.z[found.shift]:.1f} standard errors"
        raise _shifted("the states", found.shift, how, where)
    if found.shown or force:
        return
    raise MismatchError(
        f"the states do not predict the text better at this alignment than one row off "
        f"({found.z[-1]:.1f} and {found.z[1]:.1f} standard errors on {found.positions:,} "
        f"positions, {_SURE:.0f} are needed)",
        hint="they are of another model or layer, or of text that the model knows nothing of, or "
        "too few: import more; --force goes on and marks the trace",
        where=where,
        code="ALIGNMENT_UNSHOWN",
    )


def agreement(oracle: Tensor, token: Tensor, sequence: Tensor) -> dict[int, float]:
    """Share of known oracle tokens that are the text's token at each shift, 0 the right one.

    All int64 [N]; oracle -1 where there is none.
    """
    return {shift: float(hits.double().mean()) if len(hits) else 0.0
            for shift, hits in _hits(oracle, token, sequence).items()}  # fmt: skip


def require_agreement(oracle: Tensor, token: Tensor, sequence: Tensor, where: Path) -> None:
    """Raise MismatchError (ALIGNMENT) where the oracle fits the text, or one of several texts,
    clearly better one row off."""
    texts = int(sequence.max()) + 1
    for shift in (-1, 1):
        better, worse = (_by_text(oracle, token, sequence, s) for s in (shift, 0))
        parts = (better - worse) >= _sure_of(texts) * (better + worse).sqrt()
        misfits = torch.nonzero(parts & (better > worse)).flatten().tolist()
        there, here = int(better.sum()), int(worse.sum())
        if there - here >= _SURE * math.sqrt(there + here) and there > here:
            how = f"with {there:,} tokens of the text instead of {here:,}"
            raise _shifted("the oracle", shift, how, where)
        if misfits:
            one = misfits[0]
            how = (
                f"in {len(misfits):,} of {texts:,} texts, the first is number {one}: with "
                f"{int(better[one]):,} of its tokens instead of {int(worse[one]):,}"
            )
            raise _shifted("the oracle", shift, how, where)


def _sure_of(texts: int) -> float:
    """Standard errors that one of so many texts needs, when all together need _SURE."""
    return -float(special.ndtri(special.ndtr(-_SURE) / texts))


def _by_text(oracle: Tensor, token: Tensor, sequence: Tensor, shift: int) -> Tensor:
    """float64 [texts]: known oracle tokens that are the text's token at this shift."""
    rows = torch.nonzero(oracle >= 0).flatten()
    other = rows + 1 + shift
    near = other.clamp(max=len(token) - 1)
    hit = (other == near) & (sequence[near] == sequence[rows]) & (oracle[rows] == token[near])
    return torch.bincount(sequence[rows[hit]], minlength=int(sequence.max()) + 1).double()


def _hits(oracle: Tensor, token: Tensor, sequence: Tensor) -> dict[int, Tensor]:
    rows = torch.nonzero(oracle >= 0).flatten()
    found = {}
    for shift in (-1, 0, 1):
        other = rows + 1 + shift
        there = other < len(token)
        there &= sequence[other.clamp(max=len(token) - 1)] == sequence[rows]
        found[shift] = oracle[rows[there]] == token[other[there]]
    return found


def _shifted(what: str, shift: int, how: str, where: Path) -> MismatchError:
    side = "after" if shift > 0 else "before"
    return MismatchError(
        f"{what} fit the text better shifted by {shift:+d} ({how}): row t holds what belongs "
        f"{abs(shift)} row {side} it".replace("the oracle fit ", "the oracle fits "),
        hint="dumps are unshifted; this one was shifted as a training loop does it. Dump it again, "
        f"or move the tokens by {shift:+d}",
        where=where,
        code="ALIGNMENT",
    )


def _logits(head: Head, inputs: Tensor, ids: Tensor) -> Tensor:
    """float64 [n]: each row's logit of one id, before the post-head rule, which keeps the order."""
    index = torch.searchsorted(head.ids, ids)
    logits = (head.rows.gather(index).double() * inputs.double()).sum(dim=1)
    return logits if head.bias is None else logits + head.bias[index].double()


def standard_errors(gain: Tensor) -> float:
    """Mean of [n], NaN left out, in standard errors; 0 where nothing varies."""
    gain = gain[~gain.isnan()]
    if len(gain) < 2:
        return 0.0
    spread = float(gain.std())
    return float(gain.mean()) / (spread / math.sqrt(len(gain))) if spread > 0 else 0.0
