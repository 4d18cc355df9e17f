"""What makes a pair of heads doubtful whatever its numbers: signs that one of them is broken.

A verdict on such a pair would name a kind of cut where there was none, so it stays undecided and
says why.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from audit.chance import independent_share, upper
from audit.evidence import Estimates, find, percent
from audit.records import Finding
from audit.report.wording import REGISTER_WORDS
from audit.samples import REGISTERS
from audit.table import Frame

BEATEN = 1.02
"""A cut calibrated on the measured text may gain a little; more than 2 % for certain is no cut."""


def doubts_of(name: str, estimates: Estimates, frames: Sequence[Frame]) -> list[Finding]:
    """Findings CANDIDATE_AT_CHANCE and REFERENCE_BEATEN of one candidate; empty for a sound pair.

    Args:
        frames: the candidate's position tables, one per trace.
    """
    found = []
    if why := _at_chance(frames):
        found.append(_finding("CANDIDATE_AT_CHANCE", name, why))
    if why := _beaten(estimates):
        found.append(_finding("REFERENCE_BEATEN", name, why))
    return found


def _at_chance(frames: Sequence[Frame]) -> str | None:
    """On every text where the reference is beyond chance, the candidate is not."""
    told = []
    for frame in frames:
        (ref, _, beyond), (cand, bound, alive) = (_share(frame, side) for side in ("ref", "cand"))
        if alive:
            return None
        if beyond:
            corpus = frame["corpus"].iloc[0]
            told.append(
                f"{percent(cand)} on {corpus}, where chance gives up to {percent(bound)} and the "
                f"reference has {percent(ref)}"
            )
    if not told:
        return None
    return (
        f"it is accepted near chance ({told[0]}): nothing of the head is left; look for swapped, "
        "transposed or random weights, or a wrong map"
    )


def _share(frame: Frame, side: str) -> tuple[float, float, bool]:
    """Acceptance, what chance gives at most, and whether it is beyond that."""
    proposal, oracle = (torch.tensor(frame[name].to_numpy()) for name in (side, "oracle"))
    share = float(frame[f"{side}_accepts"].mean())
    bound = upper(independent_share(proposal, oracle), len(oracle))
    return share, bound, share > bound


def _beaten(estimates: Estimates) -> str | None:
    for register in REGISTERS:
        retention = find(estimates, "retention", register)
        if retention is not None and retention.low is not None and retention.low > BEATEN:
            return (
                f"it is accepted more often than its reference {_where(register)} (retention "
                f"{percent(retention.value)}, at least {percent(retention.low)}), which no cut "
                "does: the reference is damaged or read wrongly, or the candidate was trained on"
            )
    return None


def _where(register: str) -> str:
    words = REGISTER_WORDS[register]
    return words if words.startswith("in ") else f"on {words}"


def _finding(code: str, name: str, sentence: str) -> Finding:
    return Finding(code=code, severity="warning", subject=name, sentence=sentence)
