"""What calibrated cuts are fitted to: the reference's own states over some text.

Fitted to states of another model, a cut would be ruined without a word. So the reference must be
anchored on every text first, by the rule that `audit compare` goes by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from audit.anchor import ANCHOR_MIN, check_anchor, settle_anchors
from audit.blocks import BlockHead, heads_in
from audit.errors import BadUsageError, MismatchError
from audit.files import Container, open_container
from audit.files.depth import layer_numbers
from audit.forge import Cut, Only, block_moments, parts_of, second_moment_of
from audit.heads import Head, HeadOptions
from audit.heads.lm import lm_head
from audit.measure import Measured, measure_trace, valid_ids
from audit.provenance import sha256_files
from audit.traces import Trace, read_trace


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """Second moments for the calibrated ones of some cuts; None where no cut needs them."""

    projection: Tensor | None = None
    """float64 [hidden, hidden] of what enters the projection."""
    block: Mapping[str, Tensor] | None = None
    """As `block_moments` gives them."""
    notes: tuple[str, ...] = ()


def fit_cuts(
    ref: Head,
    cuts: Sequence[Cut],
    traces: Sequence[Path],
    *,
    only: Only | None = None,
    anchor_min: float = ANCHOR_MIN,
    model: Container | None = None,
) -> Fit:
    """What the calibrated ones among `cuts` are fitted to.

    Args:
        traces: of text like the head's own; pooled.
        anchor_min: as in `audit compare`.
        model: the verifier, where it is not the file of the reference.

    Raises:
        MismatchError: the traces are not of this head's verifier, or of several models.
        BadUsageError: no row to calibrate on, or no MLP that a cut could be fitted to.
    """
    fitted = [cut for cut in cuts if cut.calibrated]
    if not fitted or not traces:
        return Fit()
    read = [read_trace(path) for path in traces]
    notes = list(_check_model(ref, read, model, anchor_min))
    measured = _anchored(ref, read, anchor_min)
    parts = [parts_of(ref, cut, only) for cut in fitted]
    projection = block = None
    if any(part.projection for part in parts):
        projection = second_moment_of(torch.cat([found.ref_states for found in measured]))
    if isinstance(ref, BlockHead) and any(part.block for part in parts):
        # Pruning needs a diagonal, and takes it from a whole moment too.
        diagonal = all(cut.kind == "prune" for cut in fitted)
        block = block_moments(ref.block, read, diagonal=diagonal)
        if not block:
            raise BadUsageError(
                f"{ref.block.name} has no gated MLP that {fitted[0]} could be fitted to",
                hint="take a cut of all its weights, such as q4_0",
            )
    return Fit(projection, block, tuple(notes))


def _anchored(ref: Head, traces: Iterable[Trace], anchor_min: float) -> list[Measured]:
    """The reference measured on the traces, once it is sure that they are its own."""
    measured, anchors, valid = [], [], []
    models: dict[str | None, str] = {}
    for trace in traces:
        models.setdefault(trace.info.model_sha256, trace.info.model)
        if len(models) > 1:
            raise MismatchError(
                f"the traces are of different models: {', '.join(sorted(models.values()))}",
                hint="fit a cut to the states of its own verifier",
                where=trace.path or "",
            )
        measured.append(measure_trace(ref, [], trace))
        valid.append(valid_ids(ref, trace))
        anchors.append(check_anchor(ref, trace, measured[-1], valid[-1], anchor_min))
    settle_anchors(ref, anchors, measured, min(valid))
    return measured


def _check_model(
    ref: Head, traces: Sequence[Trace], model: Container | None, anchor_min: float
) -> Iterable[str]:
    """Were the traces recorded with the model that lies there? Yields a warning for each that was
    recorded with other weights and could still be its own, as of a model that was saved anew.

    A draft head that reads the next token is beyond chance on anybody's states; the model's own
    LM head is not.

    Raises:
        MismatchError: the model does not reproduce its own tokens from these states.
    """
    model = model or open_container(Path(ref.record.path))
    if not _is_whole(model):
        return
    own = sha256_files(list(model.files))
    for trace in traces:
        recorded = trace.info.model_sha256
        if recorded == own:
            continue
        if isinstance(ref, BlockHead):
            head = lm_head(model, HeadOptions(), None)
            found = measure_trace(head, [], trace)
            check_anchor(head, trace, found, valid_ids(head, trace), anchor_min)
        if recorded:
            yield (
                f"warning: {trace.info.corpus} was recorded with other weights ({recorded[:12]}) "
                f"than {model.path.name} holds now ({own[:12]})"
            )


def _is_whole(model: Container) -> bool:
    """True for a model with layers and an LM head, which a trace can be recorded with."""
    held = heads_in(model)
    return 0 in layer_numbers(model) and "lm" in held and "eagle3" not in held
