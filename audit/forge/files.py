"""A head under a cut, written to a file that `audit compare REF FILE` reads with equal proposals.

Where what goes:

- An LM head: see `projection`. In safetensors too the values of a ggml type lie as F32.
- A draft head whose REF is GGUF, into .gguf under REF's own names and key-values: the block, the
  projection, and the embedding and final norm that the block's runtime needs beside them, as
  llama.cpp's own `mtp-*.gguf` files have it.
- A draft head whose REF is safetensors, into .safetensors under REF's own names: the block, and
  the projection where it was cut. What is left out, configuration and embedding too, is then
  REF's. The format has no block types, so the values of a ggml type lie there as F32, and the
  metadata say that this is a simulated quant.
- The projection of a draft head alone also into the other format, as an LM head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from audit import __version__
from audit.blocks import BlockHead
from audit.errors import BadUsageError
from audit.files import open_container
from audit.files.made import made_by_forge
from audit.forge.cuts import Cut
from audit.forge.damage import weight_errors
from audit.forge.floats import as_floats, simulation_of
from audit.forge.heads import CutHead, Only, Parts, bare_projection, cut_parts, own_bytes, parts_of
from audit.forge.layout import (
    block_tensors,
    changed_keys,
    distinct,
    projection_tensors,
    runtime_tensors,
)
from audit.forge.projection import check_kept, forge_projection, suffix_for
from audit.forge.writers import write_gguf, write_safetensors
from audit.heads import HeadOptions, load_candidate
from audit.heads.head import Head

_FORMATS = {".gguf": "gguf", ".safetensors": "safetensors"}


@dataclass(frozen=True, slots=True)
class Forged:
    """A file that was made."""

    path: Path
    head: Head
    """The candidate."""
    parts: Parts
    bytes_before: int
    """Of the head as the reference stores it: block and projection, or what the file is of."""
    bytes_after: int
    """Of the same under the cut, in the cut's own encoding."""
    errors: Mapping[str, float]
    """Part -> norm of the weights' change over their norm; nothing for a trim."""
    notes: tuple[str, ...]

    @property
    def file_bytes(self) -> int:
        return self.path.stat().st_size


def forge_head(
    ref: Head,
    cut: Cut,
    out: Path,
    *,
    only: Only | None = None,
    second_moment: Tensor | None = None,
    moments: Mapping[str, Tensor] | None = None,
    seed: int = 0,
) -> Forged:
    """Write the candidate that `cut` makes of `ref`; see `heads.cut_head` for the arguments.

    Raises:
        BadUsageError: the cut does not apply, lacks its calibration, or `out` can not hold it.
        AuditError: as the cut itself.
    """
    parts = check_forgeable(ref, cut, out, only)
    kind = _FORMATS[out.suffix.lower()]
    if not isinstance(ref, BlockHead) or kind != ref.block.container.format:
        return _as_lm_head(ref, cut, out, parts, second_moment, seed)
    made = cut_parts(ref, cut, only=only, second_moment=second_moment, moments=moments, seed=seed)
    notes = _notes(ref, made)
    tensors = block_tensors(ref, made) + projection_tensors(ref, made, kind)
    changed = 0
    if kind == "safetensors":
        tensors, changed = as_floats(tensors)
    if note := simulation_of(cut, _floats(made), changed):
        notes.append(note)
    about = _about(ref, cut, made, seed, notes)
    if kind == "safetensors":
        metadata = {key: str(value) for key, value in ref.block.container.metadata.items()}
        write_safetensors(out, distinct(tensors), made=about, metadata=metadata)
    else:
        tensors += runtime_tensors(ref, made)
        keys = changed_keys(ref, made, tensors)
        source = ref.block.container
        write_gguf(out, distinct(tensors), source=source, keys=keys, made=about)
    return _forged(ref, made.head, out, parts, made, notes)


def check_forgeable(ref: Head, cut: Cut, out: Path, only: Only | None = None) -> Parts:
    """What `cut` reaches in `ref`, if a file of that name can hold it; nothing is computed.

    Raises:
        BadUsageError: the cut does not apply to this head, or `out` can not hold it.
    """
    parts = parts_of(ref, cut, only)
    kind = _checked_format(ref, cut, out)
    if not isinstance(ref, BlockHead):
        check_kept(cut, out)
    elif kind != ref.block.container.format:
        if parts.block:
            raise _other_format(ref, out)
        check_kept(cut, out)
    return parts


