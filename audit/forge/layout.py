"""Which tensors make up the file of a draft head under a cut, and under which names.

See `files` for what goes where. Leaves out the file itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from audit.blocks import BlockHead
from audit.blocks.medusa import find_medusa
from audit.blocks.mtp_layouts import find_mtp
from audit.errors import BadUsageError
from audit.files import Container, open_container
from audit.forge.blocks import mlp_width, sidecar
from audit.forge.heads import CutHead
from audit.forge.projection import companions
from audit.forge.writers import Stored, copied
from audit.heads import names


def block_tensors(ref: BlockHead, made: CutHead) -> list[Stored]:
    """The block whole: cut tensors, and the others byte for byte."""
    container, found = ref.block.container, []
    for name in dict.fromkeys(ref.block.tensors.values()):
        if name in made.matrices:
            found += made.matrices[name].stored()
        else:
            found += _copies(container, [name, sidecar(name)])
    return found


def projection_tensors(ref: BlockHead, made: CutHead, kind: str) -> list[Stored]:
    """The cut projection under the name that readers look for; in GGUF also one that was not."""
    record = ref.projection
    if made.job is None or made.recipe is None:
        place = open_container(Path(record.path))
        if kind != "gguf" or place.format != "gguf":
            return []
        biases = [name.removesuffix(".weight") + ".bias" for name in record.tensors]
        wanted = [*record.tensors, *map(sidecar, record.tensors), *biases, *names.MAPS]
        return _copies(place, wanted)
    stem = _stem(ref, kind) if len(record.tensors) == 1 else None
    stem = made.job.stem if made.job.cut.kind == "lowrank" else stem or _usual(kind)
    job = replace(made.job, stem=stem, is_gguf=kind == "gguf")
    tensors = [
        replace(tensor, name=stem + tensor.name.removeprefix(made.job.stem))
        for tensor in made.recipe.tensors
    ]
    recipe = replace(made.recipe, tensors=tensors)
    if job.is_gguf and job.cut.kind == "lowrank":
        raise BadUsageError(
            "GGUF has no place for a projection in two factors",
            hint="name the file .safetensors: the projection alone is then written there",
        )
    return [*tensors, *companions(job, recipe)]


def _stem(ref: BlockHead, kind: str) -> str | None:
    """The projection's own stem, if readers find it under that name and nothing else is there."""
    [name] = ref.projection.tensors
    mtp = find_mtp(ref.block.container)
    own = {mtp.head if mtp else None}
    own |= {found.head for found in find_medusa(ref.block.container).values()}
    usual = names.plain(name) in names.LM_HEAD[ref.block.container.format]
    same = ref.projection.container == kind
    return name.removesuffix(".weight") if same and (name in own or usual) else None


def _usual(kind: str) -> str:
    return names.LM_HEAD[kind][0].removesuffix(".weight")


def runtime_tensors(ref: BlockHead, made: CutHead) -> list[Stored]:
    """What a GGUF block is run with: its token embedding, and the verifier's final norm."""
    container = ref.block.container
    wanted = ["output_norm.weight", "output_norm.bias"]
    if ref.block.embedding is not None:
        mtp = find_mtp(container)
        wanted += [*(mtp.embedding if mtp else ()), *names.EMBEDDING["gguf"]]
    return _copies(container, [*wanted, *map(sidecar, wanted)])


def changed_keys(ref: BlockHead, made: CutHead, tensors: Iterable[Stored]) -> dict[str, Any]:
    """GGUF key-values that the cut made wrong, and the size of a vocabulary that is not there."""
    metadata = ref.block.container.metadata
    arch = metadata.get("general.architecture")
    keys: dict[str, Any] = {}
    if not any(tensor.name == "token_embd.weight" for tensor in tensors):
        keys[f"{arch}.vocab_size"] = ref.vocabulary
    width = mlp_width(made.matrices)
    if width is not None and f"{arch}.feed_forward_length" in metadata:
        keys[f"{arch}.feed_forward_length"] = width
    return keys


def _copies(container: Container, wanted: Iterable[str]) -> list[Stored]:
    return [copied(container, name) for name in wanted if name in container.entries]


def distinct(tensors: Iterable[Stored]) -> list[Stored]:
    """Each name once; of several, the first."""
    found: dict[str, Stored] = {}
    for tensor in tensors:
        found.setdefault(tensor.name, tensor)
    return list(found.values())
