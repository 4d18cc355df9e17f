"""A draft block under a cut, ready to run: the weights of its file, before there is a file.

Cuts are made on the tensors as the reference's file stores them, because that is what is written;
what a GGUF converter changed is undone after the cut, by the code that undoes it on reading.
Quantization, FP8 and noise reach every matrix but those that all tools leave alone (convolutions
and the routers of experts); pruning and low rank reach the gated MLPs.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from audit.blocks import Block
from audit.blocks.assembly import weights_of
from audit.blocks.gguf_config import gguf_config
from audit.blocks.sources import Source, read_weight
from audit.blocks.sources import Stored as Found
from audit.blocks.weights import Filled, fill
from audit.errors import BadUsageError
from audit.files import Container
from audit.files.encodings import ENCODINGS
from audit.forge.cuts import Cut
from audit.forge.matrices import CutMatrix, cut_matrices, find_mlps
from audit.forge.memory import MemoryContainer, with_tensors
from audit.forge.quantize import check_encodable
from audit.heads.identity import head_hash
from audit.heads.packed import packed_matrix

_LEFT_ALONE = re.compile(r"conv1d|mlp\.gate\.weight|shared_expert_gate")


def cut_block(
    block: Block, cut: Cut, *, moments: Mapping[str, Tensor] | None = None, seed: int = 0
) -> tuple[Block, dict[str, CutMatrix]]:
    """The block that `cut` makes of `block`, which is left as it is.

    Args:
        cut: any but `trim`.
        moments: of `calibration.block_moments`, for a calibrated cut.
        seed: of noise.

    Returns:
        The block with a hash and a size of its own, and its cut tensors under the names of the
        reference's file.

    Raises:
        AuditError: as `matrices.cut_matrices`; BadUsageError when nothing here can be cut so.
    """
    wanted, notes = _targets(block, cut)
    weights = {name: read_weight(block.container, stored) for name, stored in wanted.items()}
    encodings = {block.container.entries[stored].encoding for stored in wanted.values()}
    floats = "F32" if encodings == {"F32"} else "BF16"
    made = cut_matrices(weights, cut, moments=moments, seed=seed, floats=floats)
    by_stored = {wanted[name]: replace(m, name=wanted[name]) for name, m in made.items()}
    container = _container(block.container, by_stored)
    module = copy.deepcopy(block.modules)
    filled = fill(module, _parameters(block), _source(container, by_stored))
    module.eval().requires_grad_(False)
    return _rebuilt(block, module, filled, container, by_stored, notes), by_stored


def sidecar(name: str) -> str:
    """GGUF's name for the factor of a tensor."""
    return name.removesuffix(".weight") + ".scale"


def mlp_width(cut: Mapping[str, CutMatrix]) -> int | None:
    """The one width of all gated MLPs that were cut; None where they differ."""
    ups = (".up_proj.weight", ".ffn_up.weight")
    widths = {matrix.shape[0] for name, matrix in cut.items() if name.endswith(ups)}
    return widths.pop() if len(widths) == 1 else None


def _targets(block: Block, cut: Cut) -> tuple[dict[str, str], tuple[str, ...]]:
    """Hugging Face name -> stored name of what is to be cut, and a note on what does not fit."""
    entries = block.container.entries
    _refuse_packed(block)
    stored = {name: block.tensors[key] for key, name in block.names.items()}
    matrices = {
        name: found
        for name, found in stored.items()
        if len(entries[found].shape) > 1 and not _LEFT_ALONE.search(name)
    }
    if cut.kind in ("prune", "lowrank"):
        mlps = [name for mlp in find_mlps(matrices) for name in (mlp.gate, mlp.up, mlp.down)]
        return {name: matrices[name] for name in mlps} or matrices, ()
    if not matrices:
        raise BadUsageError(f"{cut.title}: {block.name} has no matrix that could be cut")
    if cut.kind != "quantize":
        return matrices, ()
    encoding = str(cut.encoding)
    check_encodable(encoding)
    columns = {name: entries[found].shape[-1] for name, found in matrices.items()}
    fitting = {n: s for n, s in matrices.items() if columns[n] % ENCODINGS[encoding].block == 0}
    if not fitting:
        check_encodable(encoding, next(iter(columns.values())))
    odd = [name for name in matrices if name not in fitting]
    note = f"left as they are, their rows are no whole blocks of {encoding}: {', '.join(odd)}"
    return fitting, (note,) if odd else ()


def _refuse_packed(block: Block) -> None:
    """Cuts are made of plain numbers: a packed block would be cut on top of its own rounding."""
    for name in block.tensors.values():
        if packed_matrix(block.container, name):
            raise BadUsageError(
                f"{name} of the reference is packed, and a block that is packed is not cut",
                hint="forge from the model's bfloat16 weights",
                where=block.container.path,
            )


def _container(base: Container, cut: Mapping[str, CutMatrix]) -> MemoryContainer:
    tensors = [tensor for matrix in cut.values() for tensor in matrix.stored()]
    return with_tensors(base, tensors, [sidecar(name) for name in cut])


def _source(container: MemoryContainer, cut: Mapping[str, CutMatrix]) -> Source:
    fields = gguf_config(container) if container.format == "gguf" else {}
    return _CutSource(container, weights_of(container, fields).find, cut)


@dataclass(frozen=True, slots=True, eq=False)
class _CutSource(Source):
    """Cut tensors by their own values: those of ggml's types also where the file is no GGUF."""

    cut: Mapping[str, CutMatrix]

    def read(self, stored: Found) -> Tensor:
        made = self.cut.get(stored.name)
        return Source.read(self, stored) if made is None else stored.convert(made.values())


def _parameters(block: Block) -> dict[str, str]:
    """Parameter -> Hugging Face name, with one name for the experts that make up one parameter."""
    found = {}
    for key in block.modules.state_dict():
        name = block.names.get(key)
        if name is None:
            part = next(name for sub, name in block.names.items() if sub.startswith(f"{key}."))
            name = f"{part.partition('.experts.')[0]}.experts.{key.rpartition('.')[2]}"
        found[key] = name
    return found


def _rebuilt(
    block: Block,
    module: nn.Module,
    filled: Filled,
    container: MemoryContainer,
    cut: Mapping[str, CutMatrix],
    notes: tuple[str, ...],
) -> Block:
    """The block around cut modules; its hash is the one that `blocks.assembly` gives its file."""
    config: dict[str, Any] = dict(block.config)
    if container.format == "gguf" and "intermediate_size" in config:
        config["intermediate_size"] = mlp_width(cut) or config["intermediate_size"]
    raw = [
        (key, container.entries[stored].encoding, container.bytes_of(stored))
        for key, stored in sorted(filled.tensors.items())
    ]
    rules = {
        "lookahead": block.lookahead,
        "conventions": dict(block.conventions),
        "config": config,
        "embedding": block.embedding.sha256 if block.embedding else None,
    }
    return replace(
        block,
        modules=module,
        tensors=filled.tensors,
        names=filled.names,
        container=container,
        config=config,
        notes=(*block.notes, *filled.notes, *notes),
        sha256=head_hash(raw, rules),
    )
