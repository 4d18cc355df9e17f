"""What the figures of `audit cost` rest on, in sentences that stand in every output."""

from __future__ import annotations

from collections.abc import Sequence

from audit.cost.acceptance import Source
from audit.cost.machine import Machine
from audit.cost.records import VerifierCost

_LEFT_OUT = (
    "left out: launches, sampling, activations, scheduling, networks, and all else an engine does"
)


def assumptions_of(
    machine: Machine, slots: int, verifier: VerifierCost | None, sources: Sequence[Source]
) -> tuple[str, ...]:
    """Every assumption that the figures at hand rest on, the broadest first."""
    said = [
        "bytes of a draft step: block, projection and vocabulary map as stored, each read once; "
        "of routed experts, those that a token needs",
    ]
    timed = machine.bandwidth or machine.draft_ms or machine.verify_ms or machine.plain_ms
    if not timed:
        return tuple(said)
    said.insert(0, "times and rates are figures of a model, not measured speeds")
    said += _bandwidth(machine) if machine.bandwidth else []
    said += _steps(machine, slots, verifier)
    if sources:
        said.append(
            f"a round: {slots} draft steps one after the other, then one verify step of "
            f"{slots + 1} tokens; it yields 1 + sum p_k tokens"
        )
        said.append(f"acceptance: {sources[0].said}")
        if any(source.even for source in sources):
            said.append("every slot is accepted with the same chance: p_k = a^(k+1)")
        said.append(
            "break-even acceptance: the same in every slot, at which rates are equal; the margin "
            "is acceptance minus it"
        )
    return (*said, _LEFT_OUT)


def _bandwidth(machine: Machine) -> list[str]:
    said = [
        f"a step takes as long as its bytes at {machine.bandwidth:g} GB/s (10^9 bytes): weights "
        "once for all users, each user's KV cache in 16 bit"
    ]
    if machine.tflops:
        said.append(f"or, if longer, its multiplications at {machine.tflops:g} TFLOPS")
    else:
        said.append(
            "arithmetic is taken to be free (--tflops bounds it), which flatters many users"
        )
    return said


def _steps(machine: Machine, slots: int, verifier: VerifierCost | None) -> list[str]:
    said = []
    moves = (
        "moved to other settings by the ratio of the model's times"
        if machine.bandwidth
        else ("the same at every context and number of users")
    )
    if machine.draft_ms:
        said.append(
            f"draft steps as given ({', '.join(f'{ms:g} ms' for ms in machine.draft_ms)}), "
            f"{moves}; of heads without one, REF's by the ratio of bytes"
        )
    if machine.verify_ms is not None:
        known = bool(machine.bandwidth and verifier)
        said.append(
            f"the verify step of {slots + 1} tokens as given ({machine.verify_ms:g} ms), "
            + (moves if known else "the same at every K, context and number of users")
        )
    if machine.plain_ms is not None:
        said.append(f"a step of plain decoding as given ({machine.plain_ms:g} ms)")
    elif machine.verify_ms is not None and not (machine.bandwidth and verifier):
        said.append("a step of plain decoding takes as long as a verify step")
    return said
