"""Which layout an MTP head's names show, and what it implies. No tensors are read here.

The names are data in `audit.heads.aliases`. Sources: `formats.md` 1.3 and 1.4, transformers'
conversion mapping of `MtpModel`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from audit.blocks.options import ConcatOrder
from audit.blocks.sources import canonical
from audit.errors import BadUsageError
from audit.files import Container
from audit.heads.aliases import spelled
from audit.heads.packed import weight_names

DECLARED = ("mtp_num_hidden_layers", "num_nextn_predict_layers", "num_mtp_layers")
_NEXTN = re.compile(r"blk\.(\d+)\.nextn\.eh_proj\.(?:weight|ALinear\.weight)$")
_APPENDED = re.compile(r"layers\.(\d+)\.(?:eh_proj|enorm|hnorm)\.weight$")
_OWN = re.compile(r"mtp\.|mtp_layers\.|layers\.\d+\.(?:eh_proj|enorm|hnorm)\.|blk\.\d+\.nextn\.")
_NUMBERED = re.compile(r"(?:layers|blk)\.\d+\.")
_NOT_THE_BLOCK = re.compile(r"(?:embed_tokens|shared_head\.head|shared_head_head|lm_head)\.weight$")
_GGUF_PARTS = ("eh_proj", "enorm", "hnorm")
_ROLES = {
    "eh_proj": "mtp_projection", "enorm": "mtp_embedding_norm", "hnorm": "mtp_state_norm",
    "norm": "mtp_final_norm", "embedding": "mtp_embedding", "head": "mtp_head",
}  # fmt: skip
"""Part of a layout -> its role in the table of names."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Hugging Face names of one family of MTP heads, and what the names imply."""

    name: str
    parts: Mapping[str, str]
    """eh_proj, enorm, hnorm and norm -> stems."""
    layer: str
    """Prefix of the decoder layer's tensors."""
    order: ConcatOrder | None
    """None: two families share the names and differ in it."""
    embedding: str
    head: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class FoundMtp:
    """An MTP head in a container."""

    layout: Layout
    head: str | None
    """Tensor of its own projection, preferred over the trunk's."""
    embedding: tuple[str, ...]


def find_mtp(container: Container) -> FoundMtp | None:
    """The MTP head that this container's tensor names show; None when there is none."""
    if container.format == "gguf":
        blocks = [int(m[1]) for name in container.entries if (m := _NEXTN.match(name))]
        if not blocks:
            return None
        stem = f"blk.{min(blocks)}.nextn"
        head = f"{stem}.shared_head_head.weight"
        own = head if head in container.entries else None
        return FoundMtp(qwen_layout(), own, (f"{stem}.embed_tokens.weight",))
    known = weight_names(container, canonical)
    for layout in layouts_for(known):
        stem = layout.parts["eh_proj"]
        if f"{stem}.weight" in known or f"{stem}.ALinear.weight" in known:
            own = known.get(layout.head)
            embedding = known.get(layout.embedding)
            return FoundMtp(layout, own, (embedding,) if embedding else ())
    return None


def is_mtp_name(name: str) -> bool:
    """Whether a tensor belongs to an MTP head's block, of whatever layout."""
    short = canonical(name)
    return bool(_OWN.match(short)) and not _NOT_THE_BLOCK.search(short)


def mtp_tensors(container: Container) -> list[str]:
    """Everything in the blocks of MTP heads, in the file's order: their layers' tensors too."""
    own = [name for name in container.entries if is_mtp_name(name)]
    numbered = (_NUMBERED.match(canonical(name)) for name in own)
    blocks = tuple({match[0] for match in numbered if match})
    return [
        name
        for name in container.entries
        if is_mtp_name(name) or (blocks and canonical(name).startswith(blocks))
    ]


def scraps_of_mtp(container: Container) -> tuple[list[str], list[str]]:
    """Of a head that `find_mtp` does not find: tensors that are here, names that lack.

    Nothing lacks where the tensors are of no layout that is known.
    """
    known = {canonical(name): name for name in container.entries}
    here = [name for name in known if is_mtp_name(name)]
    if container.format == "gguf":
        stems = sorted({name.partition(".nextn.")[0] for name in here})
        wanted = [f"{stem}.nextn.{part}.weight" for stem in stems[:1] for part in _GGUF_PARTS]
        return here, [name for name in wanted if name not in known]
    best = max(layouts_for(known), key=lambda layout: len(_within(layout, here)))
    if not _within(best, here):
        return here, []
    layer = [] if any(name.startswith(best.layer) for name in here) else [f"{best.layer}*"]
    wanted = [f"{stem}.weight" for stem in best.parts.values()]
    return here, [name for name in wanted if name not in known] + layer


def _within(layout: Layout, names: Iterable[str]) -> list[str]:
    """The names that this layout's parts and layer have."""
    stems = (layout.layer, *(f"{stem}." for stem in layout.parts.values()))
    return [name for name in names if name.startswith(stems)]


def declared_mtp(container: Container) -> int | None:
    """Number of MTP layers the configuration declares; None when it does not speak of them."""
    if container.format == "gguf":
        arch = container.metadata.get("general.architecture")
        value = container.metadata.get(f"{arch}.nextn_predict_layers")
        return int(value) if value is not None else None
    config = container.config or {}
    text = config.get("text_config")
    flat = {**config, **text} if isinstance(text, Mapping) else config
    values = [flat[key] for key in DECLARED if isinstance(flat.get(key), int)]
    return int(values[0]) if values else None


def qwen_layout() -> Layout:
    """Qwen3-Next, Qwen3.5, EXAONE and kin."""
    return _layout("Qwen (mtp.fc)", "mtp.layers.0.", "embedding_first")


def layouts_for(known: Mapping[str, str]) -> list[Layout]:
    """Every layout whose names could be among `known`, in the order in which they are tried."""
    layouts = [qwen_layout()]
    appended = [int(m[1]) for name in known if (m := _APPENDED.match(name))]
    if appended:
        # Only the first appended layer reads the verifier's state; later ones read the one before.
        stem = f"layers.{min(appended)}."
        deepseek = _layout("DeepSeek (layers.N)", stem, "embedding_first", min(appended), known)
        layouts.append(replace(deepseek, offset=1))
    return [*layouts, _layout("mtp_layers", "mtp_layers.0.", None)]


def _layout(
    dialect: str,
    layer: str,
    order: ConcatOrder | None,
    number: int = 0,
    known: Mapping[str, str] | None = None,
) -> Layout:
    """A layout from the table of names; of two names of one part the one that is there."""
    stems = {}
    for part, role in _ROLES.items():
        names = [name.replace("{n}", str(number)) for name in spelled(role, dialect)]
        here = (name for name in names if f"{name}.weight" in (known or {}))
        stems[part] = next(here, names[-1])
    embedding, head = (f"{stems.pop(part)}.weight" for part in ("embedding", "head"))
    return Layout(dialect, stems, layer, order, embedding, head)


def concat_order(layout: Layout, fields: Mapping[str, Any], container: Container) -> ConcatOrder:
    """The concat order by configuration or layout, never guessed."""
    if fields.get("mtp_hidden_states_first"):
        return "hidden_first"
    if layout.order:
        return layout.order
    if str(fields.get("model_type", "")).startswith("mimo"):
        return "hidden_first"
    raise BadUsageError(
        f"two families use the names {layout.parts['eh_proj']} and differ in which half of it "
        "reads the embedding",
        hint="say which: --concat embedding_first (speculators) or hidden_first (MiMo)",
        where=container.path,
    )
