"""What each head is worth: its acceptance and its step times together, at one setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from audit.cost.acceptance import Source
from audit.cost.machine import Load, Machine, StepTimes, Work, step_times
from audit.cost.records import HeadCost, Scenario, Worth
from audit.cost.rounds import (
    chain_acceptance,
    even_acceptance,
    even_tokens,
    rate,
    round_ms,
    tokens_per_round,
)

SLOTS = (1, 2, 3, 4, 6, 8)
CONTEXTS = (1024, 8192, 32768, 131072)
USERS = (1, 4, 16, 64, 256)


@dataclass(frozen=True, slots=True)
class Served:
    """Everything that decides over times, but acceptance."""

    heads: Sequence[HeadCost]
    drafts: Sequence[Work]
    verifier: Work | None
    machine: Machine
    slots: int

    def times(self, head: int, slots: int, load: Load) -> StepTimes:
        return step_times(self.machine, self.drafts, head, self.verifier, slots, load, self.slots)


def scenario(served: Served, source: Source, *, sweep: bool) -> Scenario:
    """All heads with the acceptance of one source, at the setting asked for and around it."""
    base = served.machine.at
    worth = _all_heads(served, source, served.slots, base)
    shares = {
        head.name: tuple(known)
        for number, head in enumerate(served.heads)
        if (known := source.shares(number, served.slots)) is not None
    }
    return Scenario(
        name=source.name,
        corpus=source.corpus,
        register_=source.register,
        source=source.said,
        positions=source.positions,
        sequences=source.sequences,
        shares=shares,
        worth=tuple(worth),
        sweep=tuple(_sweep(served, source)) if sweep else (),
    )


def _sweep(served: Served, source: Source) -> list[Worth]:
    """One of K, context and users changed at a time; only what the figures given can tell of."""
    base, found = served.machine.at, list[Worth]()
    for slots in SLOTS:
        if slots != served.slots:
            found += _all_heads(served, source, slots, base)
    for context in _contexts(served):
        if context != base.context:
            found += _all_heads(served, source, served.slots, Load(context, base.users))
    for users in USERS if served.machine.bandwidth and served.verifier else ():
        if users != base.users:
            found += _all_heads(served, source, served.slots, Load(base.context, users))
    return [one for one in found if one.tokens_per_second is not None]


def _contexts(served: Served) -> list[int]:
    """Contexts to look at, up to what the model was made for; none where it is not modelled."""
    if not (served.machine.bandwidth and served.verifier):
        return []
    longest = served.verifier.longest or CONTEXTS[-1]
    return sorted({min(context, longest) for context in CONTEXTS})


def _all_heads(served: Served, source: Source, slots: int, load: Load) -> list[Worth]:
    found: list[Worth] = []
    for number in range(len(served.heads)):
        ref = found[0] if found else None
        found.append(_worth(served, source, number, slots, load, ref))
    return found


def _worth(
    served: Served, source: Source, number: int, slots: int, load: Load, ref: Worth | None
) -> Worth:
    """One head's round. Whatever is not known is None, and `reason` says what was missing."""
    shares = source.shares(number, slots)
    times = served.times(number, slots, load)
    tokens = tokens_per_round(shares) if shares else None
    whole = None
    if times.draft is not None and times.verify is not None:
        whole = round_ms(times.draft, times.verify, slots)
    accepted = source.even.get(number)
    if accepted is None and tokens is not None:
        accepted = even_acceptance(tokens, slots)
    speed = rate(tokens, whole) if tokens and whole else None
    plain = times.plain
    needed = even_tokens(whole, plain) if whole and plain else None
    against = _even(needed, slots)
    needed_ref = None
    if ref and whole and ref.round_ms and ref.tokens_per_round:
        needed_ref = even_tokens(whole, ref.round_ms, ref.tokens_per_round)
    beside = _even(needed_ref, slots)
    ends = source.interval(number, slots)
    return Worth(
        head=served.heads[number].name,
        slots=slots,
        context=load.context,
        users=load.users,
        acceptance=accepted,
        chain_acceptance=chain_acceptance(shares) if shares else None,
        tokens_per_round=tokens,
        draft_ms=times.draft,
        verify_ms=times.verify,
        plain_ms=plain,
        round_ms=whole,
        tokens_per_second=speed,
        against_plain=speed / rate(1.0, plain) if speed and plain else None,
        against_ref=_ratio(speed, ref.tokens_per_second if ref else None),
        break_even_acceptance=against,
        break_even_margin=_minus(accepted, against),
        margin_low=_minus(ends[0] if ends else None, against),
        margin_high=_minus(ends[1] if ends else None, against),
        break_even_against_ref=beside,
        margin_against_ref=_minus(accepted, beside),
        reason=_reason(shares is not None, times, needed, against),
    )


def _even(tokens: float | None, slots: int) -> float | None:
    return None if tokens is None else even_acceptance(tokens, slots)


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _minus(value: float | None, other: float | None) -> float | None:
    return None if value is None or other is None else value - other


def _reason(
    accepted: bool, times: StepTimes, needed: float | None, even: float | None
) -> str | None:
    missing = [] if accepted else ["acceptance of so many slots of this head"]
    missing += [
        f"the time of a {name} step"
        for name, value in (
            ("draft", times.draft),
            ("verify", times.verify),
            ("plain", times.plain),
        )
        if value is None
    ]
    if missing:
        return f"not known: {', '.join(missing)}"
    if needed is not None and even is None:
        return f"it never pays: a round costs {needed:.2f} plain steps, more than it can yield"
    return None
