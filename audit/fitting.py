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
from audit.blocks.finding import holds_layers
from audit.errors import BadUsageError, MismatchError
from audit.files import Container, open_container
from audit.forge import Cut, Only, block_moments, parts_of, second_moment_of
from audit.heads import Head
from audit.heads import names as known_names
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
    return Fit(projection, block, tuple(_other_models(ref, read, model)))


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


def _other_models(ref: Head, traces: Sequence[Trace], model: Container | None) -> Iterable[str]:
    """Traces that say they were recorded with other weights than those that lie there.

    Only a warning: a head trained and saved anew with its frozen verifier has another hash.
    """
    model = model or open_container(Path(ref.record.path))
    recorded = {trace.info.model_sha256: trace.info.model for trace in traces}
    recorded.pop(None, None)
    if not recorded or not _is_whole(model):
        return
    own = sha256_files(list(model.files))
    for digest, name in recorded.items():
        if digest != own:
            yield (
                f"warning: the trace was recorded with {name} (weights {str(digest)[:12]}), which "
                f"is not {model.path.name} as it lies there ({own[:12]})"
            )


def _is_whole(model: Container) -> bool:
    """True for a model with its layers and embedding, which a trace can be recorded with."""
    plain = {known_names.plain(name) for name in model.entries}
    embedded = any(name in plain for name in known_names.EMBEDDING[model.format])
    return embedded and holds_layers(model) and "eagle3" not in heads_in(model)
