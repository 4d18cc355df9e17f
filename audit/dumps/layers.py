"""Which layers the further states of a dump enter: the numbers of four tools on one scale.

A trace counts as Hugging Face's `hidden_states` do: `layer_16` is the state entering layer 16, the
output of layer 15. vLLM, speculators, SpecForge and EAGLE-3 heads count so too; ModelOpt's Hugging
Face script names a state by the layer that it leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from audit.dumps.reader import Numbering, Reader
from audit.errors import BadUsageError, MismatchError
from audit.records import Finding


@dataclass(frozen=True, slots=True)
class Layers:
    """What the further states are."""

    entering: tuple[int | None, ...]
    """For each, the layer it enters; None for one that is left out."""
    settings: dict[str, Any]
    findings: tuple[Finding, ...] = ()


def name_layers(
    reader: Reader,
    count: int,
    depth: int | None,
    asked: tuple[int, ...],
    numbering: Numbering,
) -> Layers:
    """The layers of `count` further states.

    Args:
        depth: number of the model's layers, None when no model was given.
        asked: `--layers`, in the tool's own numbering; empty for the documented default.
        numbering: what a number means.

    Raises:
        BadUsageError: `--layers` names another number of layers.
        MismatchError: a layer that the model does not have, or a last state that is not the last.
    """
    if asked:
        ids = _asked(reader, count, depth, asked, numbering)
        source = "--layers"
    else:
        default = None if depth is None else reader.default_layers(depth, count)
        if default is None:
            return _left_out(reader, count)
        ids, source = default, f"the documented default of {reader.name}"
    for layer in ids:
        if layer < 0 or (depth is not None and layer >= depth):
            raise MismatchError(
                f"layer {layer} does not exist in a model of {depth or 'this many'} layers",
                hint="check --layers, and --layer-numbering (entering or leaving)",
                where=reader.dump,
                code="LAYERS",
            )
    once = tuple(layer if layer not in ids[:i] else None for i, layer in enumerate(ids))
    settings = {"entering": [layer for layer in once if layer is not None], "source": source}
    return Layers(once, settings | {"numbering": numbering if asked else "entering"})


def _asked(
    reader: Reader, count: int, depth: int | None, asked: tuple[int, ...], numbering: Numbering
) -> tuple[int, ...]:
    """`--layers` on our scale; it may also name the last state, as vLLM's setting does."""
    entering = tuple(layer + (numbering == "leaving") for layer in asked)
    if len(entering) == count:
        return entering
    if len(entering) != count + 1:
        raise BadUsageError(
            f"--layers names {len(asked)} layers, the dump has {count} further states and the last",
            hint=f"name {count}, or {count + 1} with the last, in the order of the dump",
            where=reader.dump,
        )
    if depth is not None and entering[-1] != depth:
        raise MismatchError(
            f"the last state of the dump enters layer {entering[-1]} of {depth}: the state that "
            "the head reads was not dumped",
            hint=f"dump again with {depth} as the last layer id",
            where=reader.dump,
            code="LAYERS",
        )
    return entering[:-1]


def _left_out(reader: Reader, count: int) -> Layers:
    if count == 0:
        return Layers((), {})
    sentence = (
        f"{count} further states were left out, because nothing says which layers they are of; "
        "--layers names them"
    )
    note = Finding(code="LAYERS_UNKNOWN", severity="note", subject="dump", sentence=sentence)
    return Layers((None,) * count, {}, (note,))
