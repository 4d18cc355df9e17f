"""One sequence of a dump, and what every sequence must satisfy whatever tool wrote it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from audit.errors import MismatchError, UnreadableError
from audit.records import Stage
from audit.traces.checks import check_finite

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True, eq=False)
class DumpSequence:
    """The states of one text, unshifted: row t is the state after reading token t."""

    where: str
    """The file, with the sequence's number where it holds several."""
    token: Tensor
    """int64 [S]."""
    hidden: Tensor
    """[S, d]: the last state that was dumped, whose stage is not known yet."""
    further: tuple[Tensor, ...] = ()
    """States of earlier layers, each [S, width], in the order of the dump."""
    mask: Tensor | None = None
    """bool [S], true where the token is one the draft is trained on (an answer, not a prompt)."""
    claimed: Stage | None = None
    """The stage that the file itself states; None for most tools."""


def checked(sequence: DumpSequence) -> DumpSequence:
    """The sequence in the types of a trace.

    Raises:
        MismatchError: TOO_FEW_ROWS, INCLUDE_OUTPUT_TOKENS or LENGTHS where tokens, states and mask
            do not have one length.
        UnreadableError: not floats, not token ids, or NaN and infinity (NON_FINITE).
    """
    where = sequence.where
    token = _tokens(sequence.token, where)
    hidden = _states(sequence.hidden, "the state", where)
    further = tuple(
        _states(state, f"further state {i}", where) for i, state in enumerate(sequence.further)
    )
    _check_rows(len(hidden), len(token), where)
    for state in further:
        _check_rows(len(state), len(token), where)
    mask = None if sequence.mask is None else _mask(sequence.mask, len(token), where)
    for i, state in enumerate((hidden, *further)):
        if len(state):
            check_finite(state, f"further state {i - 1}" if i else "hidden", where=where)
    return DumpSequence(where, token, hidden, further, mask, sequence.claimed)


def flat(tensor: Tensor) -> Tensor:
    """[S] from [S] or [1, S]; anything else is left for the checks to refuse."""
    return tensor[0] if tensor.dim() == 2 and len(tensor) == 1 else tensor


def _tokens(token: Tensor, where: str) -> Tensor:
    if (
        token.dim() != 1
        or token.is_floating_point()
        or token.dtype in (torch.bool, torch.complex64)
    ):
        raise UnreadableError(
            f"the token ids of {where} are {_name(token)} {list(token.shape)}, not integers [S]",
            hint="dump the ids that the model read, one per position",
            where=where,
        )
    ids = token.to(torch.int64)
    bad = torch.nonzero(ids < 0).flatten()
    if len(bad):
        raise UnreadableError(
            f"{where} holds the token id {int(ids[bad[0]])} at position {int(bad[0])}",
            hint="these are labels rather than the ids that the model read",
            where=where,
            code="TOKENS_OUTSIDE",
        )
    return ids


def _states(state: Tensor, what: str, where: str) -> Tensor:
    if state.dim() != 2 or state.shape[1] == 0:
        raise UnreadableError(
            f"{what} of {where} has the shape {list(state.shape)}, not [positions, width]",
            hint="the dump was not written as its tool describes it; see `audit import --help`",
            where=where,
        )
    state = state.detach()
    if state.dtype == torch.float64:
        return state.float()
    if state.dtype not in _FLOATS:
        raise UnreadableError(
            f"{what} of {where} is {_name(state)}, not float32, bfloat16 or float16",
            hint="dump the states as floats; codes are not read as if they were numbers",
            where=where,
        )
    return state


def _mask(mask: Tensor, tokens: int, where: str) -> Tensor:
    if mask.dim() != 1 or len(mask) != tokens:
        raise MismatchError(
            f"the loss mask of {where} has the shape {list(mask.shape)} for {tokens} tokens",
            hint="the mask belongs to another tokenization of this text",
            where=where,
            code="LENGTHS",
        )
    return mask != 0


def _check_rows(rows: int, tokens: int, where: str) -> None:
    """Name the known ways in which an engine writes another number of states than of tokens."""
    if rows == tokens:
        return
    message = f"{where} holds {rows} states for {tokens} tokens"
    if rows == tokens - 1 and rows:
        raise MismatchError(
            f"{message}: the last token has none",
            hint="a sampled token that ended the text never entered the model: leave it out of the "
            "token ids, as vLLM's include_output_tokens does",
            where=where,
            code="INCLUDE_OUTPUT_TOKENS",
        )
    if rows < tokens:
        raise MismatchError(
            f"{message}: the others were not computed anew",
            hint="dump again with prefix caching and chunked prefill off; pooled embeddings need "
            "--pooling none",
            where=where,
            code="TOO_FEW_ROWS",
        )
    raise MismatchError(
        f"{message}", hint="the tokens are those of another text", where=where, code="LENGTHS"
    )


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
