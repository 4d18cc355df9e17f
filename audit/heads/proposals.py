"""Proposals that ran elsewhere: a kernel, an engine or another language proposed, we only count."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from audit.errors import MismatchError, UnreadableError
from audit.files import Container
from audit.heads.identity import head_hash
from audit.records import HeadRecord
from audit.words import count

TENSOR = "proposal"
TRACE_KEY = "trace_sha256"


@dataclass(frozen=True, slots=True, eq=False)
class Proposals:
    """One proposed token per row of one trace."""

    record: HeadRecord
    proposal: Tensor
    """int64 [N], target ids."""
    trace_sha256: str


def is_proposals(container: Container) -> bool:
    """True for a file that holds proposals instead of weights."""
    return container.format == "safetensors" and TENSOR in container.entries


def read_proposals(container: Container, vocabulary: int) -> Proposals:
    """Proposals and the hash of the trace they were made on.

    Raises:
        UnreadableError: no trace hash in the metadata, wrong type, or ids out of range.
    """
    entry = container.entries[TENSOR]
    trace = container.metadata.get(TRACE_KEY)
    if not trace:
        raise UnreadableError(
            f"the proposals do not say on which trace they were made ({TRACE_KEY} in the metadata)",
            hint="write the trace file's SHA-256 into the safetensors metadata",
            where=container.path,
        )
    if len(entry.shape) != 1 or not entry.encoding.startswith(("I", "U")):
        raise UnreadableError(
            f"proposal is {entry.encoding} of shape {list(entry.shape)}, not whole numbers [N]",
            where=container.path,
        )
    proposal = container.values(TENSOR)
    outside = ((proposal < 0) | (proposal >= vocabulary)).nonzero().squeeze(1)
    if len(outside):
        row = int(outside[0])
        raise UnreadableError(
            f"{count(len(outside), 'proposal')} outside 0..{vocabulary - 1}, the first at row "
            f"{row}: {int(proposal[row])}",
            hint="proposals are ids of the target vocabulary, not rows of a trimmed head",
            where=container.path,
        )
    record = HeadRecord(
        name=container.path.name,
        path=str(container.path),
        kind="proposals",
        container="proposals",
        encoding="proposals",
        rows=None,
        columns=None,
        vocabulary=vocabulary,
        stored_bytes=None,
        bits_per_weight=None,
        sha256=head_hash([("proposal", "I64", proposal)], {"trace": str(trace)}),
        tensors=(TENSOR,),
        tied=None,
    )
    return Proposals(record, proposal, str(trace))


def check_trace(proposals: Proposals, trace_sha256: str, positions: int) -> None:
    """Refuse proposals made on another trace, or of another length."""
    if proposals.trace_sha256 != trace_sha256 or len(proposals.proposal) != positions:
        raise MismatchError(
            f"the proposals were made on trace {proposals.trace_sha256[:12]} "
            f"({len(proposals.proposal)} rows), not on {trace_sha256[:12]} ({positions} rows)",
            hint="name the trace they were made on with --trace",
            where=proposals.record.path,
        )