def _floats(made: CutHead) -> str:
    """The type in which a cut in floats was written."""
    tensors = [matrix.encoding for matrix in made.matrices.values()]
    tensors += [tensor.encoding for tensor in (made.recipe.tensors if made.recipe else ())]
    return tensors[0] if tensors else "F32"


def _notes(ref: BlockHead, made: CutHead) -> list[str]:
    """What a reader should know of the cut beside its name."""
    notes = [made.parts.note] if made.parts.note else []
    notes += made.recipe.notes if made.recipe else ()
    if made.parts.block and made.job is None and made.cut.kind == "lowrank":
        notes.append("the factors are multiplied out: the block takes as many bytes as before")
    block = made.head.block if isinstance(made.head, BlockHead) else ref.block
    return notes + [note for note in block.notes if note not in ref.block.notes]


def _as_lm_head(
    ref: Head, cut: Cut, out: Path, parts: Parts, second_moment: Tensor | None, seed: int
) -> Forged:
    """A file of the projection alone; what is reported of it is read back."""
    rows = bare_projection(ref)
    if cut.calibrated and second_moment is None:
        cut_parts(rows, cut)  # refuses, with the hint
    forge_projection(rows, cut, out, second_moment=second_moment, seed=seed)
    head = load_candidate(out, HeadOptions(), rows)
    assert isinstance(head, Head)
    size = own_bytes(rows, cut) or head.record.stored_bytes
    head = replace(head, record=head.record.model_copy(update={"stored_bytes": size}))
    about = made_by_forge(open_container(out).metadata) or {}
    notes = [parts.note, *about.get("notes", ())]
    return _forged(rows, head, out, parts, None, list(filter(None, notes)))


def _forged(
    ref: Head, head: Head, out: Path, parts: Parts, made: CutHead | None, notes: list[str]
) -> Forged:
    return Forged(
        out,
        head,
        parts,
        ref.record.stored_bytes or 0,
        head.record.stored_bytes or 0,
        weight_errors(ref, head, parts, made.matrices if made else {}),
        tuple(notes),
    )


def _checked_format(ref: Head, cut: Cut, out: Path) -> str:
    """The format that the name asks for, if it is one and not the reference itself."""
    kind = _FORMATS.get(out.suffix.lower())
    if kind is None:
        home = suffix_for(cut)
        if isinstance(ref, BlockHead):
            home = f".{ref.block.container.format}"
        raise BadUsageError(
            f"a head is written to .gguf or .safetensors, not to {out.name}",
            hint=f"name it {out.stem}{home}",
            where=out,
        )
    theirs = ref.block.container.files if isinstance(ref, BlockHead) else ()
    theirs += open_container(Path(ref.record.path)).files if Path(ref.record.path).exists() else ()
    if out.resolve() in {path.resolve() for path in theirs}:
        raise BadUsageError(
            f"{out} is the reference itself", hint="choose another name for the cut", where=out
        )
    return kind


def _other_format(ref: BlockHead, out: Path) -> BadUsageError:
    home = ref.block.container.format
    return BadUsageError(
        f"a block from {home} is not translated into {out.suffix}: its names and layout change",
        hint=f"name it {out.stem}.{home}, or forge from a reference that is {out.suffix} itself",
        where=out,
    )


def _about(ref: BlockHead, cut: Cut, made: CutHead, seed: int, notes: list[str]) -> dict[str, Any]:
    """How the file was made. No path and no time: the same cut gives the same bytes."""
    return {
        "cut": str(cut) if cut.kind != "trim" else cut.title,
        "family": cut.family,
        "head": ref.block.name,
        "notes": notes,
        "parts": str(made.parts),
        "program": f"head-audit {__version__}",
        "reference": ref.record.name,
        "reference_sha256": ref.record.sha256,
        "seed": seed if cut.kind == "noise" else None,
        "simulated": any(note.startswith("simulated") for note in notes),
    }
