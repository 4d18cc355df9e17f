"""What a head is: a function from the verifier's states to one proposed token, as data.

proposal = ids[argmax(rows @ adapt(states) + bias)], with ids beyond the tokenizer masked. The
post-head rule changes margins and divergence, never the greedy token. How these parts are found in
a file is the business of `loading`; how they are multiplied, of `audit.lockstep`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from audit.errors import MismatchError
from audit.heads.rows import Rows, SelectedRows
from audit.records import HeadRecord

Adapter = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class PostHead:
    """What happens to logits after the projection: x -> cap * tanh(scale * x / cap).

    Both parts are increasing, so they keep the order of logits; saturation of the cap in float32
    can make ties, which the comparison counts.
    """

    scale: float = 1.0
    softcap: float | None = None

    @property
    def is_identity(self) -> bool:
        """True when logits pass unchanged."""
        return self.scale == 1.0 and self.softcap is None

    def __call__(self, logits: Tensor) -> Tensor:
        """Logits as the model gives them out, same shape."""
        scaled = logits if self.scale == 1.0 else logits * self.scale
        if self.softcap is None:
            return scaled
        return torch.tanh(scaled / self.softcap) * self.softcap


@dataclass(frozen=True, slots=True)
class FinalNorm:
    """The verifier's final norm: RMSNorm, or LayerNorm when it has a bias."""

    gain: Tensor
    """float32 [hidden], the factor itself: a stored w of a (1 + w) model is already added up."""
    eps: float
    bias: Tensor | None = None

    def __call__(self, states: Tensor) -> Tensor:
        """Normed states, float32, same shape."""
        gain = self.gain.to(states.device)
        if self.bias is not None:
            bias = self.bias.to(states.device)
            return torch.nn.functional.layer_norm(states, gain.shape, gain, bias, self.eps)
        return torch.nn.functional.rms_norm(states, gain.shape, gain, self.eps)


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """One head, ready to run on the states of a trace."""

    record: HeadRecord
    rows: Rows
    """[count, k] in the order of ascending target id."""
    ids: Tensor
    """int64 [count], strictly ascending: the target id that each row proposes."""
    hidden_size: int
    """Width of the states that go in, before `adapt`."""
    bias: Tensor | None = None
    """float32 [count], or None."""
    adapt: Adapter | None = None
    """States float32 [n, hidden] -> [n, k]: a low-rank factor or a kept subset of channels."""
    norm: FinalNorm | None = None
    post: PostHead = field(default_factory=PostHead)
    valid: int | None = None
    """Ids from here on are padding of the vocabulary; None when the file does not say."""
    lookahead: int = 1
    unread: tuple[str, ...] = ()
    """Tensors of its file that bear its name and that it does not use."""

    @property
    def vocabulary(self) -> int:
        """Number of target ids, padding included."""
        return self.record.vocabulary

    @property
    def row_bytes(self) -> int:
        """Bytes of the rows as stored, without any block; 0 where that is not known."""
        return self.record.stored_bytes or 0

    @property
    def is_full(self) -> bool:
        """True when every target id has a row."""
        return len(self.ids) == self.vocabulary

    def project_in(self, states: Tensor) -> Tensor:
        """States float32 [n, hidden] as the projection rows want them, [n, k].

        Raises:
            MismatchError: the states are not as wide as this head's input.
        """
        if states.shape[1] != self.hidden_size:
            raise MismatchError(
                f"the states have {states.shape[1]} columns but {self.record.name} "
                f"reads {self.hidden_size}",
                hint="record a trace of this head's own verifier with `audit capture`",
                where=self.record.path,
            )
        return states if self.adapt is None else self.adapt(states)


def find_ids(among: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Where ids stand in a head's list of them.

    Args:
        among: int64 [t], strictly ascending, at least one.
        wanted: int64 [n], in any order.

    Returns:
        place int64 [n], any place for an id that is not among them, and bool [n] whether it is.
    """
    place = torch.searchsorted(among, wanted).clamp_(max=len(among) - 1)
    return place, among[place] == wanted


def trim_rows(head: Head, ids: Tensor, record: HeadRecord) -> Head:
    """The same head with only the rows of `ids` (int64, any order, no duplicates, all present)."""
    kept = torch.sort(ids).values
    index = torch.searchsorted(head.ids, kept)
    bias = None if head.bias is None else head.bias[index]
    return replace(head, record=record, rows=SelectedRows(head.rows, index), ids=kept, bias=bias)
