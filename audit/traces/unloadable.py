"""Why transformers could not open a model: its failures as our errors, in one sentence each.

Where shapes do not fit it only points to a report on the terminal; the first tensor is found here,
by building the same model without any memory for its weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from audit.errors import AuditError, MissingExtraError, UnreadableError, UnsupportedFormatError
from audit.files import Container

_SHAPES_DIFFER = "ignore_mismatched_sizes"
_UNKNOWN = ("Unrecognized", "not supported", "auto_map", "custom code")


def load_error(error: BaseException, path: Path, part: str) -> AuditError:
    """What a failure of transformers means for the user; its own words say the rest."""
    message = f"transformers cannot open the {part} of {path}: {_reason(error)}"
    if isinstance(error, ImportError):
        return MissingExtraError(message, hint="install the library it names", where=path)
    if any(word in str(error) for word in _UNKNOWN):
        return UnsupportedFormatError(
            message, hint="capture needs a causal language model known to transformers", where=path
        )
    return UnreadableError(
        message, hint="check that the files are complete and belong together", where=path
    )


def model_error(
    error: BaseException, where: Mapping[str, Any], path: Path, held: Container | None
) -> AuditError:
    """As `load_error`, of a model; with the first tensor whose shape is not the configuration's.

    Args:
        where: what names the model for `from_pretrained`.
        held: its weights, None where they can not be read.
    """
    if _SHAPES_DIFFER not in str(error):
        return load_error(error, path, "model")
    unfit = _first_unfit(where, held) if held else None
    which = "some tensors have" if unfit is None else f"the tensor {unfit[0]} has"
    shapes = "" if unfit is None else f": {_shape(unfit[1])} held, {_shape(unfit[2])} expected"
    return UnreadableError(
        f"the weights of {path} are not those that its configuration describes: {which} another "
        f"shape{shapes}",
        hint="give config.json and weights of one model",
        where=path,
    )


def _first_unfit(
    where: Mapping[str, Any], held: Container
) -> tuple[str, tuple[int, ...], tuple[int, ...]] | None:
    """Name, shape held and shape expected; None where names differ too, as in GGUF files."""
    try:
        config = AutoConfig.from_pretrained(**where, local_files_only=True, trust_remote_code=False)
        with torch.device("meta"):
            wanted = AutoModelForCausalLM.from_config(config).state_dict()
    except Exception:  # the first failure is the one that is told
        return None
    for name, tensor in wanted.items():
        shape = held.entries[name].shape if name in held.entries else tuple(tensor.shape)
        if tuple(shape) != tuple(tensor.shape):
            return name, tuple(shape), tuple(tensor.shape)
    return None


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(f"{size:,}" for size in shape)


def _reason(error: BaseException) -> str:
    """The first line of what went wrong; a refused configuration has it in the cause."""
    told = error
    if type(error).__name__.startswith("StrictDataclass") and error.__cause__:
        told = error.__cause__
    lines = str(told).strip().splitlines()
    return lines[0] if lines else type(told).__name__
