"""A bare LM head under a cut, written as a file that `audit.heads.load_candidate` reads.

What lies where: ggml types in GGUF as `output.weight`; floats in safetensors as `lm_head.weight`;
low rank in safetensors under ASVD's names (`lm_head.ALinear.weight` is the output side); a trimmed
head in either, with its map. Bias and map of the reference go along; so do post-head rule and final
norm in GGUF, while a bare safetensors file takes them from the reference it is audited against.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from audit import __version__
from audit.errors import BadUsageError, UnsupportedFormatError
from audit.files import Container, open_container
from audit.forge.cuts import Cut
from audit.forge.floats import as_floats, simulation_of
from audit.forge.recipes import RECIPES, Job, Recipe
from audit.forge.trim import map_tensors
from audit.forge.writers import Stored, stored, write_gguf, write_safetensors
from audit.heads.head import Head

_HEAD = {".gguf": "output", ".safetensors": "lm_head"}
"""Suffix of the file -> stem of the head's tensors."""


def forge_projection(
    ref: Head,
    cut: Cut,
    out: Path,
    *,
    second_moment: Tensor | None = None,
    seed: int = 0,
    packed: bool = False,
) -> Path:
    """Write the candidate that `cut` makes of `ref`.

    Args:
        ref: a head without a block of its own, and not itself factorised or narrowed.
        cut: which.
        out: a .gguf or .safetensors file, as the cut allows; see the module.
        second_moment: E[x x^T] of the states that enter the head, [hidden, hidden]; needed by a
            calibrated low rank.
        seed: of noise.
        packed: write FP8 as codes and scales instead of as the floats they stand for. Not every
            loader reads those.

    Returns:
        `out`.

    Raises:
        BadUsageError: a cut that a projection can not have, or a file type that can not hold it.
        AuditError: as the cut itself: see `quantize`, `lowrank`, `trim`.
    """
    is_gguf = _check(ref, cut, out)
    job = Job(ref, cut, _HEAD[out.suffix.lower()], is_gguf, second_moment, seed, packed)
    result = RECIPES[cut.kind](job)
    tensors = result.tensors + companions(job, result)
    notes = list(result.notes)
    if not is_gguf:
        tensors, changed = as_floats(tensors)
        if note := simulation_of(cut, job.floats, changed, packed):
            notes.append(note)
    made = _made(job, notes)
    if not is_gguf:
        return write_safetensors(out, tensors, made=made, metadata=_source_metadata(ref))
    return write_gguf(out, tensors, source=_source(ref), keys=rule_keys(ref), made=made)


def suffix_for(cut: Cut) -> str:
    """The file type that a projection under this cut is written to when nobody says otherwise."""
    return ".gguf" if cut.kind in ("quantize", "trim") else ".safetensors"


def _check(ref: Head, cut: Cut, out: Path) -> bool:
    """Refuse what can not be done; True for GGUF."""
    suffix = out.suffix.lower()
    if suffix not in _HEAD:
        raise BadUsageError(
            f"a head is written to .gguf or .safetensors, not to {out.name}",
            hint=f"name it {out.stem}{suffix_for(cut)}",
            where=out,
        )
    check_projection(ref, cut)
    check_kept(cut, out)
    return suffix == ".gguf"


def check_kept(cut: Cut, out: Path) -> None:
    """Refuse a GGUF file for a projection that it has no place for."""
    if out.suffix.lower() == ".gguf" and cut.kind in ("fp8", "lowrank"):
        raise BadUsageError(
            f"{cut.title} can not be kept in a .gguf file",
            hint=f"name it {out.stem}.safetensors",
            where=out,
        )


def check_projection(ref: Head, cut: Cut) -> None:
    """Refuse a projection that is itself a cut, and a cut that no projection can have."""
    if ref.adapt is not None:
        raise UnsupportedFormatError(
            f"{ref.record.name} is itself a cut: its rows do not read the states as they are",
            hint="forge from the full head",
            where=ref.record.path,
        )
    if cut.kind == "prune":
        raise BadUsageError(
            "pruning takes channels from an MLP, and a projection has none",
            hint="prune the draft block, or cut the projection with lowrank or trim",
        )


def companions(job: Job, result: Recipe) -> list[Stored]:
    """What goes along with the rows: bias, map, and in GGUF the final norm."""
    ref, ids, found = job.ref, result.ids, []
    if ref.bias is not None:
        bias = ref.bias[torch.searchsorted(ref.ids, ids)]
        found.append(stored(f"{result.bias_stem or job.stem}.bias", bias.float()))
    if len(ids) < ref.vocabulary:
        found += map_tensors(ids, ref.vocabulary, is_gguf=job.is_gguf, consumer=job.consumer)
    if job.is_gguf and ref.norm is not None:
        found.append(stored("output_norm.weight", ref.norm.gain.float()))
        if ref.norm.bias is not None:
            found.append(stored("output_norm.bias", ref.norm.bias.float()))
    return found


def rule_keys(ref: Head) -> dict[str, Any]:
    """The reference's rules as keys of our own architecture, for a reference without GGUF keys."""
    keys: dict[str, Any] = {".embedding_length": ref.hidden_size, ".vocab_size": ref.vocabulary}
    if ref.post.scale != 1.0:
        keys[".logit_scale"] = float(ref.post.scale)
    if ref.post.softcap is not None:
        keys[".final_logit_softcapping"] = float(ref.post.softcap)
    if ref.norm is not None:
        kind = "layer_norm_epsilon" if ref.norm.bias is not None else "layer_norm_rms_epsilon"
        keys[f".attention.{kind}"] = float(ref.norm.eps)
    return keys


def _source(ref: Head) -> Container | None:
    """The reference's file, whose key-values a GGUF candidate keeps."""
    return open_container(Path(ref.record.path)) if ref.record.container == "gguf" else None


def _source_metadata(ref: Head) -> dict[str, str]:
    """What the reference's safetensors file says of itself; nothing for a head made in memory."""
    path = Path(ref.record.path)
    if ref.record.container != "safetensors" or not path.exists():
        return {}
    return {key: str(value) for key, value in open_container(path).metadata.items()}


def _made(job: Job, notes: list[str]) -> dict[str, Any]:
    """How the file was made. No path and no time: the same cut gives the same bytes."""
    return {
        "cut": str(job.cut) if job.cut.kind != "trim" else job.cut.title,
        "family": job.cut.family,
        "head": "lm",
        "notes": notes,
        "program": f"head-audit {__version__}",
        "reference": job.ref.record.name,
        "reference_sha256": job.ref.record.sha256,
        "seed": job.seed if job.cut.kind == "noise" else None,
        "simulated": any(note.startswith("simulated") for note in notes),
    }
