"""MTP heads: enorm, hnorm, one projection of both halves, a decoder layer, a norm of their own.

Row t reads the verifier's state at t and the embedding of token t + 1, and proposes token t + 2.
The parts are those of transformers' `MtpLayer` (modeling_layers.py); the layer is run by the
model's own decoder, so that masks and rotary angles are the model's. Only the first MTP layer of
a file is built: it is the one that reads the verifier.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from audit.blocks.architecture import (
    Decoder,
    config_record,
    embedding_scale,
    empty_decoder,
    empty_linear,
    norm_like,
    text_config,
)
from audit.blocks.assembly import Origin, assemble, config_fields, find_embedding, weights_of
from audit.blocks.block import Block
from audit.blocks.limits import check_offset
from audit.blocks.mtp_layouts import Layout, concat_order, declared_mtp, find_mtp
from audit.blocks.reads import Embedding, HiddenState
from audit.blocks.weights import fill
from audit.errors import MismatchError, NotFoundError
from audit.files import Container
from audit.files.depth import layers_held
from audit.heads.aliases import looked_for


class MtpBlock(nn.Module):
    """The layers of one MTP head."""

    def __init__(self, model: nn.Module, config: Any, hidden_first: bool, offset: int) -> None:
        super().__init__()
        self.hidden_first = hidden_first
        width, norm = int(config.hidden_size), model.get_submodule("norm")
        self.enorm, self.hnorm = norm_like(norm, width), norm_like(norm, width)
        self.eh_proj = empty_linear(2 * width, width)
        self.decoder = Decoder(model, [0], offset)

    def forward(self, states: Tensor, embeddings: Tensor | None = None) -> Tensor:
        """States [B, T, hidden] and embeddings of the tokens after them -> [B, T, hidden]."""
        assert embeddings is not None
        halves = [self.enorm(embeddings), self.hnorm(states)]
        if self.hidden_first:
            halves.reverse()
        left: Tensor = self.decoder(self.eh_proj(torch.cat(halves, dim=-1)))
        return left


def build_mtp(origin: Origin) -> Block:
    """The MTP head in `origin`.

    Raises:
        NotFoundError: MTP_DECLARED_ABSENT or HEAD_ABSENT.
        AuditError: its tensors do not fit, its concat order is not known, or transformers does not
            know its architecture.
    """
    container, options = origin.container, origin.options
    found = find_mtp(container)
    if found is None:
        raise absent_mtp(container)
    fields, notes = config_fields(origin)
    whole = text_config(fields, container.path, layers_held(*origin.containers()))
    check_offset(options.position_offset, whole, container.path)
    config = _mtp_config(whole)
    order = options.concat or concat_order(found.layout, fields, container)
    offset = found.layout.offset if options.position_offset is None else options.position_offset
    stage = options.stage or "post_norm"
    model = empty_decoder(config, container.path)
    scale = embedding_scale(model)
    module = MtpBlock(model, config, order == "hidden_first", offset)
    source = weights_of(container, fields | {"num_hidden_layers": int(whole.num_hidden_layers)})
    filled = fill(module, _wanted(module, found.layout), source)
    embedding, embedded = find_embedding(origin, found.embedding, scale)
    width = int(config.hidden_size)
    _check_embedding(embedding, width, container.path)
    return assemble(
        "mtp",
        2,
        origin,
        module,
        filled,
        hidden_size=width,
        reads=HiddenState(width, stage, origin.norm),
        embedding=embedding,
        conventions={"concat_order": order, "state_stage": stage, "position_offset": offset},
        config=config_record(config),
        notes=(f"layout: {found.layout.name}", embedded, _gains(module, width), *notes),
    )


def _gains(module: MtpBlock, width: int) -> str:
    """Mean gain of each norm as applied: near 0 or 2, a (1 + w) norm was misread."""
    norms = {
        "embedding": module.enorm,
        "state": module.hnorm,
        "final": module.decoder.get_submodule("model.norm"),
    }
    # The root mean square of ones is one, so a norm of them is its gain.
    means = {name: float(norm(torch.ones(1, width)).mean()) for name, norm in norms.items()}
    return "mean norm gains: " + ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())


def _check_embedding(embedding: Embedding, width: int, where: Path) -> None:
    if embedding.rows.columns != width:
        raise MismatchError(
            f"the token embedding is {embedding.rows.columns} wide, the MTP head reads {width}",
            hint="the embedding is another model's: name the head's own target with --verifier",
            where=where,
            code="BLOCK_SHAPE",
        )


def absent_mtp(container: Container) -> NotFoundError:
    """Why `--head mtp` can not be read from a container without MTP tensors."""
    if declared := declared_mtp(container):
        return NotFoundError(
            f"the configuration declares {declared} MTP layer(s), and the file holds none of "
            "their tensors",
            hint="many tools drop them on saving: export the model again with them, or give the "
            "file that holds them",
            where=container.path,
            code="MTP_DECLARED_ABSENT",
        )
    return NotFoundError(
        f"no MTP head here: looked for {', '.join(looked_for('mtp', container.format))}",
        hint="`audit inspect FILE` lists the heads of a file",
        where=container.path,
        code="HEAD_ABSENT",
    )


def _mtp_config(config: Any) -> Any:
    """The configuration of the MTP layer alone, its layer at index 0.

    As transformers' `get_mtp_config`, for models too that it has no fields for: their MTP layer
    has full attention and, where the model has experts, experts.
    """
    ours = copy.deepcopy(config)
    given = {
        "layer_types": getattr(config, "mtp_layer_types", None) or ["full_attention"],
        "mlp_layer_types": getattr(config, "mtp_mlp_layer_types", None) or ["sparse"],
    }
    for key, value in given.items():
        if getattr(config, key, None) is not None:
            setattr(ours, key, list(value)[:1])
    if hasattr(config, "first_k_dense_replace"):
        ours.first_k_dense_replace = 0
    ours.num_hidden_layers = 1
    return ours


def _wanted(module: nn.Module, layout: Layout) -> dict[str, str]:
    """Parameter of the module -> Hugging Face name."""
    wanted = {}
    for key in module.state_dict():
        if key.startswith("decoder.model.layers.0."):
            wanted[key] = layout.layer + key.removeprefix("decoder.model.layers.0.")
        elif key.startswith("decoder.model.norm."):
            wanted[key] = layout.parts["norm"] + key.removeprefix("decoder.model.norm")
        else:
            part, _, leaf = key.rpartition(".")
            wanted[key] = f"{layout.parts[part]}.{leaf}"
    return wanted
