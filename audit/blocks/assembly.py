"""What every kind of block needs around its layers: configuration, embedding, hash."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from audit.blocks.architecture import check_runs
from audit.blocks.block import Block
from audit.blocks.gguf_config import gguf_config
from audit.blocks.gguf_names import gguf_source
from audit.blocks.options import BlockOptions
from audit.blocks.reads import Embedding, LayerStates, Reads
from audit.blocks.sources import Source, safetensors_source
from audit.blocks.weights import Filled
from audit.errors import NotFoundError
from audit.files import Container
from audit.heads import names
from audit.heads.head import FinalNorm
from audit.heads.identity import head_hash
from audit.heads.packed import weight_names
from audit.heads.stored import stored_matrix, stored_tensors


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """Where a block comes from, and what may stand in for what its file lacks."""

    container: Container
    options: BlockOptions
    base: Block | None = None
    """The reference's block, when this is a candidate's."""
    norm: FinalNorm | None = None
    """The verifier's final norm, where a file at hand holds it."""

    def containers(self) -> list[Container]:
        """Where to look for what a draft shares with its target, nearest first."""
        more = [self.options.verifier, self.base.container if self.base else None]
        return [self.container, *(found for found in more if found is not None)]


def config_fields(origin: Origin) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The model's configuration as Hugging Face writes it, and a note when it is another file's.

    Raises:
        NotFoundError: no file at hand has one.
        AuditError: see `gguf_layout.gguf_config`.
    """
    for place in origin.containers():
        if place.format == "gguf":
            fields: Mapping[str, Any] | None = gguf_config(place)
        else:
            fields = place.config
        if fields:
            borrowed = place is not origin.container
            note = f"no configuration with this file: that of {place.path.name} is used"
            return dict(fields), (note,) if borrowed else ()
    raise NotFoundError(
        "a draft block needs the configuration of its model, and there is none",
        hint="put the model's config.json beside the file",
        where=origin.container.path,
    )


def weights_of(container: Container, fields: Mapping[str, Any]) -> Source:
    """Where this container keeps the weights of Hugging Face names."""
    if container.format == "gguf":
        return gguf_source(container, fields)
    return safetensors_source(container)


def find_embedding(origin: Origin, own: Iterable[str], scale: float) -> tuple[Embedding, str]:
    """The draft's input embedding: its own if the file has one, else the verifier's.

    Args:
        own: names, as in the container, of an embedding that belongs to the draft alone.

    Returns:
        The embedding, and a note on where it came from.

    Raises:
        NotFoundError: EMBEDDING_ABSENT, no file at hand holds one.
    """
    for place in origin.containers():
        shared = names.EMBEDDING[place.format]
        known = weight_names(place, names.plain)
        wanted = [*own, *shared] if place is origin.container else shared
        found = next((known[name] for name in wanted if name in known), None)
        if found is not None:
            matrix = stored_matrix(place, found)
            raw = [("embedding", *part) for part in matrix.raw]
            digest = head_hash(raw, {"scale": scale, "tensor_scale": matrix.rows.scale})
            whose = "" if place is origin.container else f" of {place.path.name}"
            return Embedding(matrix.rows, scale, digest), f"token embedding: {found}{whose}"
    raise NotFoundError(
        "the draft has no token embedding of its own and no target to take it from",
        hint="name the target model with --verifier",
        where=origin.container.path,
        code="EMBEDDING_ABSENT",
    )


def assemble(
    name: str,
    lookahead: int,
    origin: Origin,
    modules: nn.Module,
    filled: Filled,
    *,
    hidden_size: int,
    reads: Reads,
    embedding: Embedding | None = None,
    conventions: Mapping[str, Any],
    config: Mapping[str, Any],
    notes: tuple[str, ...],
) -> Block:
    """The block with its hash, which covers tensors, embedding, configuration and conventions."""
    container = origin.container
    modules.eval().requires_grad_(False)
    entering = reads.width * (reads.count if isinstance(reads, LayerStates) else 1)
    following = embedding.rows.columns if embedding else None
    check_runs(modules, entering, following, container.path)
    raw = [
        (key, *part)
        for key, stored in sorted(filled.tensors.items())
        for part in stored_tensors(container, stored).values()
    ]
    rules = {
        "lookahead": lookahead,
        "conventions": dict(conventions),
        "config": dict(config),
        "embedding": embedding.sha256 if embedding else None,
    }
    said = tuple(f"{key.replace('_', ' ')}: {value}" for key, value in conventions.items())
    return Block(
        name=name,
        lookahead=lookahead,
        hidden_size=hidden_size,
        modules=modules,
        tensors=filled.tensors,
        names=filled.names,
        container=container,
        reads=reads,
        embedding=embedding,
        conventions=conventions,
        config=config,
        notes=(*said, *notes, *filled.notes),
        sha256=head_hash(raw, rules),
    )
