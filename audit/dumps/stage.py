"""Were these states taken after the final norm? Measured from the states, not read in a manual.

An RMS norm's output divided by its gain has a root mean square of 1 on every row (a LayerNorm's
too, once its bias is gone), whatever the text; a state before the norm has it only by accident.
Also here: states that were scaled to length 1, whose margins are lost.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from audit.dumps.reader import Reader
from audit.errors import BadUsageError, MismatchError
from audit.heads import FinalNorm
from audit.records import Finding, Stage

_WITHIN = 0.02
"""bfloat16 rounds each value by up to 0.4 %, twice where the engine rounds before the gain."""
_SURE = 0.99
_BY_ACCIDENT = 0.2
"""Largest share of rows before the norm that may come so near 1."""
_LEAST_GAIN = 1e-6
_MOST_DEAD = 0.02
_ROWS = 1024
_LENGTH_ONE = 0.005
_NORMALISED = {
    "length (euclidean norm)": (2.0, 1.0),
    "sum of absolute values": (1.0, 1.0),
    "largest absolute value / 32760": (float("inf"), 32760.0),
}
"""Order of the norm that is 1 and its scale, under llama.cpp's --embd-normalize 2, 1 and 0."""


@dataclass(frozen=True, slots=True)
class Rms:
    """Root mean square of state / gain over the rows."""

    low: float
    high: float
    near_one: float
    """Share of rows within 2 % of 1."""

    @property
    def stage(self) -> Stage | None:
        """What it says; None where the dump mixes both."""
        if self.near_one >= _SURE:
            return "post_norm"
        return "pre_norm" if self.near_one <= _BY_ACCIDENT else None


def measure_rms(hidden: Tensor, norm: FinalNorm) -> Rms | None:
    """The measurement over all rows of [N, d]; None where the gain is 0 in too many channels."""
    gain = norm.gain.abs()
    alive = gain > _LEAST_GAIN * gain.max()
    if float(alive.float().mean()) < 1 - _MOST_DEAD:
        return None
    rms = torch.empty(len(hidden))
    # Into one tensor: small results kept between large temporaries would tear the heap apart.
    for rows, out in zip(hidden.split(_ROWS), rms.split(_ROWS), strict=True):
        out.copy_(_rms(rows, norm, alive))
    near = (rms - 1).abs() <= _WITHIN
    return Rms(float(rms.min()), float(rms.max()), float(near.double().mean()))


def _rms(rows: Tensor, norm: FinalNorm, alive: Tensor) -> Tensor:
    values = rows.float()
    if norm.bias is not None:
        values = values - norm.bias
    scaled = torch.where(alive, values / norm.gain, 0.0)
    rms: Tensor = torch.linalg.vector_norm(scaled, dim=1) / float(alive.sum()) ** 0.5
    return rms


def decide_stage(
    rms: Rms | None, asked: Stage | None, reader: Reader, claimed: Stage | None
) -> tuple[Stage, list[Finding]]:
    """The stage, and what contradicts it.

    Args:
        rms: the measurement, None where no norm is known.
        asked: `--stage`.
        reader: whose documentation may say otherwise.
        claimed: what the files themselves state.

    Raises:
        MismatchError: STAGE_UNCLEAR when rows are of both stages; STAGE_CONTRADICTED when the user
            says another than was measured.
        BadUsageError: STAGE_UNKNOWN when neither measured nor said.
    """
    if rms is None:
        if asked is None:
            raise _unknown(reader, claimed)
        return asked, _contradictions(asked, "by --stage", reader, claimed)
    shown = f"rms of state / gain {rms.low:.3g} to {rms.high:.3g}, 1 after the norm"
    if rms.stage is None:
        raise MismatchError(
            f"{100 * rms.near_one:.0f} % of the states look as if taken after the final norm, the "
            f"others not ({shown})",
            hint="the dump mixes runs of two kinds: import them apart",
            where=reader.dump,
            code="STAGE_UNCLEAR",
        )
    if asked is not None and asked != rms.stage:
        raise MismatchError(
            f"--stage says {asked}, but the states are {rms.stage} ({shown})",
            hint="leave --stage away, or give the --model that the states are of",
            where=reader.dump,
            code="STAGE_CONTRADICTED",
        )
    return rms.stage, _contradictions(rms.stage, f"measured: {shown}", reader, claimed)


def check_not_normalised(hidden: Tensor, reader: Reader) -> None:
    """Raise MismatchError with code NORMALISED where every state was scaled to one length."""
    for name, (order, scale) in _NORMALISED.items():
        lengths = torch.empty(len(hidden))
        for rows, out in zip(hidden.split(_ROWS), lengths.split(_ROWS), strict=True):
            out.copy_(torch.linalg.vector_norm(rows.float(), order, dim=1) / scale)
        some = lengths[lengths > 0]
        if len(some) and bool(((some - 1).abs() <= _LENGTH_ONE).all()):
            raise MismatchError(
                f"every state of {reader.dump} has the {name} 1: it was normalised, and margins "
                "and norms can not be had back",
                hint="dump again with `--embd-normalize -1` (llama.cpp scales embeddings unless "
                "told so)",
                where=reader.dump,
                code="NORMALISED",
            )


def _contradictions(stage: Stage, how: str, reader: Reader, claimed: Stage | None) -> list[Finding]:
    said = {f"{reader.name} documents": reader.documented, "the files state": claimed}
    return [
        Finding(
            code="STAGE_NOT_AS_SAID",
            severity="warning",
            subject="dump",
            sentence=f"the states are {stage} ({how}), although {who} {other}",
        )
        for who, other in said.items()
        if other is not None and other != stage
    ]


def _unknown(reader: Reader, claimed: Stage | None) -> BadUsageError:
    told = claimed or reader.documented
    says = f" ({reader.name} documents {told}, which is not believed unseen)" if told else ""
    return BadUsageError(
        f"whether these states were taken before or after the final norm is not known{says}",
        hint="give the model, so that it is measured: --model FOLDER_OR_GGUF; or say it: --stage "
        "post_norm or --stage pre_norm",
        where=reader.dump,
        code="STAGE_UNKNOWN",
    )
