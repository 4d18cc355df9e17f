"""Whether a document of `audit cost` agrees with itself, before its margins go into a run.

Files come from strangers. Every figure of a round follows from acceptance and step times beside
it, so it is worked out again; acceptance, times and intervals are held to their range. Imports no
torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from audit.cost.records import CostResult, HeadCost, Scenario, Worth
from audit.cost.rounds import (
    chain_acceptance,
    even_acceptance,
    even_tokens,
    rate,
    round_ms,
    tokens_per_round,
)

_SAME = 1e-6
"""Figures closer than this, as a share, differ by rounding; a bisection made some of them."""


def contradiction(cost: CostResult) -> str | None:
    """The first thing in which the document contradicts itself; None where there is none."""
    return next(_contradictions(cost), None)


def _contradictions(cost: CostResult) -> Iterator[str]:
    if not cost.heads:
        yield "it names no heads"
    names = [head.name for head in cost.heads]
    if len(set(names[1:])) < len(names[1:]):
        yield "two of its heads have one name"
    hashes = [head.sha256 for head in cost.heads[1:] if head.sha256]
    if len(set(hashes)) < len(hashes):
        yield "it holds one candidate twice"
    for head in cost.heads:
        if not _bytes_hold(head, cost.heads[0]):
            yield f"{head.name}: its bytes, rows and ratios do not belong together"
    places = [(one.corpus, one.register_) for one in cost.scenarios]
    if len(set(places)) < len(places):
        yield "it holds two scenarios of one text"
    for one in cost.scenarios:
        for said in _of_scenario(one, names):
            yield f"{one.name}: {said}"


def _bytes_hold(head: HeadCost, ref: HeadCost) -> bool:
    parts = (head.block_bytes, head.projection_bytes, head.map_bytes)
    if min(parts) < 0 or sum(parts) != head.bytes_per_step or min(head.rows, ref.rows) < 1:
        return False
    whole = ref.bytes_per_step
    ratio = head.bytes_per_step / whole if whole > 0 else head.bytes_ratio
    return _close(head.row_ratio, ref.rows / head.rows) and _close(head.bytes_ratio, ratio)


def _of_scenario(one: Scenario, names: Sequence[str]) -> Iterator[str]:
    if not 0 <= one.sequences <= one.positions:
        yield f"{one.positions} positions in {one.sequences} sequences"
    if [worth.head for worth in one.worth] != list(names):
        yield "it does not tell what each head is worth, once"
        return
    slots = one.worth[0].slots
    for name, shares in one.shares.items():
        falling = list(shares) == sorted(shares, reverse=True)
        if name not in names or len(shares) != slots or not falling or not _shares_hold(shares):
            yield f"{name}: its shares are not {slots} from 1 falling to 0"
    for worth in one.worth:
        known = one.shares.get(worth.head) if names.count(worth.head) == 1 else None
        if known and not _close(worth.tokens_per_round, tokens_per_round(known)):
            yield f"{worth.head}: tokens per round are not 1 + the sum of its shares"
        if known and not _close(worth.chain_acceptance, chain_acceptance(known)):
            yield f"{worth.head}: chain acceptance is not the mean of its shares"
    for worth in (*one.worth, *one.sweep):
        for said in _of_worth(worth):
            yield f"{worth.head}: {said}"


def _of_worth(one: Worth) -> Iterator[str]:
    if one.slots < 1 or one.context < 0 or one.users < 1:
        yield f"{one.slots} slots, context {one.context}, {one.users} users"
        return
    for name in ("acceptance", "chain_acceptance", "break_even_acceptance"):
        value = getattr(one, name)
        if value is not None and not _shares_hold([value]):
            yield f"{name} {value:g} is no share"
    for name in ("draft_ms", "verify_ms", "plain_ms", "round_ms", "tokens_per_second"):
        value = getattr(one, name)
        if value is not None and value < 0:
            yield f"{name} {value:g} is below 0"
    for name, expected in _worked_out(one).items():
        if not _close(getattr(one, name), expected):
            yield f"{name} {_said(getattr(one, name))} where the rest says {_said(expected)}"
    yield from _of_ends(one)


def _worked_out(one: Worth) -> dict[str, float | None]:
    """What follows from tokens per round, acceptance and step times, by name."""
    tokens, plain, whole = one.tokens_per_round, one.plain_ms, None
    if one.draft_ms is not None and one.verify_ms is not None:
        whole = round_ms(one.draft_ms, one.verify_ms, one.slots)
    speed = rate(tokens, whole) if tokens and whole else None
    needed = even_tokens(whole, plain) if whole and plain else None
    even = None if needed is None else even_acceptance(needed, one.slots)
    given = one.acceptance
    return {
        "round_ms": whole,
        "tokens_per_second": speed,
        "chain_acceptance": None if tokens is None else (tokens - 1.0) / one.slots,
        "acceptance": None if tokens is None else even_acceptance(tokens, one.slots),
        "against_plain": speed / rate(1.0, plain) if speed and plain else None,
        "break_even_acceptance": even,
        "break_even_margin": None if given is None or even is None else given - even,
    }


def _of_ends(one: Worth) -> Iterator[str]:
    low, high, even = one.margin_low, one.margin_high, one.break_even_acceptance
    if (low is None) != (high is None) or (low is not None and even is None):
        yield "its margin has half an interval, or one around nothing"
    if low is None or high is None or even is None:
        return
    if low > high or not -even - _SAME <= low <= high <= 1.0 - even + _SAME:
        yield f"its margin's interval {low:g} to {high:g} is none of acceptance beyond {even:g}"


def _shares_hold(values: Sequence[float]) -> bool:
    return all(0.0 <= value <= 1.0 for value in values)


def _close(value: float | None, expected: float | None) -> bool:
    if value is None or expected is None:
        return value is expected
    return math.isclose(value, expected, rel_tol=_SAME, abs_tol=_SAME)


def _said(value: float | None) -> str:
    return "nothing" if value is None else f"{value:g}"
