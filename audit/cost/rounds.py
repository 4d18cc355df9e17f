"""The arithmetic of rounds: draft K tokens, verify them in one step, keep what is accepted.

p_k is the share of rounds whose slots 0..k are all accepted; a round yields 1 + sum p_k tokens.
Plain numbers: no files, no torch.
"""

from __future__ import annotations

from collections.abc import Sequence

_STEPS = 80
"""Halvings of [0, 1]: more than a float has bits."""


def shares_of(acceptance: float, slots: int) -> list[float]:
    """p_0 .. p_(K-1) where every slot is accepted with the same chance, whatever came before."""
    return [acceptance ** (slot + 1) for slot in range(slots)]


def tokens_per_round(shares: Sequence[float]) -> float:
    """1 + sum p_k: what one verify step yields, the bonus token included."""
    return 1.0 + sum(shares)


def chain_acceptance(shares: Sequence[float]) -> float:
    """sum p_k / K."""
    return sum(shares) / len(shares)


def even_acceptance(tokens: float, slots: int) -> float | None:
    """The acceptance that, the same in every slot, yields so many tokens per round.

    0.0 where one token is enough; None where even K accepted slots yield less.
    """
    if tokens <= 1.0:
        return 0.0
    if tokens > slots + 1.0:
        return None
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        enough = tokens_per_round(shares_of(middle, slots)) >= tokens
        low, high = (low, middle) if enough else (middle, high)
    return high


def round_ms(draft_ms: float, verify_ms: float, slots: int) -> float:
    """K draft steps, one after the other, and one verify step."""
    return slots * draft_ms + verify_ms


def rate(tokens: float, milliseconds: float) -> float:
    """Tokens per second."""
    return 1000.0 * tokens / milliseconds


def even_tokens(round_time: float, other_time: float, other_tokens: float = 1.0) -> float:
    """Tokens per round at which a round is as fast as the other way of decoding.

    Args:
        round_time: milliseconds of one round.
        other_time: milliseconds in which the other way yields `other_tokens`: one plain step, or
            a round with the reference head.
    """
    return round_time * other_tokens / other_time
