"""How long a step takes: bytes read over bandwidth, or multiplications over arithmetic speed.

A step reads its weights once for all users and each user's KV cache, and multiplies every weight
for every token; it takes the longer of the two. Of experts, a step reads those that any of its
tokens is routed to. Left out, and said so in every output: launches, sampling, activations,
networks, and whatever else an engine does; measured step times stand in for the model where given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_GIGA, _TERA, _MS = 1e9, 1e12, 1e3


@dataclass(frozen=True, slots=True)
class KvLayer:
    """The KV cache of one or several like layers."""

    bytes_per_token: int
    window: int | None = None
    """Tokens that are kept at most; None for all of them."""

    def bytes_at(self, context: int) -> int:
        return self.bytes_per_token * (
            context if self.window is None else min(context, self.window)
        )


@dataclass(frozen=True, slots=True)
class Work:
    """What one step reads and multiplies, for one token of one user."""

    weight_bytes: int
    """Without experts."""
    parameters: int
    """Weights that every token is multiplied with, without experts."""
    expert_bytes: int = 0
    """Of all routed experts together."""
    expert_parameters: int = 0
    expert_share: float = 1.0
    """Share of the experts that one token is routed to."""
    kv: tuple[KvLayer, ...] = ()
    longest: int | None = None
    """Tokens of the longest text that the model was made for, where it says so."""

    def touched(self, tokens: int) -> float:
        """Share of the experts that any of so many independently routed tokens needs."""
        return 1.0 - (1.0 - self.expert_share) ** tokens

    def bytes_read(self, tokens: int, context: int, users: int) -> float:
        """Bytes of one step with `tokens` per user."""
        weights = self.weight_bytes + self.touched(tokens * users) * self.expert_bytes
        return weights + users * sum(layer.bytes_at(context) for layer in self.kv)

    def multiplications(self, tokens: int, users: int) -> float:
        active = self.parameters + self.expert_share * self.expert_parameters
        return active * tokens * users


@dataclass(frozen=True, slots=True)
class Load:
    """What is served: users at once, and how many tokens each one's cache holds."""

    context: int = 0
    users: int = 1


@dataclass(frozen=True, slots=True)
class Machine:
    """Speed of the device, and step times that somebody measured on it."""

    bandwidth: float | None = None
    """GB/s."""
    tflops: float | None = None
    """None: arithmetic is taken to be free."""
    draft_ms: tuple[float, ...] = ()
    """Measured draft steps: of REF, then of each CAND."""
    verify_ms: float | None = None
    """Measured verify step of K + 1 tokens."""
    plain_ms: float | None = None
    """Measured step of plain decoding."""
    at: Load = Load()
    """What was served when they were measured."""

    def modelled(self, work: Work, tokens: int, load: Load) -> float | None:
        """Milliseconds of one step; None without a bandwidth."""
        if self.bandwidth is None:
            return None
        reading = work.bytes_read(tokens, load.context, load.users) / (self.bandwidth * _GIGA)
        if self.tflops is None:
            return _MS * reading
        work_done = 2 * work.multiplications(tokens, load.users) / (self.tflops * _TERA)
        return _MS * max(reading, work_done)

    def moved(
        self, measured: float, work: Work | None, before: tuple[int, Load], now: tuple[int, Load]
    ) -> float:
        """A measured step time at other tokens per user and load: by the model's ratio.

        Without a model it stays as it is.
        """
        if work is None or before == now:
            return measured
        old, new = self.modelled(work, *before), self.modelled(work, *now)
        return measured * new / old if old and new else measured


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Milliseconds of the steps of one head at one setting; None where nothing tells."""

    draft: float | None
    verify: float | None
    plain: float | None


def step_times(
    machine: Machine,
    drafts: Sequence[Work],
    head: int,
    verifier: Work | None,
    slots: int,
    load: Load,
    measured_slots: int,
) -> StepTimes:
    """The steps of head number `head` (0 for REF).

    Args:
        drafts: one draft step's work of every head, REF first.
        measured_slots: K at which `machine.verify_ms` was measured.
    """
    return StepTimes(
        draft=_draft_ms(machine, drafts, head, load),
        verify=_verify_ms(machine, verifier, slots, load, measured_slots),
        plain=_plain_ms(machine, verifier, load, measured_slots),
    )


def _draft_ms(machine: Machine, drafts: Sequence[Work], head: int, load: Load) -> float | None:
    """Measured for this very head, else the reference's measured one by the bytes read."""
    known = machine.draft_ms
    if not known:
        return machine.modelled(drafts[head], 1, load)
    source = head if head < len(known) else 0
    at = machine.at
    read = [work.bytes_read(1, at.context, at.users) for work in (drafts[head], drafts[source])]
    here = known[source] * read[0] / read[1] if read[1] else known[source]
    return machine.moved(here, drafts[head], (1, at), (1, load))


def _verify_ms(
    machine: Machine, verifier: Work | None, slots: int, load: Load, measured_slots: int
) -> float | None:
    tokens = slots + 1
    if machine.verify_ms is not None:
        before = (measured_slots + 1, machine.at)
        return machine.moved(machine.verify_ms, verifier, before, (tokens, load))
    return machine.modelled(verifier, tokens, load) if verifier else None


def _plain_ms(
    machine: Machine, verifier: Work | None, load: Load, measured_slots: int
) -> float | None:
    """Measured, else the verify step's time for one token."""
    if machine.plain_ms is not None:
        return machine.moved(machine.plain_ms, verifier, (1, machine.at), (1, load))
    if machine.verify_ms is not None:
        before = (measured_slots + 1, machine.at)
        return machine.moved(machine.verify_ms, verifier, before, (1, load))
    return machine.modelled(verifier, 1, load) if verifier else None
