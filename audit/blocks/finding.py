"""Which heads a container's tensor names show. Nothing is decoded here."""

from __future__ import annotations

from audit.blocks.eagle3 import find_eagle3
from audit.blocks.gguf_config import ARCHITECTURES
from audit.blocks.head_names import HeadName
from audit.blocks.medusa import find_medusa
from audit.blocks.mtp_layouts import find_mtp
from audit.files import Container
from audit.files.depth import layer_numbers
from audit.heads import names
from audit.heads.packed import weight_names


def heads_in(container: Container) -> list[str]:
    """Names of the heads that this container's tensors show, the LM head first.

    Every model with its layers has many early exits; the one named is the state entering the last
    layer but one. Empty where nothing is known by its name (a lone matrix, an adapter).
    """
    if find_eagle3(container):
        return ["eagle3"]
    found = ["lm"] if holds_projection(container) else []
    if find_mtp(container):
        found.append("mtp")
    found += [f"medusa:{number}" for number in sorted(find_medusa(container))]
    layers = _depth(container)
    if layers and layers > 1 and layers - 1 in layer_numbers(container):
        found.append(f"exit:{layers - 2}")
    return found


def holds_projection(container: Container, name: HeadName | None = None) -> bool:
    """True when the names show an LM head, or an embedding that serves as one.

    It does not where the configuration says it is not tied, and an EAGLE-3 draft's own copy of the
    embedding only where it says so.
    """
    known = weight_names(container, names.plain)
    wanted = [*names.LM_HEAD[container.format], *(pair[0] for pair in names.FACTOR_PAIRS)]
    tied = (container.config or {}).get("tie_word_embeddings")
    eagle = name is not None and name.kind == "eagle3"
    if tied or (tied is None and not eagle):
        wanted += names.EMBEDDING[container.format]
    return any(entry in known for entry in wanted)


def holds_block(container: Container, name: HeadName) -> bool:
    """True when the block of `name` is in this container."""
    if name.kind == "mtp":
        return find_mtp(container) is not None
    if name.kind == "eagle3":
        return find_eagle3(container) is not None
    if name.kind == "medusa":
        return int(name.detail) in find_medusa(container)
    return holds_layers(container)


def holds_layers(container: Container) -> bool:
    """True when any decoder layer's tensor is here."""
    return bool(layer_numbers(container))


def layer_count(container: Container) -> int | None:
    """Number of the verifier's layers, where the configuration says it."""
    if container.format == "gguf":
        arch = str(container.metadata.get("general.architecture"))
        count = container.metadata.get(f"{arch}.block_count")
        if not isinstance(count, int):
            return None
        return count - int(container.metadata.get(f"{arch}.nextn_predict_layers") or 0)
    config = container.config or {}
    text = config.get("text_config")
    value = {**config, **(text if isinstance(text, dict) else {})}.get("num_hidden_layers")
    return value if isinstance(value, int) else None


def _depth(container: Container) -> int | None:
    """The same, where the model's layers can be run."""
    arch = str(container.metadata.get("general.architecture"))
    runs = container.format != "gguf" or arch in ARCHITECTURES
    return layer_count(container) if runs else None
