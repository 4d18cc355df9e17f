"""Training files of SpecForge, EAGLE-1/2 and ModelOpt: one dictionary of tensors per text.

The three differ in names and shapes alone. All are unshifted on disk, whatever their training does
later: row t is the state after token t.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from audit.dumps.listing import Stored, look
from audit.dumps.reader import Numbering, Reader
from audit.dumps.sequence import DumpSequence, flat
from audit.dumps.torch_file import load_torch
from audit.errors import MismatchError, UnreadableError
from audit.records import Stage

_IDS, _MASK = "input_ids", "loss_mask"


class _TrainingReader(Reader):
    """One `torch.save` dictionary per text."""

    state: str
    aux: str

    def read(self, path: Path) -> Iterator[DumpSequence]:
        content = load_torch(path)
        hidden, token = content.get(self.state), content.get(_IDS)
        if not isinstance(hidden, Tensor) or not isinstance(token, Tensor):
            raise self.unfit(path, look(path))
        hidden = _unbatched(hidden, path)
        mask = content.get(_MASK)
        yield DumpSequence(
            str(path),
            flat(token),
            hidden,
            _split(content.get(self.aux), hidden, path),
            flat(mask) if isinstance(mask, Tensor) else None,
            _claimed(content, path),
        )


class SpecForgeReader(_TrainingReader):
    """`rows_{a}-{b}/data_{i}.ckpt`, also gzipped; states with a batch dimension of one."""

    name = "specforge"
    holds = ".ckpt or .ckpt.gz with input_ids, hidden_state [1, S, width], aux_hidden_state"
    documented = "post_norm"
    state, aux = "hidden_state", "aux_hidden_state"

    @classmethod
    def fits(cls, path: Path, stored: Stored) -> bool:
        return _has(stored, cls.state) and (
            len(stored.shapes[cls.state]) == 3 or cls.aux in stored.shapes
        )


class EagleReader(_TrainingReader):
    """`{outdir}/{i}/data_{n}.ckpt` of EAGLE-1 and EAGLE-2."""

    name = "eagle"
    holds = ".ckpt with input_ids, loss_mask and hidden_state [S, width]"
    documented = "post_norm"
    state, aux = "hidden_state", "aux_hidden_state"

    @classmethod
    def fits(cls, path: Path, stored: Stored) -> bool:
        return (
            _has(stored, cls.state)
            and len(stored.shapes[cls.state]) == 2
            and cls.aux not in stored.shapes
        )


class ModelOptReader(_TrainingReader):
    """`{conversation}.pt`: after the norm from its Hugging Face script, before it from vLLM's."""

    name = "modelopt"
    holds = ".pt with input_ids, hidden_states [S, width] and aux_hidden_states"
    state, aux = "hidden_states", "aux_hidden_states"

    @classmethod
    def fits(cls, path: Path, stored: Stored) -> bool:
        return _has(stored, cls.state)

    def numbering_of(self, stage: Stage) -> Numbering:
        """Its Hugging Face script counts layers by their outputs, its vLLM script by their inputs;
        which wrote the file shows in the stage alone."""
        return "leaving" if stage == "post_norm" else "entering"


def _has(stored: Stored, state: str) -> bool:
    return stored.kind == "torch" and _IDS in stored.shapes and state in stored.shapes


def _unbatched(tensor: Tensor, path: Path) -> Tensor:
    """[S, d] from [1, S, d] or [S, d]."""
    if tensor.dim() == 3 and len(tensor) == 1:
        return tensor[0]
    if tensor.dim() == 2:
        return tensor
    raise UnreadableError(
        f"the states of {path} have the shape {list(tensor.shape)}, not [1, S, width]",
        hint="one file holds one text; a batch of texts is not read",
        where=path,
    )


def _split(aux: Any, hidden: Tensor, path: Path) -> tuple[Tensor, ...]:
    """The further states side by side, [S, k * d], apart again."""
    if not isinstance(aux, Tensor) or aux.numel() == 0:
        return ()
    both, width = _unbatched(aux, path), hidden.shape[1]
    if width == 0 or both.shape[1] % width:
        raise MismatchError(
            f"the further states of {path} are {both.shape[1]} wide, no multiple of the last "
            f"state's {width}",
            hint="the file mixes states of two models",
            where=path,
            code="MIXED_WIDTHS",
        )
    return torch.split(both, width, dim=1)


def _claimed(content: dict[str, Any], path: Path) -> Stage | None:
    """What ModelOpt's trainer takes from a key that no script of it writes so far."""
    claim = content.get("hidden_states_prenorm")
    if claim is None:
        return None
    if isinstance(claim, Tensor) and claim.numel() != 1:
        raise UnreadableError(
            f"hidden_states_prenorm of {path} is not yes or no", hint="write it anew", where=path
        )
    return "pre_norm" if bool(claim) else "post_norm"
