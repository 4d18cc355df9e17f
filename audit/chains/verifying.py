"""Which drafted slots the verifier accepts: its own greedy tokens after the text and the drafts.

One pass over the text and K - 1 drafts answers for all K slots, as a serving engine's verify step
does. Acceptance stops at the first other token and at an end-of-sequence token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from audit.chains.drafting import Anchors, Drafts, batches, context_lengths, known_text
from audit.chains.records import DISAGREES, OTHER
from audit.errors import MismatchError
from audit.records import Finding
from audit.stats import binomial_interval
from audit.traces import Trace
from audit.traces.oracle import check_once, greedy_tokens
from audit.traces.verifier import Verifier
from audit.words import count, some

MIN_AGREEMENT = 0.95
"""Below it the model is not the trace's verifier. A trace that was recorded in 16 bit differs from
a model run in 32 bit at near-ties, and a few positions may hold one."""
_SURE, _SURE_OF_OTHER = 0.99, 0.9
"""Level of the interval that must lie below; a model known to be another has less benefit of the
doubt, for a few anchors tell little."""


class Checker:
    """The verifier over one trace; drafts that several heads share are checked once."""

    def __init__(self, verifier: Verifier | None, trace: Trace) -> None:
        """Without a verifier only the first slot is known, from the trace."""
        self.verifier, self.trace = verifier, trace
        self._known: dict[tuple[int, ...], Tensor] = {}
        self.checked = self.agreed = 0

    def greedy(
        self, anchors: Anchors, tokens: Tensor, tick: Callable[[int], None] | None = None
    ) -> Tensor:
        """The verifier's token at every slot, were all slots before it accepted: int64 [n, K].

        Slot 0 is the trace's oracle. Slots behind a first slot that is not accepted are -1.
        """
        found = torch.full_like(tokens, -1)
        found[:, 0] = self.trace.oracle[anchors.targets]
        if tokens.shape[1] == 1 or self.verifier is None:
            return found
        alive = (tokens[:, 0] == found[:, 0]).nonzero().flatten()
        keys = [(int(anchors.targets[i]), *tokens[i, :-1].tolist()) for i in alive.tolist()]
        new = [i for i, key in zip(alive.tolist(), keys, strict=True) if key not in self._known]
        if new:
            self._ask(anchors.part(torch.tensor(new)), tokens[torch.tensor(new), :-1], tick)
        for i, key in zip(alive.tolist(), keys, strict=True):
            found[i, 1:] = self._known[key][1:]
        return found

    def _ask(self, anchors: Anchors, drafts: Tensor, tick: Callable[[int], None] | None) -> None:
        assert self.verifier is not None
        lengths, done = context_lengths(self.trace, anchors), 0
        for index in batches(lengths, drafts.shape[1]):
            part, more = anchors.part(index), drafts[index]
            answer = greedy_after(self.verifier, known_text(self.trace, part), more)
            self.agreed += int((answer[:, 0] == self.trace.oracle[part.targets]).sum())
            self.checked += len(index)
            for target, drafted, one in zip(part.targets.tolist(), more, answer, strict=True):
                self._known[(target, *drafted.tolist())] = one
            done += len(index)
            if tick:
                tick(done)

    @property
    def is_other(self) -> bool:
        """The trace names the model that it was captured from by its hash, and it is not this."""
        recorded = self.trace.info.model_sha256
        own = self.verifier.identity.model_sha256 if self.verifier else None
        return recorded is not None and own is not None and recorded != own

    def findings(self) -> Iterator[Finding]:
        """What speaks against this model as the trace's verifier, and does not refuse it."""
        if self.verifier is None:
            return
        name, told = self.verifier.identity.name, self._told()
        if self.is_other:
            yield self._warning(
                OTHER,
                f"{name} is not the model that this trace was captured from "
                f"({self.trace.info.model}), by the hash of its weights; {told}",
            )
        elif self.checked and self.agreed < MIN_AGREEMENT * self.checked:
            yield self._warning(DISAGREES, f"is {name} this trace's verifier? {told}")

    def _warning(self, code: str, sentence: str) -> Finding:
        corpus = self.trace.info.corpus
        return Finding(code=code, severity="warning", subject=corpus, sentence=sentence)

    def _told(self) -> str:
        if not self.checked:
            return "its greedy tokens were not asked for at any anchor"
        return (
            f"its greedy token is the trace's oracle at {self.agreed / self.checked:.2%} of "
            f"{count(self.checked, 'position')} checked"
        )


def check_model(checkers: Sequence[Checker]) -> None:
    """Raise MismatchError where the model is not the one that the traces were recorded of.

    Each trace is held against it by itself, then all of them together.
    """
    for part in (*([one] for one in checkers), checkers):
        checked, agreed = sum(one.checked for one in part), sum(one.agreed for one in part)
        sure = _SURE_OF_OTHER if all(one.is_other for one in part) else _SURE
        high = binomial_interval(agreed, checked, sure).high if checked else 1.0
        if high is None or high >= MIN_AGREEMENT:
            continue
        verifier, traces = part[0].verifier, [one.trace for one in part]
        assert verifier is not None
        raise MismatchError(
            f"the greedy tokens of {verifier.identity.name} are the oracle of "
            f"{some([trace.info.corpus for trace in traces])} at {agreed / checked:.0%} of "
            f"{count(checked, 'position')}: it is not its verifier",
            hint="name the model that the trace was captured from: --verifier MODEL",
            where=traces[0].path or "",
        )


def greedy_after(verifier: Verifier, text: Sequence[Tensor], drafts: Tensor) -> Tensor:
    """The verifier's greedy token after each text, and after each text with more of its drafts.

    Args:
        text: int64 [length] each.
        drafts: int64 [n, m].

    Returns:
        int64 [n, m + 1].
    """
    model = verifier.model
    whole = [torch.cat(pair) for pair in zip(text, drafts, strict=True)]
    inputs = torch.nn.utils.rnn.pad_sequence(whole, batch_first=True)
    with torch.no_grad():
        check_once(model, whole[0], verifier.vocabulary)
        output = model.get_decoder()(input_ids=inputs.to(model.device), use_cache=False)
        lasts = torch.tensor([len(one) - 1 for one in text]).unsqueeze(1)
        columns = lasts + torch.arange(drafts.shape[1] + 1)
        states = output.last_hidden_state.cpu()[torch.arange(len(text)).unsqueeze(1), columns]
        flat = states.flatten(0, 1)
        tokens = greedy_tokens(flat, model.get_output_embeddings(), verifier.vocabulary)
    return tokens.view(len(text), -1)


def accepted_slots(drafts: Drafts, greedy: Tensor, ends: Sequence[int]) -> Tensor:
    """bool [n, K]: slots 0..k were drafted, are the verifier's, and none before k ends the text."""
    right = drafts.drafted & (drafts.tokens == greedy)
    ended = torch.isin(drafts.tokens, torch.tensor(list(ends), dtype=torch.int64))
    open_ = torch.ones_like(right)
    open_[:, 1:] = ~ended[:, :-1]
    return (right & open_).int().cumprod(1).bool()
