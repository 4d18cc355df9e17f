"""Where the oracle of a dump comes from: the model's own head, a logits file, or the text itself.

Also which positions count: all that have an oracle, or only those that the loss mask marks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from audit.dumps.alignment import agreement, require_agreement
from audit.dumps.collect import Collected, Progress
from audit.dumps.logits_file import LogitsFile
from audit.dumps.model import Model
from audit.dumps.reader import Reader
from audit.dumps.request import ImportRequest
from audit.errors import BadUsageError, MismatchError
from audit.lockstep import compare_heads
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


@dataclass(frozen=True, slots=True, eq=False)
class Oracle:
    """The oracle as the trace keeps it."""

    token: Tensor
    """int64 [N], -1 where there is none."""
    counted: Tensor | None
    """bool [N], the rows that count; None for all."""
    kind: OracleKind
    settings: dict[str, Any]
    """Where it is from."""
    mask: dict[str, Any] | None
    """What the loss mask marks, and whether only that counts; None without a mask."""
    findings: list[Finding]


def find_oracle(
    request: ImportRequest, reader: Reader, found: Collected, states: States, report: Progress
) -> Oracle:
    """The oracle from the best source that was given.

    Raises:
        MismatchError: no position has one, or it fits the text better one row off (ALIGNMENT).
        BadUsageError: only marked positions are wanted, and there is no mask.
    """
    token, settings, findings = _from_source(request, found, states, report)
    if states.model is not None or request.oracle_from:
        shares = agreement(token, found.token, found.sequence)
        named = {f"{shift:+d}" if shift else "0": share for shift, share in shares.items()}
        settings["text_agreement"] = {name: round(share, 4) for name, share in named.items()}
    return Oracle(
        token,
        _counted(request, reader, found, token),
        "text" if settings["source"] == "text" else "verifier_greedy",
        settings,
        _mask_settings(request, found),
        [*findings, *_mask_notes(request, found)],
    )


def _from_source(
    request: ImportRequest, found: Collected, states: States, report: Progress
) -> tuple[Tensor, dict[str, Any], list[Finding]]:
    """Oracle int64 [N], what a trace says of its source, and notes."""
    model = states.model
    if request.oracle_from:
        file = LogitsFile(request.oracle_from, model.vocabulary if model else None)
        lengths = torch.bincount(found.sequence).tolist()
        token = torch.cat([file.oracle(text) for text in found.token.split(lengths)])
        settings, findings = file.report()
        require_agreement(token, found.token, found.sequence, request.oracle_from)
        return token, settings, findings
    if model is not None:
        return _greedy(model, states, request.device, report), {"source": "head"}, []
    return found.following, {"source": "text"}, []


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


def _counted(
    request: ImportRequest, reader: Reader, found: Collected, oracle: Tensor
) -> Tensor | None:
    """bool [N], which rows count; None for all that have an oracle."""
    marked = found.marked if request.only_loss_mask else None
    if request.only_loss_mask and marked is None:
        raise BadUsageError(
            f"{reader.dump} has no loss mask",
            hint="leave --only-loss-mask away",
            where=reader.dump,
        )
    known = oracle >= 0
    if bool((known if marked is None else known & marked).any()):
        return marked
    raise MismatchError(
        f"no position of {reader.dump} counts: none has an oracle"
        + (" that the loss mask marks" if request.only_loss_mask else ""),
        hint="import longer texts, or without --only-loss-mask",
        where=reader.dump,
    )


def _mask_settings(request: ImportRequest, found: Collected) -> dict[str, Any] | None:
    if found.marked is None:
        return None
    share = round(float(found.marked.double().mean()), 4)
    return {"marked_share": share, "only_marked_count": request.only_loss_mask}


def _mask_notes(request: ImportRequest, found: Collected) -> list[Finding]:
    if found.marked is None or request.only_loss_mask or bool(found.marked.all()):
        return []
    sentence = (
        f"the loss mask marks {100 * float(found.marked.double().mean()):.1f} % of the positions "
        "(answers); all are counted, prompts too, unless --only-loss-mask is given"
    )
    return [Finding(code="LOSS_MASK", severity="note", subject="dump", sentence=sentence)]
