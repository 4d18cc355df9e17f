"""What a draft slot reads of the slot before it, for each kind of head.

An MTP head reads its own output state and the token it drafted, as llama.cpp (`t_h_nextn`) and
vLLM do: for Qwen3-Next and Qwen3.5 the state after the head's own norm. Where a head reads the
verifier's state before its norm, it reads its own before its norm too; engines differ on DeepSeek's
layout, so a user may say which. An EAGLE-3 head reads the state before its norm in place of the
fused ones. An early exit runs the verifier's lower layers on the drafted token, with the keys and
values of the drafted tokens before it. Rows of the text itself keep the verifier's true states.

Medusa heads draft side by side and not from one another; an LM head drafts only what the whole
verifier has computed. Both are refused by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from audit.blocks import Block, BlockHead
from audit.blocks.reads import LayerStates
from audit.errors import MismatchError, UnsupportedFormatError
from audit.heads import Head
from audit.records import Stage


class Recursion(ABC):
    """One head's block, slot after slot."""

    said: str
    """What a slot reads of the slot before it, in words."""
    needs_model = False
    """Slots beyond the first need the verifier itself to draft."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.device = torch.device("cpu")
        """Where the block runs; tensors come and go on the CPU."""
        self._raw: list[Tensor] = []

    def to(self, device: str) -> Recursion:
        """This recursion, its block moved to another device."""
        self.device = torch.device(device)
        self.block.modules.to(self.device)
        return self

    def enter(self, states: Tensor) -> Tensor:
        """States of the verifier [B, T, w] as rows that `run` takes."""
        return states

    def run(self, entering: Tensor, following: Tensor | None) -> tuple[Tensor, Tensor]:
        """Rows [B, T, v] and embeddings [B, T, e] -> states after and before the head's norm."""
        following = None if following is None else following.to(self.device)
        norm = self.block.modules.get_submodule("decoder.model.norm")
        hook = norm.register_forward_pre_hook(lambda _, args: self._raw.append(args[0]))
        try:
            left = self._forward(entering.to(self.device), following)
        finally:
            hook.remove()
        return left.cpu(), self._raw.pop().cpu()

    def _forward(self, entering: Tensor, following: Tensor | None) -> Tensor:
        left: Tensor = self.block.modules(entering, following)
        return left

    @abstractmethod
    def next_row(self, left: Tensor, raw: Tensor, tokens: Sequence[Tensor]) -> Tensor:
        """The row that the next slot enters with, [B, v].

        Args:
            left, raw: [B, h], this slot's state after and before the head's norm.
            tokens: of each chain, the text and all that was drafted, int64.
        """


class MtpRecursion(Recursion):
    """An MTP head on its own output state."""

    def __init__(self, block: Block, stage: Stage | None) -> None:
        super().__init__(block)
        read: Stage = block.conventions["state_stage"]
        self.stage = stage or read
        where = "after" if self.stage == "post_norm" else "before"
        self.said = f"the head's own output state {where} its norm, and the token it drafted"

    def next_row(self, left: Tensor, raw: Tensor, tokens: Sequence[Tensor]) -> Tensor:
        return left if self.stage == "post_norm" else raw


class EagleRecursion(Recursion):
    """An EAGLE-3 head on its own state, which takes the place of the fused ones."""

    said = "the head's own output state before its norm, and the token it drafted"

    def enter(self, states: Tensor) -> Tensor:
        modules: Any = self.block.modules
        fused: Tensor = modules.fuse(states.to(self.device))
        return fused.cpu()

    def _forward(self, entering: Tensor, following: Tensor | None) -> Tensor:
        modules: Any = self.block.modules
        left: Tensor = modules.draft(entering, following)
        return left

    def next_row(self, left: Tensor, raw: Tensor, tokens: Sequence[Tensor]) -> Tensor:
        return raw


class ExitRecursion(Recursion):
    """An early exit, fed by the verifier's layers below it."""

    needs_model = True

    def __init__(self, block: Block, model: Any | None) -> None:
        super().__init__(block)
        assert isinstance(block.reads, LayerStates) and block.reads.layers is not None
        self.layer, self.model = block.reads.layers[0], model
        self.said = f"the token it drafted, run through the verifier's layers below {self.layer}"

    def next_row(self, left: Tensor, raw: Tensor, tokens: Sequence[Tensor]) -> Tensor:
        return self.state_of_last(tokens)

    def state_of_last(self, tokens: Sequence[Tensor]) -> Tensor:
        """State [B, w] entering the exit's layer at the last token of each text."""
        assert self.model is not None
        inputs = torch.nn.utils.rnn.pad_sequence(list(tokens), batch_first=True)
        output = self.model.get_decoder()(
            input_ids=inputs.to(self.model.device), use_cache=False, output_hidden_states=True
        )
        last = torch.tensor([len(one) - 1 for one in tokens])
        found: Tensor = output.hidden_states[self.layer].cpu().float()
        return found[torch.arange(len(last)), last]


def recursion_for(head: Head, model: Any | None, stage: Stage | None = None) -> Recursion:
    """How `head` drafts further slots.

    Args:
        model: the verifier, which an early exit needs.
        stage: of an MTP head's own state, where a user says it.

    Raises:
        UnsupportedFormatError: CHAIN_HEAD, the head drafts no chains.
        MismatchError: a head whose next row is not as wide as what it reads.
    """
    block = head.block if isinstance(head, BlockHead) else None
    if block is None:
        raise _no_chain(head, "an LM head drafts only what the whole verifier has computed")
    if block.name == "mtp":
        return MtpRecursion(block, stage)
    if block.name == "eagle3":
        return EagleRecursion(block)
    if block.name.startswith("exit:"):
        return ExitRecursion(block, model)
    raise _no_chain(head, "Medusa heads draft side by side, not from one another")


def check_width(row: Tensor, entering: Tensor, head: Head) -> None:
    """Raise MismatchError where a slot's state can not take the place of the verifier's."""
    if row.shape[-1] != entering.shape[-1]:
        raise MismatchError(
            f"{head.record.name} gives states of width {row.shape[-1]} and reads states of width "
            f"{entering.shape[-1]}, so it can not draft from its own",
            hint="measure one slot: --slots 1",
            where=head.record.path,
        )


def _no_chain(head: Head, why: str) -> UnsupportedFormatError:
    return UnsupportedFormatError(
        f"{head.record.kind} heads draft no chains: {why}",
        hint="name a head that drafts from itself: --head mtp, --head eagle3 or --head exit:K",
        where=head.record.path,
        code="CHAIN_HEAD",
    )
