"""Named weight matrices, such as a draft block's, under a cut.

What comes out is what a file would hold (`CutMatrix.stored`) and the floats that it stands for
(`CutMatrix.values`), so that a block can be run in memory with the very weights of its file. Leaves
out the projection, which is cut in tiles (`projection`), and how a block is run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from audit.errors import BadUsageError
from audit.files import decode_rows
from audit.forge.cuts import Cut
from audit.forge.fp8 import fp8_bytes, quantize_fp8
from audit.forge.lowrank import low_rank, rank_for
from audit.forge.noise import add_noise
from audit.forge.nvfp4 import encode_nvfp4, tensor_scale
from audit.forge.prune import By, PrunedMlp, channel_scores, prune_mlp, zero_mlp
from audit.forge.quantize import check_encodable, quantize_rows
from audit.forge.tiles import as_rows, largest, row_tiles
from audit.forge.writers import Stored, stored, stored_bytes
from audit.words import count

_GATE = re.compile(r"(?P<stem>.*?)(?P<kind>mlp\.gate_proj|ffn_gate)\.weight")
_UP_DOWN = {
    "mlp.gate_proj": ("mlp.up_proj", "mlp.down_proj"),
    "ffn_gate": ("ffn_up", "ffn_down"),
}


@dataclass(frozen=True, slots=True, eq=False)
class CutMatrix:
    """One tensor after a cut."""

    name: str
    encoding: str
    raw: Tensor
    """uint8 [rows, bytes per row]; leading dimensions of the shape are flattened into rows."""
    shape: tuple[int, ...]
    scale: float = 1.0
    """NVFP4's `.scale` sidecar."""
    own_bytes: int | None = None
    """Size in the cut's own type where the file can not hold that: FP8."""

    @property
    def saved(self) -> int:
        """Bytes that the cut's own type would take less than the file does."""
        return 0 if self.own_bytes is None else self.raw.numel() - self.own_bytes

    def values(self) -> Tensor:
        """The weights it stands for, float32 in its shape."""
        flat = decode_rows(self.raw, self.encoding, self.shape[-1])
        return (flat if self.scale == 1.0 else flat * self.scale).view(self.shape)

    def stored(self) -> list[Stored]:
        """The tensors that a file holds for it."""
        own = stored_bytes(self.name, self.encoding, self.raw, self.shape)
        if self.scale == 1.0:
            return [own]
        sidecar = self.name.removesuffix(".weight") + ".scale"
        return [own, stored(sidecar, torch.tensor([self.scale]))]


@dataclass(frozen=True, slots=True)
class MlpNames:
    """The tensors of one gated MLP."""

    gate: str
    up: str
    down: str


def cut_matrices(
    weights: Mapping[str, Tensor],
    cut: Cut,
    *,
    moments: Mapping[str, Tensor] | None = None,
    seed: int = 0,
    floats: str = "F32",
    keep_shapes: bool = False,
) -> dict[str, CutMatrix]:
    """The tensors of a block under a cut, in the order given.

    Quantization, FP8 and noise reach every matrix; low rank and pruning the gated MLPs, and what is
    low in rank is multiplied out again, as the layouts of blocks have no place for factors. Norms
    and other vectors stay as they are.

    Args:
        weights: name -> float tensor [..., rows, columns] or [columns].
        cut: any but `trim`.
        moments: name -> second moment of what enters that matrix, [columns, columns], for a
            calibrated cut; pruning needs that of each `down`, and only its diagonal [columns].
        seed: of noise.
        floats: encoding of whatever is not quantized: F32, BF16 or F16.
        keep_shapes: prune by zeros instead of narrower matrices.

    Raises:
        BadUsageError: a trim; no MLP to cut; no moment for a calibrated cut.
        AuditError: as the cut itself: see `quantize`, `lowrank`, `prune`.
    """
    if cut.kind == "trim":
        raise BadUsageError("a trim takes rows of a projection; a block has none")
    if cut.kind == "quantize":
        encoding = str(cut.encoding)
        check_encodable(encoding)
        return {
            name: _encode(name, weight, encoding if weight.ndim > 1 else "F32")
            for name, weight in weights.items()
        }
    changed = dict(weights) | _changed(weights, cut, moments or {}, seed, keep_shapes)
    made = {
        name: _encode(name, weight, floats if weight.ndim > 1 else "F32")
        for name, weight in changed.items()
    }
    if cut.kind == "fp8":
        for name, matrix in made.items():
            if len(matrix.shape) > 1:
                made[name] = replace(matrix, own_bytes=fp8_bytes(matrix.shape))
    return made


