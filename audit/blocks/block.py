"""A draft block, and how it runs over a trace: each sequence on its own, several side by side.

Rows of one sequence attend causally to that sequence alone. Shorter sequences of a batch are
padded on the right, where causal layers never look, so no mask is needed and only the last bits of
a state may depend on the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from audit.blocks.reads import Embedding, Reads
from audit.errors import BadUsageError, MismatchError
from audit.files import Container
from audit.heads.stored import stored_tensors
from audit.traces import Trace


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The layers of one draft head, ready to run."""

    name: str
    """`exit:16`, `mtp`, `eagle3` or `medusa:0`."""
    lookahead: int
    """1 for an early exit, 2 for MTP and EAGLE-3, j + 2 for Medusa head j."""
    hidden_size: int
    """Width of the states it returns."""
    modules: nn.Module
    """Float32, without gradients: states [B, T, w], embeddings [B, T, e] -> [B, T, h]."""
    tensors: Mapping[str, str]
    """Parameter of `modules` -> tensor in `container`. An expert's part of a fused parameter is
    named `<parameter>.<expert>.<gate_proj | up_proj | down_proj>`, without the number where the
    file stacks them."""
    names: Mapping[str, str]
    """The same keys -> the names that Hugging Face checkpoints of this layout use."""
    container: Container
    reads: Reads
    embedding: Embedding | None
    """Set for blocks that also read the token of row t + 1."""
    conventions: Mapping[str, Any]
    """What was decided beside the weights: concat order, norm stage, position offset, layers."""
    config: Mapping[str, Any]
    """The configuration that the layers were built from."""
    notes: tuple[str, ...]
    sha256: str
    """Of the tensors' stored bytes, the embedding, the configuration and the conventions."""

    @property
    def stored_bytes(self) -> int:
        """Size of the block's tensors as stored, without the embedding."""
        tensors: dict[str, int] = {}
        for name in dict.fromkeys(self.tensors.values()):
            parts = stored_tensors(self.container, name)
            tensors |= {part: len(raw) for part, (_, raw) in parts.items()}
        return sum(tensors.values())

    def run(self, trace: Trace, *, device: str | torch.device = "cpu", batch: int = 8) -> Tensor:
        """The state that enters the projection, float32 [N, hidden], for each row of the trace.

        It has passed the block's own final norm. Rows without a next token (the last of each
        sequence, where the block reads one) are zero; `lookahead_rows` leaves them out.

        Args:
            batch: sequences that run together; only the last bits of a state may depend on it.

        Raises:
            MismatchError: the trace lacks a state, its next tokens, or is of another model.
        """
        if batch < 1:
            raise BadUsageError(f"batch is {batch}", hint="it must be 1 or more")
        states = self.reads.of(trace)
        ahead = 0 if self.embedding is None else 1
        if self.embedding is not None:
            self.embedding.check(trace)
            _check_next_tokens(trace, self.name)
        modules = self.modules.to(device)
        out = torch.zeros(trace.positions, self.hidden_size)
        with torch.no_grad():
            for rows, real in sequence_batches(trace.sequence, batch, ahead):
                entering = states[rows].to(device, torch.float32)
                following = None
                if self.embedding is not None:
                    following = self.embedding(trace.token[rows + 1]).to(device)
                left = modules(entering, following).cpu()
                out[rows[real]] = left[real]
        return out


def sequence_batches(sequence: Tensor, batch: int, ahead: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows of up to `batch` sequences of like length, without each one's last `ahead` rows.

    Sequences of 3 and 2 rows with ahead 0 give rows [[3, 4, 4], [0, 1, 2]] and real
    [[1, 1, 0], [1, 1, 1]]: the shorter is padded with its own last row.

    Args:
        sequence: int64 [N]: 0, 1, 2 ..., one contiguous run of rows each.

    Yields:
        rows int64 [B, T] and real bool [B, T], False where a row is padding.
    """
    lengths = torch.bincount(sequence)
    starts = lengths.cumsum(0) - lengths
    usable = lengths - ahead
    order = torch.sort(usable, stable=True).indices
    order = order[usable[order] > 0]
    for chosen in order.split(batch) if len(order) else ():
        longest = int(usable[chosen].max())
        columns = torch.arange(longest).expand(len(chosen), longest)
        last = (usable[chosen] - 1).unsqueeze(1)
        yield starts[chosen].unsqueeze(1) + torch.minimum(columns, last), columns <= last


def _check_next_tokens(trace: Trace, name: str) -> None:
    """Refuse a trace of single rows: no row has a next token to read."""
    if trace.positions > trace.sequences:
        return
    raise MismatchError(
        f"{name} also reads the next token, and no sequence of the trace of "
        f"{trace.info.corpus} is longer than one row",
        hint="capture longer sequences: `audit capture MODEL ... --context 512`",
        where=trace.path or "",
    )
