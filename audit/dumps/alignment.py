"""Does row t predict token t + 1? Asked of the text itself, at every alignment near the right one.

The head's logit of the next token is held against its logit of the token one or two places off, at
the same row, so that no product with the whole vocabulary is needed: in the difference of two
log-probabilities of one row everything else cancels. At the right alignment the next token is
likelier than its neighbours on any text that the model knows a little of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from audit.errors import MismatchError
from audit.heads import Head

SHIFTS = (-2, -1, 1, 2)
_SURE = 3.0
"""Standard errors, in both directions."""
_SAMPLE = 4096
_ROWS = 512


@dataclass(frozen=True, slots=True)
class Alignment:
    """How much better the next token fits than its neighbours, in standard errors by shift."""

    z: Mapping[int, float]
    positions: int

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
    """The evidence, on at most 4,096 rows spread evenly.

    Args:
        head: the verifier's, with a row for every token.
        states: gives the states that enter the head, float32 [n, d], for row numbers [n].
        token, sequence: int64 [N], the text.
    """
    rows = torch.arange(len(token))
    rows = rows[:-1][sequence[:-1] == sequence[1:]]
    if len(rows) > _SAMPLE:
        rows = rows[torch.linspace(0, len(rows) - 1, _SAMPLE).long()]
    gains: dict[int, list[Tensor]] = {shift: [] for shift in SHIFTS}
    for part in rows.split(_ROWS):
        inputs = head.project_in(states(part))
        own = _logits(head, inputs, token[part + 1])
        for shift in SHIFTS:
            other = (part + 1 + shift).clamp(0, len(token) - 1)
            there = (other == part + 1 + shift) & (sequence[other] == sequence[part])
            gains[shift].append((own - _logits(head, inputs, token[other]))[there])
    return Alignment({shift: _z(torch.cat(parts)) for shift, parts in gains.items()}, len(rows))


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
    """Raise MismatchError (ALIGNMENT) where the oracle fits the text clearly better one row off."""
    hits = _hits(oracle, token, sequence)
    for shift in (-1, 1):
        better, worse = int(hits[shift].sum()), int(hits[0].sum())
        if better - worse >= _SURE * math.sqrt(better + worse) and better > worse:
            how = f"with {better:,} tokens of the text instead of {worse:,}"
            raise _shifted("the oracle", shift, how, where)


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


def _z(gain: Tensor) -> float:
    """Mean in standard errors; 0 where nothing varies."""
    if len(gain) < 2:
        return 0.0
    spread = float(gain.std())
    return float(gain.mean()) / (spread / math.sqrt(len(gain))) if spread > 0 else 0.0