def find_mlps(names: Iterable[str]) -> list[MlpNames]:
    """The gated MLPs among these tensors, under Hugging Face's or GGUF's names."""
    known = list(names)
    found = []
    for match in filter(None, map(_GATE.fullmatch, known)):
        up, down = (f"{match['stem']}{part}.weight" for part in _UP_DOWN[match["kind"]])
        if up in known and down in known:
            found.append(MlpNames(match.string, up, down))
    return found


def _changed(
    weights: Mapping[str, Tensor],
    cut: Cut,
    moments: Mapping[str, Tensor],
    seed: int,
    keep_shapes: bool,
) -> dict[str, Tensor]:
    """The tensors that a cut in floats changes, float32."""
    if cut.kind in ("fp8", "noise"):
        return {
            name: _each(name, weight, cut, seed)
            for name, weight in weights.items()
            if weight.ndim > 1
        }
    mlps = find_mlps(weights)
    if not mlps:
        raise BadUsageError(
            f"{cut.title}: there is no gated MLP in {count(len(weights), 'tensor')}",
            hint="it is looked for as mlp.gate_proj, up_proj, down_proj or ffn_gate, _up, _down",
        )
    found: dict[str, Tensor] = {}
    for mlp in mlps:
        if cut.kind == "prune":
            pruned = _pruned(weights, mlp, cut, moments, keep_shapes)
            found |= {mlp.gate: pruned.gate, mlp.up: pruned.up, mlp.down: pruned.down}
            continue
        for name in (mlp.gate, mlp.up, mlp.down):
            found[name] = _multiplied_out(weights[name], cut, _moment(moments, name, cut))
    return found


def _each(name: str, weight: Tensor, cut: Cut, seed: int) -> Tensor:
    flat = weight.reshape(-1, weight.shape[-1])
    if cut.kind == "fp8":
        return quantize_fp8(flat).values().view(weight.shape)
    return add_noise(flat, cut.strength or 0.0, name, seed).view(weight.shape)


def _pruned(
    weights: Mapping[str, Tensor],
    mlp: MlpNames,
    cut: Cut,
    moments: Mapping[str, Tensor],
    keep_shapes: bool,
) -> PrunedMlp:
    gate, up, down = (weights[name].float() for name in (mlp.gate, mlp.up, mlp.down))
    by: By = "activation" if cut.calibrated else "magnitude"
    moment = _moment(moments, mlp.down, cut)
    scores = channel_scores(gate, up, down, by, second_moment=moment)
    shape = zero_mlp if keep_shapes else prune_mlp
    return shape(gate, up, down, cut.keep or 0.0, scores)


def _multiplied_out(weight: Tensor, cut: Cut, moment: Tensor | None) -> Tensor:
    rows, columns = weight.shape
    rank = rank_for(cut.keep or 0.0, rows, columns, "parameters")
    left, right = low_rank(weight, rank, moment).factors()
    return left @ right


def _moment(moments: Mapping[str, Tensor], name: str, cut: Cut) -> Tensor | None:
    if not cut.calibrated:
        return None
    if name not in moments:
        raise BadUsageError(
            f"{cut.title}: no calibration for what enters {name}",
            hint="give a trace to calibrate on, or take the cut that needs none",
        )
    return moments[name]


def _encode(name: str, weight: Tensor, encoding: str) -> CutMatrix:
    shape = tuple(weight.shape)
    flat = weight.detach().reshape(math.prod(shape[:-1]), shape[-1])
    if encoding != "NVFP4":
        return CutMatrix(name, encoding, quantize_rows(flat, encoding), shape)
    check_encodable(encoding, shape[-1])
    scale = tensor_scale(largest(flat))
    tiles = [encode_nvfp4(tile, scale=scale) for tile in row_tiles(as_rows(flat))]
    return CutMatrix(name, encoding, torch.cat(tiles), shape, scale)
