"""Any head under a cut, in memory: a draft head's block, its projection, or both.

`cut_head` gives the candidate that `files.forge_head` writes, with the very weights of that file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from audit.blocks import Block, BlockHead
from audit.errors import BadUsageError
from audit.files import row_bytes
from audit.forge.blocks import cut_block
from audit.forge.cuts import Cut
from audit.forge.fp8 import fp8_bytes
from audit.forge.matrices import CutMatrix
from audit.forge.memory import container_of, in_memory
from audit.forge.projection import check_projection, companions, rule_keys
from audit.forge.recipes import RECIPES, Job, Recipe
from audit.forge.writers import OWN_ARCHITECTURE
from audit.heads.head import Head
from audit.heads.identity import head_hash
from audit.heads.lm import lm_head
from audit.heads.options import HeadOptions

Only = Literal["projection", "block"]


@dataclass(frozen=True, slots=True)
class Parts:
    """Which parts of a head a cut reaches, and why not the other."""

    block: bool
    projection: bool
    note: str = ""

    def __str__(self) -> str:
        both = "block and projection" if self.projection else "block"
        return both if self.block else "projection"


@dataclass(frozen=True, slots=True, eq=False)
class CutHead:
    """A candidate and what its file is made of."""

    cut: Cut
    head: Head
    parts: Parts
    matrices: dict[str, CutMatrix]
    """Of the block, by the names of the reference's file."""
    job: Job | None
    """Of the projection, where it was cut."""
    recipe: Recipe | None
    """Its tensors, computed and kept."""


def cut_head(
    ref: Head,
    cut: Cut,
    *,
    only: Only | None = None,
    second_moment: Tensor | None = None,
    moments: Mapping[str, Tensor] | None = None,
    seed: int = 0,
) -> Head:
    """The candidate that `cut` makes of `ref`, ready to run; `ref` is left as it is.

    Args:
        only: one part of a head that has a block. Default: both, where the cut reaches both.
        second_moment: E[x x^T] of what enters the projection, for a calibrated one.
        moments: of `calibration.block_moments`, for a calibrated block.
        seed: of noise.

    Returns:
        A `BlockHead` where `ref` is one. Its record is named after the cut and has a hash and a
        size of its own. A block that is not cut is the reference's very own.

    Raises:
        BadUsageError: the cut does not apply to this head or part, or lacks its calibration.
        AuditError: as the cut itself.
    """
    return cut_parts(
        ref, cut, only=only, second_moment=second_moment, moments=moments, seed=seed
    ).head


def cut_parts(
    ref: Head,
    cut: Cut,
    *,
    only: Only | None = None,
    second_moment: Tensor | None = None,
    moments: Mapping[str, Tensor] | None = None,
    seed: int = 0,
) -> CutHead:
    """As `cut_head`, with what a file needs."""
    parts = parts_of(ref, cut, only)
    lacking = (parts.block and not moments) or (parts.projection and second_moment is None)
    check_calibrated(cut, not lacking)
    rows, job, recipe = bare_projection(ref), None, None
    if parts.projection:
        rows, job, recipe = _cut_projection(rows, cut, second_moment, seed)
    if not isinstance(ref, BlockHead):
        return CutHead(cut, _alone(ref, rows, cut), parts, {}, job, recipe)
    block, matrices = ref.block, dict[str, CutMatrix]()
    if parts.block:
        block, matrices = cut_block(ref.block, cut, moments=moments, seed=seed)
    size = block.stored_bytes - sum(matrix.saved for matrix in matrices.values())
    return CutHead(cut, _joined(ref, rows, block, size, cut, parts), parts, matrices, job, recipe)


def parts_of(ref: Head, cut: Cut, only: Only | None) -> Parts:
    """What `cut` reaches in `ref`; raises BadUsageError where that is nothing."""
    if not isinstance(ref, BlockHead):
        check_projection(ref, cut)
        if only == "block":
            raise BadUsageError(
                f"{ref.record.name} is an LM head: it has no block",
                hint="leave out --only, or name a head that has one: --head mtp",
            )
        return Parts(block=False, projection=True)
    if cut.kind == "trim":
        if only == "block":
            raise BadUsageError("a trim takes rows of a projection", hint="leave out --only block")
        return Parts(block=False, projection=True, note="a trim leaves the block as it is")
    if only == "projection":
        check_projection(ref, cut)
        return Parts(block=False, projection=True, note="the block is left as it is")
    if cut.kind in ("prune", "lowrank"):
        more = "; to cut it: --only projection" if cut.kind == "lowrank" and not only else ""
        note = f"{cut.kind} acts on the block's MLP, the projection is left as it is{more}"
        return Parts(block=True, projection=False, note=note)
    if only == "block":
        return Parts(block=True, projection=False, note="the projection is left as it is")
    check_projection(ref, cut)
    return Parts(block=True, projection=True)


