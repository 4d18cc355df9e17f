"""Medusa heads: residual blocks y = x + SiLU(L x + b) on the state that enters the LM head.

Head j proposes token t + j + 2 from the state at row t: head 0 looks one token beyond the LM head.
Names are those of FasterDecoding/Medusa (`0.0.linear.weight`, projection `0.1.weight`) and of vLLM
(`blocks.0.layers.0.weight`, projection `lm_heads.0.weight`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from audit.blocks.assembly import Origin, assemble
from audit.blocks.block import Block
from audit.blocks.head_names import HeadName
from audit.blocks.reads import HiddenState
from audit.blocks.sources import safetensors_source
from audit.blocks.weights import fill
from audit.errors import MismatchError, NotFoundError
from audit.files import Container
from audit.heads.packed import weight_names
from audit.heads.stored import matrix_shape

_PREFIX = r"(?:medusa_heads?\.)?"
_ORIGINAL = re.compile(rf"{_PREFIX}(\d+)\.(\d+)\.linear\.weight$")
_VLLM = re.compile(rf"{_PREFIX}blocks\.(\d+)\.layers\.(\d+)\.weight$")


@dataclass(frozen=True, slots=True)
class FoundMedusa:
    """One Medusa head in a container."""

    layers: tuple[str, ...]
    """Stems of its residual layers, in order."""
    head: str | None
    """Tensor of its projection; a cut of the block alone has none."""


class Residual(nn.Module):
    """One residual layer."""

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width, bias=bias)

    def forward(self, states: Tensor) -> Tensor:
        """[..., width] -> the same."""
        left: Tensor = states + nn.functional.silu(self.linear(states))
        return left


class MedusaBlock(nn.Module):
    """The residual layers of one head; rows do not see each other."""

    def __init__(self, width: int, biases: list[bool]) -> None:
        super().__init__()
        with torch.device("meta"):
            self.layers = nn.Sequential(*(Residual(width, bias) for bias in biases))

    def forward(self, states: Tensor, embeddings: Tensor | None = None) -> Tensor:
        """[B, T, width] -> the same."""
        left: Tensor = self.layers(states)
        return left


def find_medusa(container: Container) -> dict[int, FoundMedusa]:
    """All Medusa heads of a container, by their number."""
    found: dict[int, dict[int, str]] = {}
    heads: dict[int, str] = {}
    known = weight_names(container, str)
    for name in known:
        if match := _ORIGINAL.match(name):
            own = name.removesuffix(f"{match[2]}.linear.weight")
        elif match := _VLLM.match(name):
            own = ""
            heads[int(match[1])] = f"{name[: name.index('blocks.')]}lm_heads.{match[1]}.weight"
        else:
            continue
        found.setdefault(int(match[1]), {})[int(match[2])] = name.removesuffix(".weight")
        if own:
            heads[int(match[1])] = f"{own}{len(found[int(match[1])])}.weight"
    return {
        number: FoundMedusa(
            tuple(layers[index] for index in sorted(layers)), known.get(heads[number])
        )
        for number, layers in found.items()
    }


def build_medusa(origin: Origin, name: HeadName) -> Block:
    """Medusa head `name` in `origin`.

    Raises:
        NotFoundError: HEAD_ABSENT, naming the Medusa heads that are there.
        AuditError: its tensors do not fit.
    """
    container, number = origin.container, int(name.detail)
    found = find_medusa(container)
    if number not in found:
        raise absent_medusa(container, name)
    stems = found[number].layers
    shape = matrix_shape(container, weight_names(container, str)[f"{stems[0]}.weight"])
    if len(shape) != 2 or shape[0] != shape[1]:
        raise MismatchError(
            f"{stems[0]}.weight has shape {list(shape)}; a residual layer is square",
            hint="the file is not a Medusa head",
            where=container.path,
            code="BLOCK_SHAPE",
        )
    biases = [f"{stem}.bias" in container.entries for stem in stems]
    module = MedusaBlock(shape[0], biases)
    wanted = {}
    for key in module.state_dict():
        _, index, _, leaf = key.split(".")
        wanted[key] = f"{stems[int(index)]}.{leaf}"
    filled = fill(module, wanted, safetensors_source(container))
    return assemble(
        str(name),
        number + 2,
        origin,
        module,
        filled,
        hidden_size=shape[0],
        reads=HiddenState(shape[0], origin.options.stage or "post_norm", origin.norm),
        conventions={
            "state_stage": origin.options.stage or "post_norm",
            "proposes": f"token t+{number + 2} from the state at row t",
        },
        config={"residual_layers": len(stems), "bias": biases},
        notes=(),
    )


def absent_medusa(container: Container, name: HeadName) -> NotFoundError:
    """Why this Medusa head can not be read."""
    there = ", ".join(f"medusa:{number}" for number in sorted(find_medusa(container)))
    return NotFoundError(
        f"no head {name} here: this file holds {there or 'no Medusa heads'}",
        hint=f"say --head {there.split(',')[0]}"
        if there
        else "looked for 0.0.linear.weight and blocks.0.layers.0.weight",
        where=container.path,
        code="HEAD_ABSENT",
    )
