"""vLLM's hidden-states connector: one safetensors file per request.

`hidden_states` [T, layers, d] and `token_ids` [T]; id i of a layer is the state entering it, and an
id equal to the number of layers is the last state before the final norm.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from audit.dumps.listing import Stored, look
from audit.dumps.reader import Reader
from audit.dumps.sequence import DumpSequence
from audit.errors import UnreadableError

_STATES, _TOKENS = "hidden_states", "token_ids"


class VllmReader(Reader):
    """`{request}.safetensors`."""

    name = "vllm"
    holds = "safetensors with hidden_states [T, layers, width] and token_ids [T]"
    documented = "pre_norm"

    @classmethod
    def fits(cls, path: Path, stored: Stored) -> bool:
        return holds_connector(stored)

    def read(self, path: Path) -> Iterator[DumpSequence]:
        token, states = self.load(path)
        yield DumpSequence(str(path), token, states[-1], states[:-1])

    def load(self, path: Path) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Token ids [T] and the states of each layer, [T, d] each, mapped to the file."""
        stored = look(path)
        if stored is None or not holds_connector(stored):
            raise self.unfit(path, stored)
        try:
            with safe_open(path, framework="pt") as opened:
                states, token = opened.get_tensor(_STATES), opened.get_tensor(_TOKENS)
        except (SafetensorError, OSError, RuntimeError) as error:
            raise UnreadableError(
                f"{path} can not be read: {error}", hint="copy the dump again", where=path
            ) from error
        return token, states.unbind(dim=1)

    @classmethod
    def default_layers(cls, depth: int, count: int) -> tuple[int, ...] | None:
        return None  # the connector records whatever layers it was started with


def holds_connector(stored: Stored) -> bool:
    """Whether a safetensors file holds what the connector writes."""
    states, token = stored.shapes.get(_STATES, ()), stored.shapes.get(_TOKENS, ())
    return stored.kind == "safetensors" and len(states) == 3 and states[1] > 0 and len(token) == 1
