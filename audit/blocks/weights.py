"""Weights into empty layers; nothing is filled in or guessed.

Experts stored one by one are joined into transformers' fused parameters, an MLP may be narrower
than its configuration (pruned), and a matrix may lie there as two factors (low rank).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from audit.blocks.sources import Source, Stored
from audit.errors import MismatchError, NotFoundError
from audit.files import Container
from audit.words import count

_FACTORS = (("ALinear.weight", "BLinear.weight"), ("u_proj.weight", "v_proj.weight"), ("U", "V"))
_MLP = ("gate_proj.weight", "up_proj.weight", "down_proj.weight")
_FEW = 4


@dataclass(frozen=True, slots=True)
class Filled:
    """What was read into a module."""

    tensors: dict[str, str]
    names: dict[str, str]
    notes: tuple[str, ...]


def fill(module: nn.Module, names: Mapping[str, str], source: Source) -> Filled:
    """Give every parameter and persistent buffer of `module` its weight.

    Args:
        names: parameter -> Hugging Face name.

    Raises:
        NotFoundError: BLOCK_INCOMPLETE, with the names that are missing.
        MismatchError: BLOCK_SHAPE, where a weight does not have the configuration's shape.
    """
    work = _Filling(module, source)
    for parameter, name in names.items():
        work.one(parameter, name)
    if work.missing:
        raise _incomplete(source.container, work.missing)
    work.check_mlps()
    return Filled(work.tensors, work.hf_names, tuple(work.notes))


class _Filling:
    """One module being filled; `missing` and `narrow` are judged when all was seen."""

    def __init__(self, module: nn.Module, source: Source) -> None:
        self.module, self.source = module, source
        self.tensors: dict[str, str] = {}
        self.hf_names: dict[str, str] = {}
        self.notes: list[str] = []
        self.missing: list[str] = []
        self.narrow: dict[str, dict[str, tuple[int, int]]] = {}

    def one(self, parameter: str, name: str) -> None:
        """Fill one parameter: as it is, from factors, or from experts."""
        stored = self.source.find(name)
        if stored is not None:
            value = self.source.read(stored)
            self._fit(parameter, value, stored.name)
            self._keep(parameter, name, stored.name)
            self._put(parameter, value)
        elif not (self._factors(parameter, name) or self._experts(parameter, name)):
            self.missing.append(name)

    def _keep(self, parameter: str, name: str, stored: str) -> None:
        self.tensors[parameter], self.hf_names[parameter] = stored, name

    def _expected(self, parameter: str) -> Tensor:
        owner, _, leaf = parameter.rpartition(".")
        value: Tensor = getattr(self.module.get_submodule(owner), leaf)
        return value

    def _put(self, parameter: str, value: Tensor) -> None:
        owner_name, _, leaf = parameter.rpartition(".")
        owner = self.module.get_submodule(owner_name)
        if leaf in owner._buffers:
            owner._buffers[leaf] = value
        else:
            setattr(owner, leaf, nn.Parameter(value.contiguous(), requires_grad=False))

    def _fit(self, parameter: str, value: Tensor, stored: str) -> None:
        """Refuse another shape, except an MLP's inner width, which `check_mlps` judges."""
        want, have = tuple(self._expected(parameter).shape), tuple(value.shape)
        if want == have:
            return
        stem, _, kind = parameter.rpartition(".mlp.")
        if kind in _MLP and len(have) == 2:
            inner = 1 if kind == _MLP[2] else 0
            if want[1 - inner] == have[1 - inner]:
                self.narrow.setdefault(stem, {})[kind] = (have[inner], want[inner])
                return
        raise _wrong_shape(self.source.container, stored, have, want)

    def check_mlps(self) -> None:
        """An MLP of another width must have that width in all of its three matrices."""
        for stem, found in self.narrow.items():
            widths = {have for have, _ in found.values()}
            declared = next(iter(found.values()))[1]
            if len(widths) > 1 or len(found) < len(_MLP):
                some = ", ".join(f"{kind} {have}" for kind, (have, _) in found.items())
                raise MismatchError(
                    f"the MLP of {stem} does not have one width: {some}, configuration {declared}",
                    hint="the tensors of this file do not belong together",
                    where=self.source.container.path,
                    code="BLOCK_SHAPE",
                )
            self.notes.append(
                f"the MLP of {stem} is {widths.pop()} wide, the configuration says {declared}"
            )

    def _factors(self, parameter: str, name: str) -> bool:
        """A matrix stored as two: output side [out, r], input side [r, in]."""
        stem, _, leaf = name.rpartition(".")
        if leaf != "weight":
            return False
        for pair in _FACTORS:
            sides = [self.source.find(f"{stem}.{part}") for part in pair]
            if sides[0] is None or sides[1] is None:
                continue
            left, right = self.source.read(sides[0]), self.source.read(sides[1])
            want = tuple(self._expected(parameter).shape)
            if (left.shape[0], right.shape[1]) != want or left.shape[1] != right.shape[0]:
                shape = (*left.shape, *right.shape)
                raise _wrong_shape(self.source.container, sides[0].name, shape, want)
            owner, _, _ = parameter.rpartition(".")
            self.module.set_submodule(owner, LowRank(left, right))
            for side, part, stored in zip(("left", "right"), pair, sides, strict=True):
                assert stored is not None
                self._keep(f"{owner}.{side}", f"{stem}.{part}", stored.name)
            return True
        return False

    def _experts(self, parameter: str, name: str) -> bool:
        """Experts stored one by one, joined: gate and up [E, 2f, h], down [E, h, f]."""
        stem, _, leaf = name.rpartition(".")
        parts = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}.get(leaf)
        if parts is None or not stem.endswith(".experts"):
            return False
        want = self._expected(parameter)
        stacked = {part: self.source.find(f"{stem}.{part}.weight") for part in parts}
        if all(stacked.values()):
            self._put(parameter, self._stacked(parameter, stem, stacked, want))
            return True
        value = torch.empty(want.shape)
        for expert in range(want.shape[0]):
            for piece, target in zip(parts, value[expert].chunk(len(parts)), strict=True):
                wanted = f"{stem}.{expert}.{piece}.weight"
                stored = self.source.find(wanted)
                if stored is None:
                    self.missing.append(wanted)
                    continue
                read = self.source.read(stored)
                if read.shape != target.shape:
                    shapes = tuple(read.shape), tuple(target.shape)
                    raise _wrong_shape(self.source.container, stored.name, *shapes)
                target.copy_(read)
                self._keep(f"{parameter}.{expert}.{piece}", wanted, stored.name)
        self._put(parameter, value)
        return True

    def _stacked(
        self, parameter: str, stem: str, found: Mapping[str, Stored | None], want: Tensor
    ) -> Tensor:
        """All experts of one matrix in one tensor, as GGUF has them: [E, f, h] or [E, h, f]."""
        values = []
        for part, stored in found.items():
            assert stored is not None
            values.append(self.source.read(stored))
            self._keep(f"{parameter}.{part}", f"{stem}.{part}.weight", stored.name)
        shapes = [tuple(value.shape) for value in values]
        pieces = [tuple(piece.shape) for piece in want.chunk(len(values), dim=1)]
        if shapes != pieces:
            name = next(stored.name for stored in found.values() if stored)
            raise _wrong_shape(self.source.container, name, shapes[0], pieces[0])
        return torch.cat(values, dim=1)


class LowRank(nn.Module):
    """A linear layer kept as two factors: x -> left @ (right @ x)."""

    def __init__(self, left: Tensor, right: Tensor) -> None:
        super().__init__()
        self.left = nn.Parameter(left, requires_grad=False)
        self.right = nn.Parameter(right, requires_grad=False)

    def forward(self, states: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        inner = torch.nn.functional.linear(states, self.right)
        return torch.nn.functional.linear(inner, self.left)


def _incomplete(container: Container, missing: list[str]) -> NotFoundError:
    more = ", ..." if len(missing) > _FEW else ""
    return NotFoundError(
        f"the draft block lacks {count(len(missing), 'tensor')} in this file: "
        f"{', '.join(missing[:_FEW])}{more}",
        hint="export the whole block, or give the file of the configuration it was made with",
        where=container.path,
        code="BLOCK_INCOMPLETE",
    )


def _wrong_shape(
    container: Container, stored: str, have: tuple[int, ...], want: tuple[int, ...]
) -> MismatchError:
    return MismatchError(
        f"{stored} has shape {list(have)} where the configuration needs {list(want)}",
        hint="the block and the configuration beside it are of different models",
        where=container.path,
        code="BLOCK_SHAPE",
    )
