"""How many layers a configuration asks for, and how many its files hold.

Asked before anything is built: a number that no file holds would be built for hours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from audit.errors import UnreadableError
from audit.files.container import Container

MANY_LAYERS = 256
"""A file may hold a part of a model's layers; so many cost nothing, and no model has more."""
_LAYER = re.compile(r"(?:model\.|language_model\.)*(?:layers|blk)\.(\d+)\.")
_KEYS = frozenset({"num_hidden_layers", "num_layers", "n_layer", "n_layers", "block_count"})


def layer_numbers(container: Container) -> set[int]:
    """Numbers of the decoder layers that a container holds tensors of."""
    found = (_LAYER.match(name) for name in container.entries)
    return {int(match[1]) for match in found if match}


def layers_held(*containers: Container) -> int:
    """One more than the highest layer of these files; 0 where they hold none."""
    return max((number + 1 for place in containers for number in layer_numbers(place)), default=0)


def check_depth(fields: Mapping[str, Any], held: int, where: Path) -> None:
    """Refuse many more layers than the files hold; what is no number is left to transformers.

    Args:
        fields: a configuration, or GGUF's key-values of one architecture.
        held: of `layers_held`.

    Raises:
        UnreadableError: there are more, and more than MANY_LAYERS.
    """
    for layers in _depths(fields):
        if layers > max(held, MANY_LAYERS):
            raise UnreadableError(
                f"the configuration asks for {min(layers, 1e300):.4g} layers, "
                f"the files hold {held}",
                hint="correct the configuration, or give the whole model",
                where=where,
            )


def _depths(fields: Mapping[str, Any]) -> Iterator[float]:
    """What this configuration and those within it, of text or vision, say."""
    for key, value in fields.items():
        if isinstance(value, Mapping):
            yield from _depths(value)
        elif str(key).rpartition(".")[2] in _KEYS and isinstance(value, int | float):
            yield value
