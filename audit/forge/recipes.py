"""What each cut of a projection puts into the file: one small recipe per kind of cut.

Everything here is lazy: a recipe makes `Stored` tensors, whose tiles are computed as they are
written. Leaves out what goes along with the rows and the file itself: see `projection`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.errors import BadUsageError
from audit.files.encodings import GGML_TYPES
from audit.forge.cuts import Cut
from audit.forge.fp8 import decode_fp8, encode_fp8, fp8_scales
from audit.forge.lowrank import low_rank, rank_for
from audit.forge.noise import noisy_tiles
from audit.forge.nvfp4 import tensor_scale
from audit.forge.quantize import check_encodable, encode_tile, encoded_tiles
from audit.forge.tiles import largest, row_tiles
from audit.forge.trim import CONSUMERS, Consumer, ids_of_card
from audit.forge.writers import Stored, stored
from audit.heads.head import Head, find_ids
from audit.heads.rows import Rows, SelectedRows, StoredRows

IN_BOTH = frozenset({"F32", "F16", "BF16"})
"""Encodings of weights that GGUF and safetensors share."""
_GGML = frozenset(name for name, _ in GGML_TYPES.values())

_COPIED_WEIGHTS = 1 << 22


@dataclass(frozen=True, slots=True)
class Job:
    """What the recipes need."""

    ref: Head
    cut: Cut
    stem: str
    is_gguf: bool
    second_moment: Tensor | None
    seed: int
    packed: bool

    @property
    def weight(self) -> str:
        return f"{self.stem}.weight"

    @property
    def shape(self) -> tuple[int, int]:
        return self.ref.rows.count, self.ref.rows.columns

    @property
    def consumer(self) -> Consumer | None:
        return CONSUMERS[self.cut.consumer] if self.cut.consumer else None

    @property
    def floats(self) -> str:
        """The type of computed weights: float32 only where the reference has it."""
        return "F32" if self.ref.record.encoding == "F32" else "BF16"


@dataclass(frozen=True, slots=True)
class Recipe:
    """The rows under a cut."""

    tensors: list[Stored]
    ids: Tensor
    """int64: the target id of each row; ascending, but for a consumer of rows by rank."""
    notes: tuple[str, ...] = ()
    bias_stem: str | None = None
    """Where the bias belongs, when not beside the weight."""


def _quantized(job: Job) -> Recipe:
    return Recipe(_in_blocks(job, job.ref.rows), job.ref.ids)


def _in_blocks(job: Job, rows: Rows) -> list[Stored]:
    """Rows in the cut's encoding, with the scale of the whole where that has one."""
    encoding = str(job.cut.encoding)
    check_encodable(encoding, rows.columns)
    scale = tensor_scale(largest(rows)) if encoding == "NVFP4" else 1.0
    shape = (rows.count, rows.columns)
    made = Stored(job.weight, encoding, shape, lambda: encoded_tiles(rows, encoding, scale))
    return [made, *_sidecar(job, scale)]


def _fp8(job: Job) -> Recipe:
    rows = job.ref.rows
    scales = fp8_scales(rows)

    def codes() -> Iterator[tuple[Tensor, Tensor]]:
        at = 0
        for tile in row_tiles(rows):
            own = scales[at : at + len(tile)]
            yield encode_fp8(tile, own), own
            at += len(tile)

    if job.packed:
        weight = Stored(
            job.weight, "F8_E4M3", job.shape, lambda: (c.view(torch.uint8) for c, _ in codes())
        )
        return Recipe([weight, stored(f"{job.weight}_scale", scales)], job.ref.ids)
    tiles = _float_tiles(job, lambda: (decode_fp8(*pair) for pair in codes()))
    return Recipe([tiles], job.ref.ids)


def _noisy(job: Job) -> Recipe:
    # The stream's name is not the file's, so that GGUF and safetensors get the same noise.
    strength = job.cut.strength or 0.0
    tiles = _float_tiles(job, lambda: noisy_tiles(job.ref.rows, strength, "lm_head", job.seed))
    return Recipe([tiles], job.ref.ids)


def _low_rank(job: Job) -> Recipe:
    if job.cut.calibrated and job.second_moment is None:
        raise BadUsageError(
            "calibrated low rank needs the second moment of the states",
            hint="give a trace to calibrate on, or leave out :calibrated",
        )
    moment = job.second_moment if job.cut.calibrated else None
    rows, (count, columns) = job.ref.rows, job.shape
    made = low_rank(rows, rank_for(job.cut.keep or 0.0, count, columns, "parameters"), moment)
    left, right = f"{job.stem}.ALinear", f"{job.stem}.BLinear"
    tensors = [
        _encoded(f"{left}.weight", job.floats, (count, made.rank), made.left_tiles),
        _encoded(f"{right}.weight", job.floats, (made.rank, columns), lambda: [made.right]),
    ]
    return Recipe(tensors, job.ref.ids, (f"rank {made.rank}",), left)


def _trimmed(job: Job) -> Recipe:
    cut, ref = job.cut, job.ref
    assert cut.card is not None
    if cut.ids is None:
        ids = ids_of_card(cut.card, cut.count, ref.vocabulary)
    else:
        ids = torch.tensor(cut.ids, dtype=torch.int64)
    if not (job.consumer and job.consumer.by_rank and job.is_gguf):
        ids = ids.sort().values
    place, known = find_ids(ref.ids, ids)
    absent = ids[~known]
    if len(absent):
        raise BadUsageError(
            f"{len(absent)} ids of {cut.card.name} have no row in {ref.record.name}, "
            f"the first is {int(absent[0])}",
            hint="forge from the full head",
            where=cut.card,
        )
    rows = SelectedRows(ref.rows, place)
    return Recipe(_in_blocks(job, rows) if cut.encoding else _same_rows(job, rows), ids)


RECIPES: dict[str, Callable[[Job], Recipe]] = {
    "quantize": _quantized,
    "fp8": _fp8,
    "noise": _noisy,
    "lowrank": _low_rank,
    "trim": _trimmed,
}


def _same_rows(job: Job, rows: Rows) -> list[Stored]:
    """Rows of the reference exactly as it stores them where the file can hold that, else F32."""
    columns, encoding = rows.columns, job.ref.record.encoding
    base, index = _beneath(rows)
    shape = (rows.count, columns)
    if isinstance(base, StoredRows) and encoding in (_GGML if job.is_gguf else IN_BOTH):
        step = max(1, _COPIED_WEIGHTS // columns)
        raw = Stored(
            job.weight, encoding, shape, lambda: (base.raw[part] for part in index.split(step))
        )
        return [raw, *_sidecar(job, base.scale)]
    return [_encoded(job.weight, "F32", shape, lambda: row_tiles(rows))]


def _beneath(rows: Rows) -> tuple[Rows, Tensor]:
    """The rows that a selection selects from, and which of them it takes."""
    index = torch.arange(rows.count)
    while isinstance(rows, SelectedRows):
        index, rows = rows.index[index], rows.base
    return rows, index


def _float_tiles(job: Job, tiles: Callable[[], Iterator[Tensor]]) -> Stored:
    return _encoded(job.weight, job.floats, job.shape, tiles)


def _encoded(
    name: str,
    encoding: str,
    shape: tuple[int, ...],
    tiles: Callable[[], Iterator[Tensor] | Sequence[Tensor]],
) -> Stored:
    return Stored(name, encoding, shape, lambda: (encode_tile(t, encoding) for t in tiles()))


def _sidecar(job: Job, scale: float) -> list[Stored]:
    return [] if scale == 1.0 else [stored(f"{job.stem}.scale", torch.tensor([scale]))]
