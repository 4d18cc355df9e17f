"""speculators: the connector's files by number, beside an Arrow data set with the loss masks.

`hs_7.safetensors` belongs to row 7 of the data set in the folder above (or the same). The older
`.pt` files of the same tool, with one tensor per layer in a list, are read too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from audit.dumps.arrow import DataSet, open_data_set
from audit.dumps.listing import Stored, look
from audit.dumps.reader import Reader
from audit.dumps.sequence import DumpSequence, flat
from audit.dumps.torch_file import load_torch
from audit.dumps.vllm import VllmReader, holds_connector
from audit.errors import MismatchError

_NUMBERED = re.compile(r"^hs_(\d+)\.safetensors$")


class SpeculatorsReader(VllmReader):
    """`hidden_states/hs_{row}.safetensors` and the data set's `input_ids` and `loss_mask`."""

    name = "speculators"
    holds = "hs_N.safetensors beside an Arrow data set with input_ids and loss_mask"
    documented = "pre_norm"

    def __init__(self, dump: Path, files: Sequence[Path], tokens: Path | None) -> None:
        super().__init__(dump, files, tokens)
        self._sets: dict[Path, DataSet | None] = {}

    @classmethod
    def fits(cls, path: Path, stored: Stored) -> bool:
        return holds_connector(stored) and _NUMBERED.match(path.name) is not None

    def read(self, path: Path) -> Iterator[DumpSequence]:
        number = _NUMBERED.match(path.name)
        if number is None:
            raise self.unfit(path, look(path))
        token, states = self.load(path)
        mask = self._mask(path, int(number[1]), token)
        yield DumpSequence(str(path), token, states[-1], states[:-1], mask)

    @classmethod
    def default_layers(cls, depth: int, count: int) -> tuple[int, ...] | None:
        return Reader.default_layers(depth, count)

    def _mask(self, path: Path, number: int, token: Tensor) -> Tensor | None:
        """The loss mask of the data set's row, None where there is no data set."""
        data = self._data_set(path)
        if data is None:
            return None
        ids, mask = data.row(number, path)
        _check_tokens(token, ids, path)
        return mask

    def _data_set(self, path: Path) -> DataSet | None:
        if path.parent not in self._sets:
            places = [folder for folder in (path.parent.parent, path.parent) if folder.is_dir()]
            found = next((data for place in places if (data := open_data_set(place))), None)
            if found is None:
                self.note(
                    "NO_DATA_SET",
                    "no Arrow data set lies beside the states, so there is no loss mask",
                )
            self._sets[path.parent] = found
        return self._sets[path.parent]


class OldSpeculatorsReader(Reader):
    """`data_{n}.pt`: `input_ids`, `loss_mask`, and `hidden_states`, one tensor per layer."""

    name = "speculators-pt"
    holds = ".pt with input_ids, loss_mask and a list hidden_states"
    documented = "pre_norm"

    @classmethod
    def fits(cls, path: Path, stored: Stored) -> bool:
        return stored.kind == "torch" and "hidden_states" in stored.lists

    def read(self, path: Path) -> Iterator[DumpSequence]:
        content = load_torch(path)
        states, token = content.get("hidden_states"), content.get("input_ids")
        if not isinstance(states, list) or not isinstance(token, Tensor):
            raise self.unfit(path, look(path))
        if not states or not all(isinstance(state, Tensor) for state in states):
            raise self.unfit(path, look(path))
        mask = content.get("loss_mask")
        yield DumpSequence(
            str(path),
            flat(token),
            states[-1],
            tuple(states[:-1]),
            flat(mask) if isinstance(mask, Tensor) else None,
        )


def _check_tokens(token: Tensor, ids: Tensor, path: Path) -> None:
    """Refuse states of another text than the data set's row."""
    if torch.equal(token.to(torch.int64), ids):
        return
    if len(token) > len(ids) and torch.equal(token[: len(ids)].to(torch.int64), ids):
        raise MismatchError(
            f"{path} holds {len(token) - len(ids)} tokens beyond the data set's row: the engine "
            "generated them",
            hint="dumped with include_output_tokens: import the files alone, with --format vllm",
            where=path,
            code="INCLUDE_OUTPUT_TOKENS",
        )
    raise MismatchError(
        f"the token ids of {path} are not those of the data set's row",
        hint="the states are of another version of the data set: dump them again",
        where=path,
        code="TOKENS_DIFFER",
    )