def own_bytes(ref: Head, cut: Cut) -> int | None:
    """Size of the projection's rows in the type that the cut is to; None where that is no type."""
    rows, columns = ref.rows.count, ref.rows.columns
    if cut.kind == "fp8":
        return fp8_bytes((rows, columns))
    return rows * row_bytes(str(cut.encoding), columns) if cut.kind == "quantize" else None


def bare_projection(ref: Head) -> Head:
    """The rows of a draft head alone, as an LM head; an LM head passes unchanged."""
    if not isinstance(ref, BlockHead):
        return ref
    return Head(
        ref.projection, ref.rows, ref.ids, ref.hidden_size, ref.bias, ref.adapt, ref.norm,
        ref.post, ref.valid,
    )  # fmt: skip


def check_calibrated(cut: Cut, has_states: bool) -> None:
    """Raise BadUsageError for a calibrated cut without states to fit it to."""
    if cut.calibrated and not has_states:
        raise BadUsageError(
            f"{cut} is fitted to the states of a text, and no trace was given",
            hint=f"--trace FILE, of text like the head's own; or {str(cut).rpartition(':')[0]}",
        )


def _cut_projection(
    ref: Head, cut: Cut, second_moment: Tensor | None, seed: int
) -> tuple[Head, Job, Recipe]:
    """The rows under a cut, read back from memory by the loader that reads its file."""
    is_gguf = cut.kind != "lowrank"  # factors have names in safetensors only
    job = Job(ref, cut, "output" if is_gguf else "lm_head", is_gguf, second_moment, seed, False)
    recipe = RECIPES[cut.kind](job)
    recipe = replace(recipe, tensors=[in_memory(tensor) for tensor in recipe.tensors])
    metadata = {"general.architecture": OWN_ARCHITECTURE}
    metadata |= {f"{OWN_ARCHITECTURE}{key}": value for key, value in rule_keys(ref).items()}
    container = container_of(
        recipe.tensors + companions(job, recipe),
        "gguf" if is_gguf else "safetensors",
        metadata if is_gguf else {},
    )
    head = lm_head(container, HeadOptions(), ref)
    record = head.record.model_copy(
        update={
            "softcap": ref.record.softcap,
            "logit_scale": ref.record.logit_scale,
            "notes": recipe.notes,
            "stored_bytes": own_bytes(ref, cut) or head.record.stored_bytes,
        }
    )
    made = replace(head, record=record, norm=ref.norm, post=ref.post, valid=ref.valid)
    return made, job, recipe


def _alone(ref: Head, rows: Head, cut: Cut) -> Head:
    name = {"name": str(cut), "path": ref.record.path, "container": "forge"}
    return replace(rows, record=rows.record.model_copy(update=name), lookahead=ref.lookahead)


def _joined(
    ref: BlockHead, rows: Head, block: Block, block_bytes: int, cut: Cut, parts: Parts
) -> BlockHead:
    """Rows and block as one head, as `blocks.loading` joins them."""
    record = rows.record.model_copy(
        update={
            "name": str(cut),
            "path": ref.record.path,
            "container": "forge",
            "kind": block.name,
            "sha256": head_hash([], {"projection": rows.record.sha256, "block": block.sha256}),
            "stored_bytes": (rows.record.stored_bytes or 0) + block_bytes,
            "tensors": (*rows.record.tensors, *dict.fromkeys(block.tensors.values())),
            "notes": (*filter(None, (parts.note,)), *rows.record.notes, *block.notes),
        }
    )
    return replace(
        ref,
        record=record,
        rows=rows.rows,
        ids=rows.ids,
        bias=rows.bias,
        adapt=rows.adapt,
        block=block,
        projection=rows.record,
    )
