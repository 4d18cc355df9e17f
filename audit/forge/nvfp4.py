"""NVFP4 in ggml's layout, encoded here because the `gguf` library only decodes it.

A block is 64 weights in 36 bytes: 4 scales (UE4M3, one per group of 16), then 4 x 8 bytes of FP4
(E2M1) codes; in a group the low nibbles are weights 0..7 and the high ones 8..15
(`ggml-quants.c`, formats.md 3.1). A weight is scale * code value, times the factor in a `.scale`
sidecar where the file has one.

By default the scale of a group is ggml's (largest magnitude / 6, rounded half up), which gives
ggml's own bytes: a yardstick has to damage what the files in use damage. With `neighbours` the
scale is searched for the smallest squared error instead.
"""

from __future__ import annotations

import torch
from torch import Tensor

from audit.errors import MismatchError
from audit.files.encodings import ENCODINGS

GROUP = 16
BLOCK = ENCODINGS["NVFP4"].block
_SIZE = ENCODINGS["NVFP4"].size
_CODE_MAX = 0x7E
"""448; 0x7F would be NaN, and ggml reads it as 0."""
SCALE_MAX = 448.0
_SCALE_NORMAL = 2.0**-6
"""Below, UE4M3 has fewer than four significant bits."""
_FP4_MAX = 6.0
_FP4_HALF_STEPS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
"""Halfway between neighbours of 0, 0.5, 1, 1.5, 2, 3, 4, 6."""
_FP4_VALUES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def encode_nvfp4(tile: Tensor, *, scale: float = 1.0, neighbours: int = 0) -> Tensor:
    """Encode rows.

    Args:
        tile: finite float32 [n, columns], columns a multiple of 64.
        scale: the tensor's `.scale` sidecar; the blocks then hold weight / scale.
        neighbours: how many UE4M3 codes on either side of ggml's are tried per group.

    Returns:
        uint8 [n, columns / 64 * 36].
    """
    rows, columns = tile.shape
    if columns % BLOCK:
        raise MismatchError(
            f"rows of {columns} weights can not be NVFP4, whose blocks hold {BLOCK}",
            hint="write Q8_0 or Q4_0",
        )
    groups = tile.reshape(-1, GROUP)
    if scale != 1.0:
        groups = groups / scale
    sizes = groups.abs()
    codes = _to_ue4m3(sizes.amax(dim=1) / _FP4_MAX)
    if neighbours:
        codes = _search(sizes, codes, neighbours)
    fours = _to_fp4(sizes, ue4m3_values(codes)) | ((groups < 0) & 1).to(torch.uint8) << 3
    fours = fours.masked_fill((fours & 7) == 0, 0)  # no minus zero, as in ggml
    packed = fours[:, : GROUP // 2] | fours[:, GROUP // 2 :] << 4
    scales = codes.to(torch.uint8).view(-1, BLOCK // GROUP)
    blocks = torch.cat([scales, packed.reshape(len(scales), -1)], dim=1)
    return blocks.view(rows, columns // BLOCK * _SIZE)


def tensor_scale(largest: float) -> float:
    """The `.scale` that a tensor with this largest magnitude needs; 1.0 for none.

    One is given only where even the largest group's scale is no normal UE4M3 number; then that
    group gets 448, as ModelOpt's weight_scale_2 = amax / (6 * 448) does.
    """
    if largest == 0.0 or _SCALE_NORMAL <= largest / _FP4_MAX <= SCALE_MAX:
        return 1.0
    # Rounded to float32 here, because that is what the sidecar keeps.
    return float(torch.tensor(largest / (_FP4_MAX * SCALE_MAX), dtype=torch.float32))


def ue4m3_values(codes: Tensor) -> Tensor:
    """UE4M3 codes 0..0x7E (int32) as float32."""
    normal = ((codes << 20) + (120 << 23)).view(torch.float32)
    return torch.where(codes < 8, codes * 2.0**-9, normal)


def _to_ue4m3(values: Tensor) -> Tensor:
    """Float32 >= 0 to codes, int32, as `ggml_fp32_to_ue4m3` rounds.

    Half goes up, 0x08 is never reached from below, and everything from 256 on becomes 448.
    """
    bits = values.contiguous().view(torch.int32)
    normal = ((bits + (1 << 19)) >> 20) - (120 << 3)
    normal = torch.where(normal >= 0x78, _CODE_MAX, normal)
    small = (values * 512.0 + 0.5).clamp(max=7.0).int()
    return torch.where(values < _SCALE_NORMAL, small, normal)


def _to_fp4(sizes: Tensor, scales: Tensor) -> Tensor:
    """Magnitudes [groups, 16] to FP4 codes 0..7, uint8; a tie goes to the smaller code.

    half step * scale is exact in float32 (at most 3 + 4 significant bits), so these comparisons
    pick what ggml's search for the smallest |value - x| picks.
    """
    codes = torch.zeros(sizes.shape, dtype=torch.uint8)
    for half_step in _FP4_HALF_STEPS:
        codes += sizes > (scales * half_step).unsqueeze(1)
    return codes.masked_fill_((scales == 0).unsqueeze(1), 0)


def _search(sizes: Tensor, codes: Tensor, neighbours: int) -> Tensor:
    """The code near `codes` with the smallest squared error of each group; the first of equals."""
    best = codes
    least = _squared_error(sizes, codes)
    for step in (sign * n for n in range(1, neighbours + 1) for sign in (1, -1)):
        tried = (codes + step).clamp(0, _CODE_MAX)
        error = _squared_error(sizes, tried)
        better = error < least
        best = torch.where(better, tried, best)
        least = torch.where(better, error, least)
    return best


def _squared_error(sizes: Tensor, codes: Tensor) -> Tensor:
    scales = ue4m3_values(codes)
    values = _FP4_VALUES[_to_fp4(sizes, scales).int()] * scales.unsqueeze(1)
    return (values - sizes).double().square().sum(dim=1)
