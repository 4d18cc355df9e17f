"""Where the oracle of a dump comes from: the model's own head, a logits file, or the text itself.

Also which positions count: all that have an oracle, or only those that the loss mask marks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from audit.compare import compare_heads
from audit.dumps.alignment import agreement, require_agreement
from audit.dumps.collect import Collected, Progress
from audit.dumps.logits_file import LogitsFile
from audit.dumps.model import Model
from audit.dumps.reader import Reader
from audit.dumps.request import ImportRequest
from audit.errors import BadUsageError, MismatchError
from audit.records import Finding, OracleKind, Stage

_ROWS = 8192


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """The dumped states as the head reads them, a few rows at a time."""

    hidden: Tensor
    model: Model | None
    stage: Stage

    def __call__(self, rows: Tensor | slice) -> Tensor:
        """float32 [n, d] after the final norm."""
        states = self.hidden[rows].float()
        if self.stage == "post_norm" or self.model is None or self.model.head.norm is None:
            return states
        return self.model.head.norm(states)


def find_oracle(
    request: ImportRequest, reader: Reader, found: Collected, states: States, report: Progress
) -> tuple[Tensor, OracleKind, dict[str, Any], list[Finding]]:
    """The oracle [N], its kind, where it is from, and what must be said of it."""
    model = states.model
    if request.oracle_from:
        file = LogitsFile(request.oracle_from, model.vocabulary if model else None)
        lengths = torch.bincount(found.sequence).tolist()
        oracle = torch.cat([file.oracle(text) for text in found.token.split(lengths)])
        settings, findings = file.report()
        require_agreement(oracle, found.token, found.sequence, request.oracle_from)
    elif model is not None:
        oracle = _greedy(model, states, request.device, report)
        settings, findings = {"source": "head"}, []
    else:
        return found.following, "text", {"source": "text"}, []
    shares = agreement(oracle, found.token, found.sequence)
    settings["text_agreement"] = {f"{k:+d}" if k else "0": round(v, 4) for k, v in shares.items()}
    return oracle, "verifier_greedy", settings, findings


def _greedy(model: Model, states: States, device: str, report: Progress) -> Tensor:
    """The head's own proposal for every row, int64 [N]."""
    rows = len(states.hidden)
    parts = []
    for start in range(0, rows, _ROWS):
        block = slice(start, min(start + _ROWS, rows))
        none = torch.full((block.stop - start,), -1, dtype=torch.int64)

        def tick(done: int, total: int, start: int = start, stop: int = block.stop) -> None:
            report("oracle", start + (stop - start) * done // max(total, 1), rows)

        answers, _ = compare_heads(
            model.head,
            [],
            states(block),
            none,
            valid=model.vocabulary,
            device=device,
            progress=tick,
        )
        parts.append(answers.proposal)
    return torch.cat(parts)


def count_marked(
    request: ImportRequest, reader: Reader, found: Collected, oracle: Tensor
) -> Tensor:
    """The oracle with -1 where a position does not count."""
    kept = oracle
    if request.only_loss_mask:
        if found.marked is None:
            raise BadUsageError(
                f"{reader.dump} has no loss mask", hint="leave --only-loss-mask away",
                where=reader.dump,
            )  # fmt: skip
        kept = torch.where(found.marked, oracle, -1)
    if bool((kept >= 0).any()):
        return kept
    raise MismatchError(
        f"no position of {reader.dump} counts: none has an oracle"
        + (" that the loss mask marks" if request.only_loss_mask else ""),
        hint="import longer texts, or without --only-loss-mask",
        where=reader.dump,
    )


def mask_settings(request: ImportRequest, found: Collected) -> dict[str, Any] | None:
    if found.marked is None:
        return None
    share = round(float(found.marked.double().mean()), 4)
    return {"marked_share": share, "only_marked_count": request.only_loss_mask}


def mask_notes(request: ImportRequest, found: Collected) -> list[Finding]:
    if found.marked is None or request.only_loss_mask or bool(found.marked.all()):
        return []
    sentence = (
        f"the loss mask marks {100 * float(found.marked.double().mean()):.1f} % of the positions "
        "(answers); all are counted, prompts too, unless --only-loss-mask is given"
    )
    return [Finding(code="LOSS_MASK", severity="note", subject="dump", sentence=sentence)]
