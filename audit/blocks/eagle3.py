"""EAGLE-3 heads: three states of the verifier fused by `fc`, a layer that reads them beside the
next token's embedding, a norm, and usually a projection of their own.

Row t reads the verifier's states at t and the embedding of token t + 1, and proposes token t + 2.
Names: `midlayer.*` (SafeAILab, SpecForge) or `layers.0.*` (speculators, ModelOpt). The attention
and the MLP are transformers' own for the draft's configuration (Llama unless it says Qwen3), with
q, k and v reading both halves (`eagle3_layers`). Positions count from 0, as in training.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from audit.blocks.architecture import config_record, embedding_scale, empty_decoder, text_config
from audit.blocks.assembly import Origin, assemble, find_embedding
from audit.blocks.block import Block
from audit.blocks.eagle3_draft import Draft, read_draft
from audit.blocks.eagle3_layers import EagleBlock
from audit.blocks.limits import check_offset
from audit.blocks.reads import LayerStates, other_count
from audit.blocks.sources import canonical, safetensors_source
from audit.blocks.weights import fill
from audit.errors import MismatchError, NotFoundError, UnsupportedFormatError
from audit.files import Container
from audit.heads.aliases import names_of
from audit.heads.packed import weight_names
from audit.heads.stored import matrix_shape

_STATE_NORM = "hidden_norm.weight"
_STYLES = tuple(
    name.removesuffix(_STATE_NORM) for name in names_of("eagle3_state_norm", "safetensors")
)


def find_eagle3(container: Container) -> str | None:
    """Prefix of the layer's tensors, `midlayer.` or `layers.0.`; None when there is none."""
    if container.format == "gguf":
        return "blk.0." if container.metadata.get("general.architecture") == "eagle3" else None
    known = weight_names(container, canonical)
    if "fc.weight" not in known:
        return None
    return next((style for style in _STYLES if f"{style}{_STATE_NORM}" in known), None)


def build_eagle3(origin: Origin) -> Block:
    """The EAGLE-3 head in `origin`.

    Raises:
        NotFoundError: HEAD_ABSENT, no configuration, or a tensor is missing.
        AuditError: shapes that do not fit, or a form that is not read.
    """
    container = origin.container
    style = find_eagle3(container)
    if style is None:
        raise absent_eagle3(container)
    known = weight_names(container, canonical)
    _refuse_other_forms(container, known)
    draft = read_draft(origin, known)
    config = text_config(draft.layer, container.path)
    check_offset(origin.options.position_offset, config, container.path)
    model = empty_decoder(config, container.path)
    embedding, embedded = find_embedding(origin, (), embedding_scale(model))
    count, target = _fused(container, known["fc.weight"], draft)
    widths = (count, target, embedding.rows.columns)
    offset = origin.options.position_offset or 0
    module = EagleBlock(model, draft, widths, "fc.bias" in known, offset)
    filled = fill(module, _wanted(module, style), safetensors_source(container))
    layers = draft.aux_layers
    shown = "not stated: the trace's, ascending" if layers is None else list(layers)
    return assemble(
        "eagle3",
        2,
        origin,
        module,
        filled,
        hidden_size=int(config.hidden_size),
        reads=LayerStates(layers, count, target),
        embedding=embedding,
        conventions={
            "states_entering_layers": shown,
            "concat_order": "embedding_first",
            "norm_before_residual": draft.norm_before_residual,
            "position_offset": offset,
        },
        config=config_record(config),
        notes=(f"layout: {style}*", f"layers read: {draft.source}", embedded),
    )


def scraps_of_eagle3(container: Container) -> tuple[list[str], list[str]]:
    """Of a head that `find_eagle3` does not find: names that are here, names that lack."""
    known = {canonical(name) for name in container.entries}
    marks = {"fc.weight", *(f"{style}{_STATE_NORM}" for style in _STYLES)}
    here = sorted(name for name in known if name in marks or name.startswith(_STYLES[0]))
    style = _STYLES[1] if f"{_STYLES[1]}{_STATE_NORM}" in known else _STYLES[0]
    return here, [n for n in ("fc.weight", f"{style}{_STATE_NORM}") if n not in known]


def absent_eagle3(container: Container) -> NotFoundError:
    """Why there is no EAGLE-3 head to read."""
    return NotFoundError(
        "no EAGLE-3 head here: looked for fc.weight with midlayer.hidden_norm or "
        "layers.0.hidden_norm",
        hint="`audit inspect FILE` lists the heads of a file",
        where=container.path,
        code="HEAD_ABSENT",
    )


def _refuse_other_forms(container: Container, known: Mapping[str, str]) -> None:
    """Name what would otherwise run and be wrong."""
    odd = None
    if container.format == "gguf":
        odd = "in GGUF"
    elif any(name.startswith("layers.1.") for name in known):
        odd = "of several layers"
    elif "mask_hidden" in known:
        odd = "of the parallel kind (mask_hidden)"
    if odd:
        raise UnsupportedFormatError(
            f"EAGLE-3 heads {odd} are not read",
            hint="give the safetensors file of a one-layer EAGLE-3 head, or a proposals file",
            where=container.path,
        )


def _fused(container: Container, fc: str, draft: Draft) -> tuple[int, int]:
    """How many states `fc` reads, and how wide each is."""
    shape = matrix_shape(container, fc)
    hidden = int(draft.layer["hidden_size"])
    count = len(draft.aux_layers) if draft.aux_layers else 3
    if len(shape) == 2 and shape[0] == hidden:
        target = draft.target_hidden_size or shape[1] // count
        if target and shape[1] == count * target:
            return count, target
        if target and shape[1] % target == 0:
            raise other_count(shape[1] // target, target, count, container.path)
    raise MismatchError(
        f"{fc} has shape {list(shape)} where {count} states and a draft of width {hidden} need "
        f"[{hidden}, {count} * {draft.target_hidden_size or 'the width of a state'}]",
        hint="the head and the configuration beside it are of different models",
        where=container.path,
        code="BLOCK_SHAPE",
    )


def _wanted(module: nn.Module, style: str) -> dict[str, str]:
    stem = "decoder.model."
    return {
        key: key.removeprefix(stem).replace("layers.0.", style, 1)
        if key.startswith(f"{stem}layers.0.")
        else key.removeprefix(stem)
        for key in module.state_dict()
    }
